// The walk over both runs in order of execution that applies the rules of culprit.md 6.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "culprit/align.h"
#include "culprit/culprit.h"
#include "culprit/provenance.h"
#include "culprit/run.h"
#include "culprit/tensors.h"

namespace msprobe::culprit {

// What is known of both runs before the walk.
struct Case {
  const Run& target;
  const Run& golden;
  const Alignment& alignment;
  const Provenance& target_sources;
  const Provenance& golden_sources;
  Distances& distances;
  KeyKind keys = KeyKind::kNone;
  Mode mode = Mode::kStatistics;
  bool sixteen = false;
  // Modules with recorded calls inside: judged by these.
  std::unordered_set<std::string_view> full;
  // Of these, the ones with modules inside.
  std::unordered_set<std::string_view> branches;
  // Largest norm of a backward leaf of the golden run by shape: the natural scale of gradients that
  // are zero in exact arithmetic (rule 5).
  std::unordered_map<std::string, double> gradient_scale;
  CollectivesOfRank collectives;
};

struct Scores {
  ReplayScores target, golden;
  double discovery_limit = -1;  // largest p-value that is a discovery
  bool replayed = false;        // by anybody at all
};

// How the deviation of an input is explained (rule 4).
enum class Entered : uint8_t {
  kFine,
  kInherited,
  kArgument,
  kStructure,
  kState,
  kGlue,
  kWired,
  kOtherData
};

struct Explained {
  Entered how = Entered::kFine;
  double deviation = 0;       // relative, to the natural scale
  uint32_t group = kNowhere;  // kStructure: of the alignment
  std::string why;            // kArgument: "input.0 as another slice of …"
  int rule = 3;               // kArgument: by which rule it was found
  Producer target, golden;    // what it came from, where known
};

inline constexpr double kNoise = 2e-5, kNoise16 = 0.06;  // nu at least; with 16 bits

// Does the call change the type of its tensor, and nothing else?
bool IsCast(const Entry& e);

class Judge {
 public:
  Judge(Case& c, const Options& options, const Input& input, Report& report)
      : case_(c), options_(options), input_(input), report_(report), front_(input.front) {}

  // Applies all rules; fills findings, consequences and counts of the report.
  void Walk(const Scores& scores);

 private:
  struct Pair {
    uint32_t t, g;
  };
  double Noise() const;  // nu
  // inputs.cc
  void Arguments(Pair p, std::vector<Finding>& found);
  bool IsTrainedNoise(Pair p, const Leaf& t, double deviation);
  double UsualDeviation();
  bool MovedApart();
  bool ScalarsAgree(const Leaf& t, const Leaf& g) const;
  Explained Explain(Pair p, const Leaf& t, const Leaf& g);
  Explained ExplainShape(Pair p, const Leaf& t, const Leaf& g);
  bool Corresponds(const std::vector<Producer>& t, const std::vector<Producer>& g,
                   Explained& out) const;
  bool ExplainedByProducer(const Leaf& t, const Leaf& g, const Explained& e);
  uint32_t GroupOf(const std::vector<Producer>& t, const std::vector<Producer>& g) const;
  uint32_t GroupThatUses(Pair p);
  bool IsScaledCopy(Pair p, const Leaf& t, const Leaf& g) const;
  void Gradients(Pair p, std::vector<Finding>& found);
  void Precision(Pair p, std::vector<Finding>& found);
  int64_t TypeBalanceOf(std::string_view api);
  double ScaleOf(Pair p, const Leaf& golden, double norm) const;
  Finding ArgumentFinding(Pair p, const Leaf& t, const Explained& e);
  void Returned(Pair p, std::vector<Finding>& found);
  std::string ParameterKey(const Leaf& t);
  std::string StateText(const Leaf& t, bool gradient);
  void Entering(Pair p, const Leaf& t, const Explained& e, std::vector<Finding>& found);
  bool HandedOnOneSide(Pair p) const;
  // outputs.cc
  void Introduced(Pair p, std::vector<Finding>& found);
  // The score of a collective that the inputs of all ranks judge; null: growth judges.
  const CollectiveScore* CollectiveOf(const Entry& e) const;
  void Collective(Pair p, std::vector<Finding>& found);
  void Grown(Pair p, std::vector<Finding>& found);
  struct Incoming {
    double sum = 0, absolute = 0;  // distances, relative and not
    double largest = 0, others = 1;
    bool unknown = false, all_equal = true, classes = false;
  };
  Incoming InputsOf(Pair p, const Growth& growth) const;
  void Add(Incoming& in, const Leaf& t, const Leaf& g) const;
  void ParameterGrads(Pair p, std::vector<Finding>& found);
  void GrownGradient(Pair p, const Leaf& t);
  void Follow(Pair p, bool clean);
  bool ReplayedEntry(const Entry& e) const;
  // structure
  void GroupsAt(uint32_t place, std::vector<Finding>& found);
  bool NextDeviate(uint32_t place);
  bool IsAnotherWay(const std::string& module);
  bool ResultsAgree(Pair p, double times);
  Finding StructureFinding(uint32_t group, int rule);
  void MissingGradient(Pair p, std::vector<Finding>& found);
  void Take(std::vector<Finding>& found, uint64_t place);
  void Consequence(const std::string& entry);
  Finding Make(FindingKind kind, Pair p, const std::string& leaf, int rule) const;
  std::string Where(const Finding& f) const;

  Case& case_;
  const Options& options_;
  const Input& input_;
  Report& report_;
  const Scores* scores_ = nullptr;
  double front_ = 0;
  std::vector<Finding> deferred_;  // the first, told when nothing else was found
  size_t next_group_ = 0;
  bool stopped_ = false;
  std::unordered_set<uint32_t> told_groups_;
  // Calls whose results a call without a partner takes -> its group. Filled at the first question.
  std::unordered_map<uint32_t, uint32_t> used_by_target_, used_by_golden_;
  bool users_known_ = false;
  std::unordered_set<std::string_view> other_calls_;  // modules with calls without a partner
  bool other_calls_known_ = false;
  // By API: calls whose results have the same type on both sides, less those that have not.
  std::unordered_map<std::string_view, int64_t> same_result_;
  double usual_deviation_ = -1;                    // negative: not asked for yet
  bool usual_is_bound_ = false;                    // of statistics
  std::unordered_set<uint64_t> seen_parameters_;   // keys of parameters that were used before
  std::unordered_map<std::string, size_t> lines_;  // reason -> finding
};

// What the inputs of all ranks say, when the run has collectives.
CollectivesOfRank CollectivesIn(const Run& run, const Input& input);
// Into the report: how many entries were replayed, and why others were not.
void CountReplays(const ReplayScores& scores, Report& report);
// Level and origin of the constants.
void AddModel(const ScoreModel& model, Report& report);
// Benjamini & Hochberg over all replayed entries: the largest p-value that is a discovery, negative
// when none is. Counts them.
double Discoveries(const ReplayScores& scores, const ScoreModel& model, Report& report);

// What a replay found wrong; in one dump only `golden` is negative and not told.
Finding IntroducedFinding(const LeafScore& worst, const std::string& call, double golden,
                          const ScoreModel& model);
// What a collective's result lacks of the sum or copy of all ranks' inputs.
void TellCollective(const CollectiveScore& score, const std::string& call, Finding& f);

// Uses of the parameters whose recorded gradients differ (rule 8). Two jobs per gradient when both
// hypotheses differ: ":module" and ":shared" after the key.
std::vector<ParameterJob> ParameterJobs(const Run& run, uint32_t entry);
// What is to be replayed of the entries that `wanted` takes: API calls, forward and backward, and
// gradients of parameters. `limit` as in ReplayJobs.
ReplayJobs JobsFor(const Run& run, double limit, const std::function<bool(uint32_t entry)>& wanted);

}  // namespace msprobe::culprit
