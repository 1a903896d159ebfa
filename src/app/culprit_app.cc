#include "app/culprit_app.h"

#ifdef __GLIBC__
#  include <malloc.h>
#endif

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <memory>
#include <string>

#include "app/culprit_ranks.h"
#include "app/culprit_text.h"
#include "base/file.h"
#include "base/text.h"

namespace msprobe::app {
namespace {

bool Wanted(const CompareOptions& options) {
  if (options.culprit == CulpritChoice::kOn) return true;
  if (options.culprit == CulpritChoice::kOff) return false;
  // Entries of other names and merged rows are no runs of the same program.
  return options.face == Face::kNew && options.backend == Backend::kNone && !options.data_mapping &&
         !options.cell_mapping && !options.cell_mapping_flag && !options.api_mapping &&
         !options.api_mapping_flag && !options.layer_mapping && !options.fuzzy;
}

// The row of a name; else the first one of its entry.
std::optional<uint64_t> RowOf(const RankOutcome& out, const std::string& entry,
                              const std::string& row) {
  const auto it = out.rows_of_entries.find(entry);
  if (it == out.rows_of_entries.end()) return std::nullopt;
  const auto from = out.row_names.begin() + static_cast<ptrdiff_t>(it->second);
  const auto at = std::find(from, out.row_names.end(), std::hash<std::string_view>()(row));
  if (at == out.row_names.end()) return it->second;
  return static_cast<uint64_t>(at - out.row_names.begin());
}

// What was found stands where the first bad row stood.
void Replace(RankOutcome& out, const culprit::Finding& f) {
  compare::FirstBad bad;
  bad.entry = f.entry.empty() ? f.golden_entry : f.entry;
  bad.row = f.leaf.empty() ? bad.entry : bad.entry + "." + f.leaf;
  bad.reason = f.sentence;
  if (const auto row = RowOf(out, bad.entry, bad.row)) {
    bad.row_index = *row;
  } else if (out.first_bad) {
    bad.row_index = out.first_bad->row_index;
  }
  out.first_bad = std::move(bad);
}

void Search(const CompareOptions& options, RankOutcome& out, CulpritSearch::Past& past,
            StepCollectives* across, LogSink& log, const CancelToken* cancel) {
  if (BaseName(out.job.target_json) == "debug.json") return;
  culprit::Input input;
  input.target_json = out.job.target_json;
  input.golden_json = out.job.golden_json;
  input.front = past.front;
  input.found_before = past.found;
  input.usual = past.usual;
  if (across != nullptr) input.collectives = across->Of(out);
  culprit::Options search;
  search.model = options.score_model;
  search.replay = options.replay;
  search.loss_impact = options.loss_impact;
  search.needs_evidence = options.culprit == CulpritChoice::kAuto;
  Result<culprit::Report> report = culprit::FindCulprit(input, search);
  if (cancel != nullptr && cancel->cancelled()) return;  // what was not replayed was not judged
  if (!report.ok()) {
    log.Warning("the culprit was not searched: " + report.error().ToString());
    return;
  }
  if (search.needs_evidence && !report->evidence) return;
  past.front = std::max(past.front, report->front);
  past.usual = report->usual;
  past.found = past.found || report->verdict == culprit::Verdict::kFound;
  if (!report->findings.empty()) Replace(out, report->findings.front());
  out.culprit = std::make_shared<const culprit::Report>(std::move(report).value());
}

// What was read for a pair is gone, but lies in pieces between what stays: of thousands of pairs
// that adds up.
void GiveBack() {
#ifdef __GLIBC__
  malloc_trim(0);
#endif
}

}  // namespace

void FindCulprits(const CompareOptions& options, CompareRun& run, LogSink& log,
                  const CancelToken* cancel) {
  if (!Wanted(options)) return;
  StepCollectives across(run.ranks, false);
  CulpritSearch search(&across);
  for (RankOutcome& out : run.ranks) {
    if (cancel != nullptr && cancel->cancelled()) break;
    search.Run(options, out, log, cancel);
  }
  run.search_interrupted = cancel != nullptr && cancel->cancelled();
  for (RankOutcome& out : run.ranks) {
    out.rows_of_entries = {};
    out.row_names = {};
  }
}

void CulpritSearch::Run(const CompareOptions& options, RankOutcome& out, LogSink& log,
                        const CancelToken* cancel) {
  if (Wanted(options) && !out.error && !out.interrupted) {
    Search(options, out, ranks_[out.job.rank], across_, log, cancel);
    GiveBack();
  }
  out.rows_of_entries = {};
  out.row_names = {};
}

void IndexEntries(const compare::Comparison& comparison, RankOutcome& out) {
  std::string_view last;
  out.row_names.assign(comparison.rows.size(), 0);
  for (size_t i = 0; i < comparison.rows.size(); ++i) {
    const compare::Row& row = comparison.rows[i];
    if (row.target == nullptr) continue;
    out.row_names[i] = std::hash<std::string_view>()(row.target->name);
    const std::string_view entry = comparison.EntryName(*row.target, false);
    if (entry == last) continue;
    last = entry;
    out.rows_of_entries.emplace(entry, i);
  }
}

std::optional<size_t> FirstFound(const std::vector<RankOutcome>& ranks) {
  std::optional<size_t> best;
  for (size_t i = 0; i < ranks.size(); ++i) {
    if (!ranks[i].culprit || ranks[i].culprit->findings.empty()) continue;
    if (best && ranks[*best].job.step != ranks[i].job.step) break;
    if (!best || ranks[i].first_bad->row_index < ranks[*best].first_bad->row_index) best = i;
  }
  return best;
}

bool FoundNoCulprit(const CompareRun& run) {
  return std::all_of(run.ranks.begin(), run.ranks.end(), [](const RankOutcome& r) {
    return r.culprit && r.culprit->verdict == culprit::Verdict::kNone;
  });
}

const culprit::Report* CulpritOf(const CompareRun& run) {
  if (const auto found = FirstFound(run.ranks)) return run.ranks[*found].culprit.get();
  const culprit::Report* first = nullptr;
  for (const RankOutcome& r : run.ranks) {
    if (!r.culprit) continue;
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
    if (report->replayed > 0) lines.push_back("  " + DiscoveriesText(*report));
  } else {
    const culprit::Finding& f = report->findings.front();
    lines.push_back(
        fmt::format("Culprit{}: {}: {}", label, KindName(f.kind), VisibleText(f.sentence)));
    lines.push_back(fmt::format("  by {}; {} further findings, {} consequences; {}",
                                ModeName(report->mode), report->findings.size() - 1,
                                report->consequences, DiscoveriesText(*report)));
  }
  if (const std::string loss = LossText(*report); !loss.empty()) lines.push_back("  " + loss);
  if (const std::string ranks = CollectivesText(*report); !ranks.empty())
    lines.push_back("  " + ranks);
  for (const std::string& note : report->notes) lines.push_back("  " + VisibleText(note));
  return lines;
}

}  // namespace msprobe::app
