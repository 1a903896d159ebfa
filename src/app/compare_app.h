// The use case "compare two dumps": from paths and options to reports on disk, counts and an answer
// in words.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "app/advisor.h"
#include "app/compare_inputs.h"
#include "app/user_metrics.h"
#include "base/log.h"
#include "base/result.h"
#include "base/thread_pool.h"
#include "compare/compare.h"
#include "compare/postprocess.h"
#include "config/compare_config.h"
#include "config/postprocess_config.h"
#include "culprit/culprit.h"

namespace msprobe::app {

// The engine's words that callers of this use case need.
using compare::Backend;
using compare::Counts;
using compare::Face;
using compare::RuleSet;

class Engine;  // engine.h

// Whether the operator at fault is searched (culprit_app.h). kAuto: on the new face, when the dumps
// hold the evidence.
enum class CulpritChoice : uint8_t { kAuto, kOn, kOff };

struct CompareOptions {
  compare::Face face = compare::Face::kNew;
  compare::RuleSet rules = compare::RuleSet::kDefault;
  std::shared_ptr<const config::RuleFile> rule_file;  // changes of the default set
  std::string target, golden;           // files, rank folders, step folders or dump roots
  std::string output_dir = "./output";  // made when absent
  std::optional<std::string>
      stack_path;           // old face; without it stack.json beside the target JSON is looked up
  bool stack_mode = false;  // old face: show the stacks of stack_path
  bool advisor = true;      // old face: write advisor_*.txt
  bool highlight = false;   // old face: colours
  bool xlsx = false;        // new face: xlsx instead of csv
  bool fuzzy = false;
  compare::Backend backend = compare::Backend::kNone;  // training against inference
  bool row_log = false;                                // one log line per row, tensor mode
  std::optional<config::NameMap> data_mapping, cell_mapping;
  bool cell_mapping_flag = false;
  std::optional<config::ApiMap> api_mapping;  // -am: a target of MindSpore
  bool api_mapping_flag = false;              // the same without a file
  std::optional<config::LayerMap> layer_mapping;
  std::string suffix;                   // of file names, one pair of files only
  unsigned workers = 0;                 // 0 = all cores
  bool resume = false;                  // take the figures of an interrupted run over
  uint64_t memory_limit = 0;            // bytes of tensors read whole; 0 = 4 GiB
  Engine* engine = nullptr;             // where pairs are compared, when not in this process
  uint64_t block_bytes = 256ull << 20;  // of tensors, for an engine's items
  std::string figures;  // journal of figures that others made, to take over; "" = no
  std::vector<int64_t> rank_ids, step_ids;    // only these; empty: all
  bool keep_rows = false;                     // keep the comparisons in CompareRun::ranks
  config::PostprocessConfig postprocess;      // products of tensors, made before they are compared
  std::shared_ptr<UserMetrics> user_metrics;  // tensor mode: columns of the user's own; null: none
  std::string json_path, junit_path;          // rows as JSON lines, entries as JUnit XML; "" = no
  bool html = false;                          // write compare_report_*.html
  CulpritChoice culprit = CulpritChoice::kAuto;
  culprit::ReplayFn replay;         // empty: calls are not replayed
  culprit::ScoreModel score_model;  // limits and constants of the search
  bool loss_impact = false;         // effects of all introduced errors on the loss
  std::string command;              // for the summary: "compare"
  std::vector<std::pair<std::string, std::string>>
      echo;  // options as the user gave them, for the summary
};

// What became of one pair of ranks.
struct RankOutcome {
  RankJob job;
  std::optional<Error> error;  // set: this pair failed, nothing was written for it
  bool interrupted = false;    // the report is there, and lacks the rows that were not reached
  compare::Mode mode = compare::Mode::kStatistics;
  compare::Counts counts;
  std::optional<compare::FirstBad> first_bad;
  std::vector<NotCompared> not_compared;
  std::vector<std::string> notes;
  std::vector<std::string> reports;                       // csv or xlsx
  std::string advice_path, mapping_path;                  // "" = none; row names of -lm, for -dm
  std::shared_ptr<const compare::Comparison> comparison;  // with keep_rows
  std::shared_ptr<const UserColumns> user;                // with user_metrics, like comparison
  std::shared_ptr<compare::PieceJournal> journal;         // while the run goes on
  std::shared_ptr<const culprit::Report> culprit;         // null: not searched
  // For the search, while the run goes on: the first row of each entry; a hash of each row's name.
  std::unordered_map<std::string, uint64_t> rows_of_entries;
  std::vector<uint64_t> row_names;
  std::optional<AdvisorFinding> advice;  // with advice_path
};

struct CompareRun {
  std::vector<RankOutcome> ranks;  // steps and ranks ascending
  std::vector<MissingPart> missing;
  compare::Counts counts;                // sums over ranks
  std::optional<size_t> first_bad_rank;  // index in ranks: of the first step that has one, the
                                         // smallest row; one with a culprit if there is any
  std::string summary_path;
  std::string html_path;              // "" = none
  std::vector<std::string> messages;  // warnings of the whole run
  int64_t started = 0;                // Unix seconds
  double seconds = 0;
  bool partial = false;             // some rank failed or is missing: exit status 1
  bool search_interrupted = false;  // reports are whole; the culprit was not searched to the end
};

// Compares and writes. A run over folders goes on when one rank fails (partial). Errors: bad paths
// or options (nothing was written), kNothingToDo when there is nothing to compare, kCancelled. With
// two files every failure is an error. A run that is cancelled while tensors are compared keeps
// partial_compare_result_* and a hidden file from which a run with `resume` goes on.
Result<CompareRun> Compare(const CompareOptions& options, LogSink& log, ProgressSink& progress,
                           const CancelToken* cancel);

// The products of one pair (compare.md 17.2), in a private folder below `scratch`, which is made.
Result<compare::Postprocessed> Postprocess(const CompareOptions& options, const RankJob& job,
                                           const std::string& scratch, LogSink& log);

// What the engine is told; it shares `cores` with the other ranks.
compare::Options EngineOptions(const CompareOptions& options, CorePool& cores);

// All rules with limits and sources, for --explain-rules.
std::string RulesText();

// False in a build without HTML reports.
bool WritesHtml();

// "rank0", "step0 rank0", "" for two files.
std::string RankLabel(const RankJob& job);

}  // namespace msprobe::app
