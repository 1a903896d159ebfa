#include "app/culprit_app.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <memory>
#include <string>

#include "base/file.h"
#include "base/text.h"

namespace msprobe::app {
namespace {

struct Past {  // of one rank, from the steps before
  double front = 0;
  bool found = false;
};

bool Wanted(const CompareOptions& options) {
  if (options.culprit == CulpritChoice::kOn) return true;
  if (options.culprit == CulpritChoice::kOff) return false;
  // Entries of other names and merged rows are no runs of the same program.
  return options.face == Face::kNew && options.backend == Backend::kNone && !options.data_mapping &&
         !options.cell_mapping && !options.cell_mapping_flag && !options.api_mapping &&
         !options.api_mapping_flag && !options.layer_mapping && !options.fuzzy;
}

// What was found stands where the first bad row stood.
void Replace(RankOutcome& out, const culprit::Finding& f) {
  compare::FirstBad bad;
  bad.entry = f.entry.empty() ? f.golden_entry : f.entry;
  bad.row = f.leaf.empty() ? bad.entry : bad.entry + "." + f.leaf;
  bad.reason = f.sentence;
  const auto it = out.rows_of_entries.find(bad.entry);
  if (it != out.rows_of_entries.end()) {
    bad.row_index = it->second;
  } else if (out.first_bad) {
    bad.row_index = out.first_bad->row_index;
  }
  out.first_bad = std::move(bad);
}

void Search(const CompareOptions& options, RankOutcome& out, Past& past, LogSink& log) {
  if (BaseName(out.job.target_json) == "debug.json") return;
  culprit::Input input;
  input.target_json = out.job.target_json;
  input.golden_json = out.job.golden_json;
  input.front = past.front;
  input.found_before = past.found;
  culprit::Options search;
  search.model = options.score_model;
  search.replay = options.replay;
  search.loss_impact = options.loss_impact;
  search.needs_evidence = options.culprit == CulpritChoice::kAuto;
  Result<culprit::Report> report = culprit::FindCulprit(input, search);
  if (!report.ok()) {
    log.Warning("the culprit was not searched: " + report.error().ToString());
    return;
  }
  if (search.needs_evidence && !report->evidence) return;
  past.front = std::max(past.front, report->front);
  past.found = past.found || report->verdict == culprit::Verdict::kFound;
  if (!report->findings.empty()) Replace(out, report->findings.front());
  out.culprit = std::make_shared<const culprit::Report>(std::move(report).value());
}

}  // namespace

void FindCulprits(const CompareOptions& options, CompareRun& run, LogSink& log,
                  const CancelToken* cancel) {
  if (!Wanted(options)) return;
  std::map<std::string, Past> ranks;
  for (RankOutcome& out : run.ranks) {
    if (cancel != nullptr && cancel->cancelled()) return;
    if (out.error || out.interrupted) continue;
    Search(options, out, ranks[out.job.rank], log);
  }
}

void IndexEntries(const compare::Comparison& comparison, RankOutcome& out) {
  std::string_view last;
  for (size_t i = 0; i < comparison.rows.size(); ++i) {
    const compare::Row& row = comparison.rows[i];
    if (row.target == nullptr) continue;
    const std::string_view entry = comparison.EntryName(*row.target, false);
    if (entry == last) continue;
    last = entry;
    out.rows_of_entries.emplace(entry, i);
  }
}

const culprit::Report* CulpritOf(const CompareRun& run) {
  const culprit::Report* first = nullptr;
  for (const RankOutcome& r : run.ranks) {
    if (!r.culprit) continue;
    if (!r.culprit->findings.empty()) return r.culprit.get();
    if (first == nullptr || (first->verdict != culprit::Verdict::kNotJudged &&
                             r.culprit->verdict == culprit::Verdict::kNotJudged)) {
      first = r.culprit.get();
    }
  }
  return first;
}

std::vector<std::string> CulpritLines(const CompareRun& run) {
  std::vector<std::string> lines;
  const culprit::Report* report = CulpritOf(run);
  if (report == nullptr) return lines;
  std::string label;
  for (const RankOutcome& r : run.ranks) {
    if (r.culprit.get() == report) label = RankLabel(r.job);
  }
  if (!label.empty()) label = " (" + label + ")";
  if (report->verdict == culprit::Verdict::kNotJudged) {
    lines.push_back(fmt::format("Culprit{}: not judged: {}", label, report->reason));
  } else if (report->findings.empty()) {
    lines.push_back(fmt::format("Culprit: none. {} entries were judged, {} of them replayed.",
                                report->judged, report->replayed));
  } else {
    const culprit::Finding& f = report->findings.front();
    lines.push_back(fmt::format("Culprit{}: {}: {}", label, KindName(f.kind), f.sentence));
    lines.push_back(fmt::format(
        "  by {}; {} further findings, {} consequences; {} discoveries at q = {:g} ({})",
        ModeName(report->mode), report->findings.size() - 1, report->consequences,
        report->discoveries, report->q,
        report->calibrated ? "calibrated on CPU" : "learned floor"));
  }
  for (const std::string& note : report->notes) lines.push_back("  " + VisibleText(note));
  return lines;
}

}  // namespace msprobe::app
