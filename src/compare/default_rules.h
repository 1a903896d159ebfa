// The default rule set (decisions.md 25): which differences rounding explains, the findings Q and
// N, and which of all findings follow from an earlier one.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "compare/judge.h"
#include "compare/store.h"
#include "metrics/rounding.h"

namespace msprobe::compare {

// Groups in order of execution: forward calls as the file has them, then backward calls, then
// gradients.
std::vector<RowGroup> ExecutionOrder(const std::vector<RowGroup>& groups,
                                     const std::vector<Row>& rows, const Side& target);

class DefaultRules {
 public:
  // `rows` with metrics and evidence; all references must outlive the object.
  DefaultRules(std::vector<Row>& rows, const Side& target, Mode mode, const Options& options);

  // Whether the difference of a row is within what rounding and the inputs of its entry explain.
  bool Explains(size_t row) const { return states_[row].explained; }
  // Adds findings, takes out rules that are off or say less here, marks consequences. To be called
  // after the R rules have their say.
  void Finish();

 private:
  // What counts for one row.
  struct RowState {
    float deviation = -1;  // |a - b| / (|b| + scale), at the scale of its siblings; < 0: unknown
    float limit = 0, noise = 0;
    bool explained = false;  // within the limit
    bool deviates = false;   // above the noise
  };
  struct Limits {
    double rounding = 0, gain = 0, noise = 0, most = 0;
  };
  enum Kind : uint8_t { kValue, kClass, kGrad, kShape, kKinds };

  // What is known of the entry at work.
  struct Here {
    std::string_view entry, api;
    NameParts parts;
    bool module = false, forward = true;
    const metrics::RoundingFamily* family = nullptr;
    std::string key;  // base and call: gradients find their forward call by it
  };
  void Enter(RowGroup group);
  void Measure(RowGroup group);
  double ScaleOf(RowGroup group, size_t row) const;
  Limits LimitsOf(size_t row) const;
  double OwnRounding(RowGroup group, size_t row, const Limits& limits) const;
  bool IsZeroGradient(size_t row, double group_rms, double noise) const;
  void Findings(RowGroup group);
  void RowFindings(size_t row);
  void ExactFinding(size_t row);
  void ValueFinding(size_t row);
  void TakeOut(Row& row) const;
  void MarkConsequences(RowGroup group);
  void MarkKind(size_t row, Kind kind, bool inputs_hit);
  bool Tolerate(size_t row, const std::string& print, bool inputs_hit);
  bool Hit(const Row& row, Kind kind) const;
  std::string FingerprintOf(size_t row) const;
  bool IsResult(size_t row) const;
  bool Overwritten(size_t row) const;
  Direction DirectionOf(RowGroup group) const;

  std::vector<Row>& rows_;
  const Side& target_;
  Mode mode_;
  const Options& options_;
  std::vector<RowGroup> order_;
  std::vector<RowState> states_;
  Here at_;
  double most_ = 0;          // largest noise that any type so far may have
  double front_ = 0;         // largest deviation of explained results so far
  double entry_input_ = -1;  // largest deviation of the inputs of the entry at work; < 0: unknown
  std::unordered_map<std::string, double> forward_;         // by base and call: largest deviation
  std::unordered_map<std::string, bool> forward_hit_;       // by base and call: found wrong
  std::unordered_map<std::string_view, double> largest_;    // gradients: rms by shape
  std::unordered_map<std::string, uint32_t> seen_[kKinds];  // wrong leaves by what they hold
  std::unordered_set<std::string> tolerated_;               // results whose rounding grew
  uint32_t first_[kKinds] = {};                             // first wrong row + 1
};

}  // namespace msprobe::compare
