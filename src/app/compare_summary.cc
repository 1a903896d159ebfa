#include "app/compare_summary.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "app/compare_text.h"
#include "app/culprit_app.h"
#include "base/text.h"
#include "base/time.h"
#include "json/json.h"

namespace msprobe::app {
namespace {

using compare::Counts;
using compare::Face;
using json::Writer;

constexpr int64_t kFormatVersion = 1;
constexpr size_t kMaxLines = 20;

void WriteCounts(Writer& w, const Counts& c, Face face, std::optional<compare::Mode> mode) {
  w.StartObject();
  w.Key("pass").Uint(c.pass);
  w.Key("warning").Uint(c.warning);
  w.Key("error").Uint(c.error);
  w.Key("unmatched").Uint(c.unmatched);
  w.Key("total").Uint(c.total);
  w.Key("consequences").Uint(c.consequences);
  if (face == Face::kOld && (!mode || *mode == compare::Mode::kTensor)) {
    w.Key("Yes").Uint(c.yes);
    w.Key("No").Uint(c.no);
    w.Key("None").Uint(c.none);
  }
  w.EndObject();
}

void WriteFirstBad(Writer& w, const RankOutcome* rank) {
  if (rank == nullptr || !rank->first_bad) {
    w.Null();
    return;
  }
  const compare::FirstBad& bad = *rank->first_bad;
  w.StartObject();
  w.Key("step").String(rank->job.step);
  w.Key("rank").String(rank->job.rank);
  w.Key("entry").String(bad.entry);
  w.Key("row").String(bad.row);
  w.Key("row_index").Uint(bad.row_index);
  w.Key("reason").String(bad.reason);
  if (rank->culprit && !rank->culprit->findings.empty()) {
    w.Key("kind").String(culprit::KindName(rank->culprit->findings.front().kind));
  }
  w.EndObject();
}

void WriteNotCompared(Writer& w, const std::vector<NotCompared>& list) {
  w.StartArray();
  for (const NotCompared& n : list) {
    w.StartObject();
    w.Key("reason").String(n.reason);
    w.Key("rows").Uint(n.rows);
    w.Key("entries").StartArray();
    for (const std::string& e : n.entries) w.String(e);
    w.EndArray();
    w.EndObject();
  }
  w.EndArray();
}

void WriteStrings(Writer& w, const std::vector<std::string>& list) {
  w.StartArray();
  for (const std::string& s : list) w.String(s);
  w.EndArray();
}

void WriteRank(Writer& w, const RankOutcome& r, Face face) {
  w.StartObject();
  w.Key("step").String(r.job.step);
  w.Key("rank").String(r.job.rank);
  w.Key("golden_rank").String(r.job.golden_rank);
  w.Key("target").String(r.job.target_json);
  w.Key("golden").String(r.job.golden_json);
  w.Key("status").String(r.error ? "failed" : r.interrupted ? "interrupted" : "compared");
  if (r.error) {
    w.Key("error").StartObject();
    w.Key("code").String(ErrorCodeName(r.error->code));
    w.Key("message").String(r.error->ToString());
    w.EndObject();
  } else {
    w.Key("mode").String(ModeName(r.mode));
    w.Key("counts");
    WriteCounts(w, r.counts, face, r.mode);
    w.Key("first_bad");
    WriteFirstBad(w, &r);
    if (r.culprit) {
      w.Key("culprit");
      culprit::WriteReport(w, *r.culprit);
    }
    w.Key("not_compared");
    WriteNotCompared(w, r.not_compared);
    w.Key("notes");
    WriteStrings(w, r.notes);
    w.Key("reports");
    WriteStrings(w, r.reports);
    if (!r.advice_path.empty()) w.Key("advice").String(r.advice_path);
    if (!r.mapping_path.empty()) w.Key("data_mapping").String(r.mapping_path);
  }
  w.EndObject();
}

void WriteMissing(Writer& w, const MissingPart& m) {
  w.StartObject();
  w.Key("step").String(m.step);
  w.Key("rank").String(m.rank);
  w.Key("status").String("missing");
  w.Key("reason").String(m.reason);
  w.EndObject();
}

// The first names, as many as fit a line.
std::string Sample(const std::vector<std::string>& names, uint64_t rows) {
  constexpr size_t kWidth = 70;
  std::string out;
  size_t shown = 0;
  for (const std::string& n : names) {
    if (!out.empty() && out.size() + n.size() > kWidth) break;
    if (!out.empty()) out += ", ";
    out += VisibleText(n);
    ++shown;
  }
  return shown < names.size() || rows > names.size() * 8 ? out + ", …" : out;
}

std::vector<NotCompared> MergeNotCompared(const CompareRun& run) {
  std::vector<NotCompared> out;
  for (const RankOutcome& r : run.ranks) {
    for (const NotCompared& n : r.not_compared) {
      auto it = std::find_if(out.begin(), out.end(),
                             [&](const NotCompared& o) { return o.reason == n.reason; });
      if (it == out.end()) {
        out.push_back(n);
      } else {
        it->rows += n.rows;
      }
    }
  }
  std::sort(out.begin(), out.end(),
            [](const NotCompared& a, const NotCompared& b) { return a.rows > b.rows; });
  return out;
}

std::string CountsText(const CompareOptions& options, const Counts& c) {
  std::string out = fmt::format("pass {}, warning {}, error {}, unmatched {}, total {}", c.pass,
                                c.warning, c.error, c.unmatched, c.total);
  if (options.face == Face::kOld && c.yes + c.no + c.none > 0) {
    out += fmt::format(" (Yes {}, No {}, None {})", c.yes, c.no, c.none);
  }
  if (c.consequences > 0) out += fmt::format(" ({} of them consequences)", c.consequences);
  return out;
}

void AddFirstBad(const CompareRun& run, std::vector<std::string>& lines) {
  if (!run.first_bad_rank) {
    const bool compared = run.counts.total > run.counts.unmatched;
    lines.emplace_back(compared ? "No bad entry: every row that was compared is within the limits."
                                : "No row could be compared.");
    return;
  }
  const RankOutcome& r = run.ranks[*run.first_bad_rank];
  const std::string label = RankLabel(r.job);
  lines.push_back(fmt::format("First bad entry{}: {}", label.empty() ? "" : " (" + label + ")",
                              VisibleText(r.first_bad->entry)));
  // Spreadsheet rows count from 1, after the header.
  lines.push_back(fmt::format("  {} (row {} of the report): {}", VisibleText(r.first_bad->row),
                              r.first_bad->row_index + 2, VisibleText(r.first_bad->reason)));
}

std::string PartLabel(const MissingPart& m) {
  if (m.step.empty()) return m.rank;
  return m.rank.empty() ? m.step : m.step + " " + m.rank;
}

// Counts of the worst ranks as a table, verdicts in columns.
void AddRankTable(std::vector<const RankOutcome*> order, std::vector<std::string>& lines) {
  constexpr size_t kMaxRanks = 5;
  const auto badness = [](const RankOutcome* r) {
    return r->error ? UINT64_MAX : r->counts.error * 1000 + r->counts.warning;
  };
  std::stable_sort(order.begin(), order.end(),
                   [&](auto* a, auto* b) { return badness(a) > badness(b); });
  order.resize(std::min(order.size(), kMaxRanks));
  size_t width = 4;
  for (const RankOutcome* r : order) width = std::max(width, RankLabel(r->job).size());
  lines.push_back(fmt::format("  {:<{}}  {:>8}  {:>8}  {:>8}  {:>9}  first bad", "rank", width,
                              "pass", "warning", "error", "unmatched"));
  for (const RankOutcome* r : order) {
    const std::string label = fmt::format("  {:<{}}  ", RankLabel(r->job), width);
    if (r->error) {
      lines.push_back(label + "failed: " + VisibleText(r->error->ToString()));
      continue;
    }
    const Counts& c = r->counts;
    lines.push_back(label + fmt::format("{:>8}  {:>8}  {:>8}  {:>9}  {}{}", c.pass, c.warning,
                                        c.error, c.unmatched,
                                        r->first_bad ? VisibleText(r->first_bad->entry) : "none",
                                        r->interrupted ? " (interrupted)" : ""));
  }
}

void AddRanks(const CompareRun& run, std::vector<std::string>& lines) {
  if (run.ranks.size() + run.missing.size() < 2) return;
  std::vector<const RankOutcome*> order;
  size_t failed = 0;
  for (const RankOutcome& r : run.ranks) {
    order.push_back(&r);
    failed += r.error.has_value();
  }
  lines.push_back(fmt::format("Ranks: {} compared, {} failed, {} missing",
                              run.ranks.size() - failed, failed, run.missing.size()));
  if (!order.empty()) AddRankTable(order, lines);
  constexpr size_t kMaxShown = 5;
  if (order.size() > kMaxShown) {
    lines.push_back(fmt::format("  and {} more, see the summary", order.size() - kMaxShown));
  }
  for (size_t i = 0; i < run.missing.size() && i < 2; ++i) {
    const MissingPart& m = run.missing[i];
    lines.push_back(fmt::format("  {}: {}", PartLabel(m), m.reason));
  }
}

void AddPaths(const CompareRun& run, std::vector<std::string>& lines) {
  const bool many = run.ranks.size() > 1;
  for (const RankOutcome& r : run.ranks) {
    for (const std::string& path : r.reports) {
      const size_t more = run.ranks.size() - 1;
      lines.push_back("Report: " + VisibleText(path) +
                      (many ? fmt::format(" and {} more", more) : ""));
      break;
    }
    if (!r.advice_path.empty()) lines.push_back("Advice: " + VisibleText(r.advice_path));
    if (!r.mapping_path.empty()) lines.push_back("Mapping: " + VisibleText(r.mapping_path));
    if (!r.reports.empty()) break;
  }
  lines.push_back("Summary: " + VisibleText(run.summary_path));
  if (!run.html_path.empty()) lines.push_back("To look at: " + VisibleText(run.html_path));
}

}  // namespace

std::string SummaryJson(const CompareOptions& options, const CompareRun& run) {
  std::string out;
  Writer w(out, 2);
  w.StartObject();
  w.Key("format_version").Int(kFormatVersion);
  w.Key("tool_version").String(MSPROBE_VERSION);
  w.Key("command").String(options.command.empty() ? "compare" : options.command);
  w.Key("options").StartObject();
  w.Key("face").String(FaceName(options.face));
  w.Key("rules").String(RuleSetName(options.rules));
  for (const auto& [key, value] : options.echo) w.Key(key).String(value);
  w.EndObject();
  w.Key("inputs").StartObject();
  w.Key("target").String(options.target);
  w.Key("golden").String(options.golden);
  w.EndObject();
  w.Key("started").String(IsoUtc(run.started));
  w.Key("seconds").Double(std::round(run.seconds * 1000) / 1000);
  w.Key("counts");
  WriteCounts(w, run.counts, options.face, std::nullopt);
  w.Key("first_bad");
  WriteFirstBad(w, run.first_bad_rank ? &run.ranks[*run.first_bad_rank] : nullptr);
  if (const culprit::Report* report = CulpritOf(run)) {
    w.Key("culprit");
    culprit::WriteReport(w, *report);
  }
  w.Key("path").String(options.output_dir);
  if (!run.html_path.empty()) w.Key("html").String(run.html_path);
  w.Key("ranks").StartArray();
  for (const RankOutcome& r : run.ranks) WriteRank(w, r, options.face);
  for (const MissingPart& m : run.missing) WriteMissing(w, m);
  w.EndArray();
  w.Key("messages");
  WriteStrings(w, run.messages);
  w.EndObject();
  return out + "\n";
}

std::string AnswerText(const CompareOptions& options, const CompareRun& run) {
  std::vector<std::string> lines;
  const std::vector<std::string> culprit = CulpritLines(run);
  lines.insert(lines.end(), culprit.begin(), culprit.end());
  const culprit::Report* found = CulpritOf(run);
  if (found == nullptr || found->findings.empty()) AddFirstBad(run, lines);
  lines.push_back("Rows: " + CountsText(options, run.counts));
  const std::vector<NotCompared> rest = MergeNotCompared(run);
  constexpr size_t kMaxReasons = 4;
  if (!rest.empty()) lines.emplace_back("Not compared:");
  for (size_t i = 0; i < rest.size() && i < kMaxReasons; ++i) {
    lines.push_back(fmt::format("  {} {}, {}: {}", rest[i].rows, rest[i].rows == 1 ? "row" : "rows",
                                rest[i].reason, Sample(rest[i].entries, rest[i].rows)));
  }
  if (rest.size() > kMaxReasons)
    lines.push_back(
        fmt::format("  and {} more reasons, see the summary", rest.size() - kMaxReasons));
  AddRanks(run, lines);
  AddPaths(run, lines);
  if (lines.size() > kMaxLines) lines.resize(kMaxLines);
  std::string out;
  for (const std::string& line : lines) out += line + "\n";
  return out;
}

std::string ClosingLine(const CompareOptions& options, const CompareRun& run) {
  std::string out = CountsText(options, run.counts);
  out += ", first_bad ";
  out += run.first_bad_rank ? VisibleText(run.ranks[*run.first_bad_rank].first_bad->entry) : "none";
  out += ", path " + VisibleText(options.output_dir);
  size_t failed = run.missing.size();
  for (const RankOutcome& r : run.ranks) failed += r.error.has_value();
  if (failed > 0)
    out +=
        fmt::format("; {} of {} ranks not compared", failed, run.ranks.size() + run.missing.size());
  return out;
}

}  // namespace msprobe::app
