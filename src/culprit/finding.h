// What the search found, and its place in the summary of a comparison.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "json/json.h"

namespace msprobe::culprit {

// Kinds of findings, in their order within one entry (culprit.md 6.12).
enum class FindingKind : uint8_t {
  kArgument,
  kStructure,
  kIntroduced,
  kAccumulate,
  kState,
  kGlue,
  kWired,
  kOutput,
};
std::string_view KindName(FindingKind kind);

struct Finding {
  FindingKind kind = FindingKind::kOutput;
  std::string entry, golden_entry;  // golden_entry may be empty
  std::string leaf;
  int rule = 0;  // number of culprit.md 6
  std::vector<std::pair<std::string, double>> numbers;
  std::string code;  // "file:line" or empty
  uint64_t count = 1;
  std::string sentence;
  uint64_t place = 0;      // in order of execution
  std::string reason_key;  // equal for findings that are one line with a count
};

// What the tensors' evidence allowed.
enum class Mode : uint8_t { kTensor, kSketch, kStatistics };
std::string_view ModeName(Mode mode);

enum class Verdict : uint8_t { kFound, kNone, kNotJudged };
std::string_view VerdictName(Verdict verdict);

struct LossImpact {
  bool known = false;
  double sum = 0, difference = 0;  // of the entries that were replayed; of the recorded losses
};

struct Report {
  Mode mode = Mode::kStatistics;
  Verdict verdict = Verdict::kNone;
  std::string reason;             // of kNotJudged
  std::vector<Finding> findings;  // in order; the first is the culprit
  // Entries of the target whose deviations follow from an earlier one, in order of execution.
  std::vector<std::string> followers;
  uint64_t consequences = 0;  // their number
  std::vector<std::string> notes;
  uint64_t judged = 0, replayed = 0;
  std::map<std::string, uint64_t> not_replayed;  // reason -> entries
  double q = 0.001;
  uint64_t discoveries = 0;
  bool calibrated = true;              // constants are those of CPU kernels
  std::string calibration = "on CPU";  // "on your device from 812 entries"
  bool one_dump = false;               // without a golden run
  // Collectives (rule 9): judged from the inputs of all ranks, and by growth, by reason.
  uint64_t collectives = 0;
  std::map<std::string, uint64_t> collectives_by_growth;
  LossImpact loss;
  bool evidence = false;  // tensors, sketches, hashes or origins on both sides
  double front = 0;       // largest deviation that counts as noise at the end; for later steps
  double usual = -1;      // what three quarters of the parameters deviate less than; the same
};

// The object of compare_summary_*.json.
void WriteReport(json::Writer& writer, const Report& report);

}  // namespace msprobe::culprit
