#include "app/culprit_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>
#include <string_view>

namespace msprobe::app {
namespace {

using culprit::Finding;
using culprit::FindingKind;

std::string Short(double value) {
  if (std::isinf(value)) return value > 0 ? "infinite" : "-infinite";
  return fmt::format("{:.3g}", value);
}

std::optional<double> Number(const Finding& f, std::string_view name) {
  const auto it = std::find_if(f.numbers.begin(), f.numbers.end(),
                               [&](const auto& number) { return number.first == name; });
  if (it == f.numbers.end()) return std::nullopt;
  return it->second;
}

struct Title {
  std::string_view key, title;
};

// In the order in which they are shown. `limit` has two meanings.
constexpr std::array<Title, 13> kTitles = {{
    {"introduced", "error made here, relative"},
    {"inherited", "error that came in, relative"},
    {"score", "times what rounding explains"},
    {"golden_score", "the same in the golden run"},
    {"deviation", "relative deviation"},
    {"inputs", "that of the inputs together"},
    {"limit", "limit"},
    {"p", "p-value"},
    {"value", "value"},
    {"golden_value", "in the golden run"},
    {"amplification", "amplification of what comes in"},
    {"extra", "calls more"},
    {"missing", "calls less"},
}};

std::string ReplayCertainty(const culprit::Report& r, const Finding& f) {
  const double p = Number(f, "p").value_or(1);
  std::string out = fmt::format(
      "a right call has such a score with p = {}; {} of {} replayed entries are discoveries at q = "
      "{:g} (Benjamini & Hochberg), ",
      Short(p), r.discoveries, r.replayed, r.q);
  out += "calibrated " + r.calibration;
  out += r.calibrated ? " kernels: on other devices p is a rank." : ".";
  return out;
}

}  // namespace

std::string LossText(const culprit::Report& report) {
  const culprit::LossImpact& loss = report.loss;
  if (!loss.known) return {};
  return fmt::format(
      "Effect on the loss: the errors that calls introduce add up to {:.3g}; the recorded losses "
      "differ by {:.3g}, of which {:.3g} is unexplained.",
      loss.sum, loss.difference, loss.difference - loss.sum);
}

std::string DiscoveriesText(const culprit::Report& report) {
  return fmt::format("{} of {} replayed entries are discoveries at q = {:g} (calibrated {})",
                     report.discoveries, report.replayed, report.q, report.calibration);
}

std::string CollectivesText(const culprit::Report& report) {
  uint64_t grown = 0;
  for (const auto& [reason, count] : report.collectives_by_growth) grown += count;
  if (report.collectives + grown == 0) return {};
  std::string out = fmt::format("collectives: {} judged from the inputs of all ranks, {} by growth",
                                report.collectives, grown);
  const char* separator = " (";
  for (const auto& [reason, count] : report.collectives_by_growth) {
    out += fmt::format("{}{}: {}", separator, reason, count);
    separator = "; ";
  }
  return grown > 0 ? out + ")" : out;
}

std::string CountOf(uint64_t count, std::string_view one, std::string_view many) {
  return fmt::format("{} {}", count, count == 1 ? one : many);
}

std::string_view KindTitle(FindingKind kind) {
  switch (kind) {
    case FindingKind::kArgument:
      return "Called with another argument";
    case FindingKind::kStructure:
      return "Other calls than in the golden run";
    case FindingKind::kIntroduced:
      return "Wrong result from right inputs";
    case FindingKind::kAccumulate:
      return "A gradient that is not the sum of its parts";
    case FindingKind::kState:
      return "A parameter, buffer or input differs from the start";
    case FindingKind::kGlue:
      return "Changed between two recorded calls";
    case FindingKind::kWired:
      return "A tensor from another call";
    case FindingKind::kOutput:
      return "A result that its inputs do not explain";
  }
  return {};
}

std::vector<std::pair<std::string, std::string>> CulpritFigures(const Finding& finding) {
  std::vector<std::pair<std::string, std::string>> out;
  for (const Title& t : kTitles) {
    const std::optional<double> value = Number(finding, t.key);
    if (value) out.emplace_back(t.title, Short(*value));
  }
  if (const auto impact = Number(finding, "loss_impact"))
    out.emplace_back("effect on the loss", Short(*impact));
  if (finding.count > 1) out.emplace_back("times the same", std::to_string(finding.count));
  if (!finding.code.empty()) out.emplace_back("source line", finding.code);
  return out;
}

std::string HowSure(const culprit::Report& report) {
  const Finding& f = report.findings.front();
  if (Number(f, "p")) return ReplayCertainty(report, f);
  const std::string by = fmt::format("judged by {}", ModeName(report.mode));
  if (f.kind == FindingKind::kArgument && !Number(f, "deviation")) {
    return "arguments are compared exactly; " + by + ".";
  }
  const auto deviation = Number(f, "deviation"), limit = Number(f, "limit");
  if (deviation && limit && *limit > 0) {
    return fmt::format("{}: the deviation is {} times what counts as noise here; no p-value.", by,
                       Short(*deviation / *limit));
  }
  if (f.kind == FindingKind::kStructure) {
    return "calls are compared one by one, and what follows deviates; " + by + ".";
  }
  return by + "; no p-value.";
}

}  // namespace msprobe::app
