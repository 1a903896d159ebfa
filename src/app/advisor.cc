#include "app/advisor.h"

#include <fmt/format.h>

#include <array>
#include <string_view>

#include "base/text.h"

namespace msprobe::app {
namespace {

using compare::Mode;
using compare::Row;

bool Fails(const Row& row, Mode mode) {
  if (mode == Mode::kTensor) return row.accuracy == compare::OldAccuracy::kNo;
  return row.result == compare::OldResult::kWarning || row.result == compare::OldResult::kDifferent;
}

bool Contains(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

// Operators whose results may differ from run to run unless deterministic computing is on.
constexpr std::array<std::string_view, 6> kNondeterministic = {"conv2d",   "conv3d",     "matmul",
                                                               "nll_loss", "layer_norm", "lstm"};

Advice ChooseAdvice(std::string_view name) {
  const bool forward = Contains(name, "forward");
  const bool input = Contains(name, "input");
  if (input) return forward ? Advice::kForwardInput : Advice::kBackwardInput;
  for (const std::string_view api : kNondeterministic) {
    if (Contains(name, api)) return Advice::kNondeterministic;
  }
  return forward ? Advice::kForward : Advice::kBackward;
}

std::string_view AdviceText(Advice advice) {
  switch (advice) {
    case Advice::kNone:
      return "All compared data meet the accuracy requirements.";
    case Advice::kNothingCompared:
      return "No row could be compared, so nothing can be said about accuracy. See why in "
             "Err_message and in the summary.";
    case Advice::kForwardInput:
      return "1. The input already differs: follow it back to the API or module that produced it. "
             "2. If an in-place API wrote its output over this input, the computation of that API "
             "is at fault. "
             "3. If neither explains it, suspect memory that was overwritten while it was in use.";
    case Advice::kForward:
      return "The inputs agree and the output does not: the forward computation of this API is at "
             "fault. Check its "
             "implementation.";
    case Advice::kBackwardInput:
      return "The gradient that arrives here already differs: first check whether the forward "
             "results were affected, "
             "then follow the gradient back.";
    case Advice::kBackward:
      return "The incoming gradient agrees and the outgoing one does not: the backward computation "
             "of this API is at "
             "fault. Check its implementation.";
    case Advice::kNondeterministic:
      return "This API may compute non-deterministically: switch deterministic computing on with "
             "seed_all(mode=True), "
             "dump again and compare.";
  }
  return {};
}

// A path as a shell takes it.
std::string Quoted(const std::string& path) {
  std::string out = "'";
  for (const char c : path) out += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return out + "'";
}

// The next command to run, with what it is good for.
std::string NextStep(Advice advice, const AdvisorContext& context) {
  const std::string both =
      fmt::format("-tp {} -gp {}", Quoted(context.target_json), Quoted(context.golden_json));
  switch (advice) {
    case Advice::kNone:
      return context.not_compared.empty()
                 ? "nothing; the two runs agree as far as they were recorded."
                 : "see why the rows above were not compared; calls of other numbers pair with: "
                   "msprobe compare " +
                       both + " -fm";
    case Advice::kNothingCompared:
      return "check that both dumps are of the same model and step; calls of other numbers pair "
             "with: msprobe compare " +
             both + " -fm";
    case Advice::kForwardInput:
    case Advice::kBackwardInput:
      return "find where the difference comes from: msprobe compare " + both + " -da";
    case Advice::kForward:
    case Advice::kBackward:
      return "replay each recorded API beside the CPU in higher precision: msprobe acc_check "
             "-api_info " +
             Quoted(context.target_json);
    case Advice::kNondeterministic:
      return "put seed_all(mode=True) before the model is built, dump both sides again, then: "
             "msprobe compare " +
             both;
  }
  return {};
}

}  // namespace

AdvisorFinding Advise(const compare::Comparison& comparison) {
  AdvisorFinding out;
  bool compared = false;
  for (size_t i = 0; i < comparison.rows.size(); ++i) {
    const Row& row = comparison.rows[i];
    compared = compared || !row.uncompared;
    if (row.target == nullptr || row.uncompared || !Fails(row, comparison.mode)) continue;
    out.line = i;
    out.node = std::string(row.target->name);
    out.advice = ChooseAdvice(out.node);
    return out;
  }
  out.advice = compared ? Advice::kNone : Advice::kNothingCompared;
  return out;
}

std::string AdvisorText(const AdvisorFinding& finding, const AdvisorContext& context) {
  std::string out = "Line: ";
  out += finding.line ? std::to_string(*finding.line) : "NA";
  out += "\nSuspect Nodes: ";
  out += finding.line ? VisibleText(finding.node) : "NA";
  out += "\nExpert Advice: ";
  out += AdviceText(finding.advice);
  out += "\nSpreadsheet Row: ";
  // After the header, counted from 1.
  out += finding.line ? std::to_string(*finding.line + 2) : "NA";
  out += context.culprit_kind.empty() ? "\nFirst Bad Entry: "
                                      : fmt::format("\nCulprit ({}): ", context.culprit_kind);
  out +=
      context.first_bad == nullptr
          ? "none"
          : fmt::format("{} (row {}: {})", VisibleText(context.first_bad->entry),
                        context.first_bad->row_index + 2, VisibleText(context.first_bad->reason));
  out += "\nNot Compared: ";
  if (context.not_compared.empty()) out += "nothing\n";
  for (size_t i = 0; i < context.not_compared.size(); ++i) {
    const NotCompared& n = context.not_compared[i];
    if (i > 0) out += "              ";
    out += fmt::format("{} rows, {}: {}{}\n", n.rows, n.reason,
                       VisibleText(n.entries.empty() ? "" : n.entries.front()),
                       n.entries.size() > 1 ? ", …" : "");
  }
  return out + "Next: " + NextStep(finding.advice, context) + "\n";
}

}  // namespace msprobe::app
