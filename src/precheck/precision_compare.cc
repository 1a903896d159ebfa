#include "precheck/precision_compare.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <deque>
#include <memory_resource>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <utility>

namespace msprobe::precheck {
namespace {

using Row = DetailsTable::Row;

constexpr std::array<Column, 5> kBenchmarkColumns = {
    Column::kSmallValue, Column::kRmse, Column::kMaxRel, Column::kMeanRel, Column::kBalance};
constexpr std::array<std::string_view, 5> kBenchmarkNames = {
    "small-value error share", "RMSE", "max relative error", "mean relative error",
    "error balance"};
constexpr std::array<Column, 3> kRateColumns = {Column::kInfNan, Column::kRelativeRate,
                                                Column::kAbsoluteRate};
constexpr std::array<std::string_view, 3> kRateNames = {"inf/nan error rate", "relative error rate",
                                                        "absolute error rate"};

// The parts of "Type.name.N.direction.output.i"; the name may hold one dot.
struct Key {
  bool valid = false;
  std::string api_full;   // Type.name.N
  std::string_view bare;  // name
  bool forward = true;
};

Key ParseKey(std::string_view name) {
  std::vector<std::string_view> parts;
  for (std::string_view rest = name;;) {
    const size_t k = rest.find('.');
    parts.push_back(rest.substr(0, k));
    if (k == std::string_view::npos) break;
    rest.remove_prefix(k + 1);
  }
  Key key;
  const size_t n = parts.size();
  if (n != 6 && n != 7) return key;
  const bool direction = parts[n - 3] == "forward" || parts[n - 3] == "backward";
  if (!direction || parts[n - 2] != "output") return key;
  key.valid = true;
  key.forward = parts[n - 3] != "backward";
  const auto begin = [&](size_t k) { return static_cast<size_t>(parts[k].data() - name.data()); };
  key.bare = name.substr(begin(1), begin(n - 4) - begin(1) - 1);
  key.api_full = name.substr(0, begin(n - 3) - 1);
  return key;
}

bool IsEmptyShape(std::string_view shape) {
  bool digits = false;
  bool zero = true;
  for (const char c : shape) {
    if (c >= '0' && c <= '9') {
      digits = true;
      zero = zero && c == '0';
      continue;
    }
    if (digits && zero) return true;
    digits = false;
    zero = true;
  }
  return false;
}

bool AnyFilled(const Row& row, std::span<const Column> columns) {
  return std::any_of(columns.begin(), columns.end(), [&](Column c) { return !row[c].blank; });
}

// Which algorithm wrote the row: the cells say so, whatever generation made the file. nullopt: no
// metric at all.
std::optional<Algorithm> AlgorithmOf(const Row& row, std::string_view bare) {
  if (IsFloat8Text(row.device_dtype) && !row[Column::kUlpShare].blank) return Algorithm::kUlp;
  if (!IsFloatFamily(row.device_dtype))
    return row[Column::kErrorRate].blank ? std::nullopt
                                         : std::optional(Algorithm::kBinaryConsistency);
  if (AnyFilled(row, std::span(kBenchmarkColumns).first(4))) return Algorithm::kBenchmark;
  if (!row[Column::kRelativeRate].blank || !row[Column::kAbsoluteRate].blank)
    return row[Column::kBalance].blank ? Algorithm::kAbsoluteThreshold
                                       : Algorithm::kAccumulativeError;
  if (!row[Column::kMeanUlp].blank || !row[Column::kUlpShare].blank) return Algorithm::kUlp;
  if (!row[Column::kErrorRate].blank) return Algorithm::kBinaryConsistency;
  if (!row[Column::kThousandth].blank && AlgorithmByName(bare) == Algorithm::kThousandth)
    return Algorithm::kThousandth;
  return std::nullopt;
}

void Say(JudgedRow& out, std::string_view text) {
  if (!out.message.empty()) out.message += '\n';
  out.message += text;
}

void Skip(JudgedRow& out, SkipReason reason, std::string_view text) {
  out.status = Status::kSkip;
  out.reason = reason;
  Say(out, text);
}

enum class Pairing : uint8_t { kNumbers, kSame, kDiffer };

// Two values of which one or both may be NaN or infinite.
Pairing PairingOf(double x, double y) {
  if (std::isfinite(x) && std::isfinite(y)) return Pairing::kNumbers;
  if ((std::isnan(x) && std::isnan(y)) || x == y) return Pairing::kSame;
  return Pairing::kDiffer;
}

double RatioOf(double x, double y, double floor) {
  return std::fabs(x) / std::max(std::fabs(y), floor);
}

void JudgeBenchmark(const Row& npu, const Row& gpu, std::string_view bare, Standard standard,
                    JudgedRow& out) {
  if (!AnyFilled(gpu, std::span(kBenchmarkColumns).first(4))) {
    Skip(out, SkipReason::kNoGpuData, "the other file has no metrics of this row");
    return;
  }
  for (const Column c : kBenchmarkColumns) {
    if (npu[c].blank) return Skip(out, SkipReason::kNoData, "a metric of this row is missing");
    if (gpu[c].blank)
      return Skip(out, SkipReason::kNoGpuData, "the other file lacks a metric of this row");
  }
  const RatioLimits& limits = LimitsOf(OperatorLevel(bare, standard));
  const std::array<double, 5> limit = {limits.small_value, limits.rmse, limits.max_rel,
                                       limits.mean_rel, limits.balance};
  const double floor = RatioFloor(npu.device_dtype);
  out.status = Status::kPass;
  for (size_t k = 0; k < kBenchmarkColumns.size(); ++k) {
    const double x = npu[kBenchmarkColumns[k]].value;
    const double y = gpu[kBenchmarkColumns[k]].value;
    Ratio& ratio = out.ratios[k];
    ratio.filled = ratio.has_verdict = true;
    const Pairing pairing = PairingOf(x, y);
    ratio.value = pairing == Pairing::kNumbers ? RatioOf(x, y, floor) : std::nan("");
    ratio.error = pairing == Pairing::kDiffer || ratio.value > limit[k];
    if (pairing != Pairing::kNumbers) {
      Say(out, fmt::format("{}: {} on both sides", kBenchmarkNames[k],
                           pairing == Pairing::kSame ? "the same NaN or infinity"
                                                     : "NaN or infinity differ,"));
    }
    if (!ratio.error || k == 4) continue;  // the balance is shown, not counted
    out.status = Status::kError;
    if (pairing == Pairing::kNumbers) {
      Say(out, fmt::format("ERROR: {} {:.6g} against {:.6g}: ratio {:.6g} over {:.6g}",
                           kBenchmarkNames[k], x, y, ratio.value, limit[k]));
    }
  }
}

void JudgeRates(const Row& npu, JudgedRow& out) {
  out.status = Status::kPass;
  for (size_t k = 0; k < kRateColumns.size(); ++k) {
    const auto cell = npu[kRateColumns[k]];
    if (cell.blank)
      return Skip(out, SkipReason::kNoData, fmt::format("the {} is missing", kRateNames[k]));
    Ratio& rate = out.rates[k];
    rate = {true, cell.value, true, cell.value != 0};
    if (!rate.error) continue;
    out.status = Status::kError;
    Say(out, fmt::format("ERROR: {} is {:.6g}, not 0", kRateNames[k], cell.value));
  }
}

void JudgeAccumulative(const Row& npu, JudgedRow& out) {
  JudgeRates(npu, out);
  if (out.status == Status::kSkip) return;
  const double balance = npu[Column::kBalance].value;
  const double limit = AccumulativeBalanceLimit(npu.device_dtype);
  Ratio& shown = out.ratios[4];
  shown = {true, balance, true, !(balance <= limit)};
  if (!shown.error) return;
  out.status = Status::kError;
  Say(out, fmt::format("ERROR: error balance {:.6g} over {:.6g}", balance, limit));
}

void JudgeBinary(const Row& npu, JudgedRow& out) {
  const double rate = npu[Column::kErrorRate].value;
  out.binary = {true, rate, true, rate != 0};
  out.status = rate == 0 ? Status::kPass : Status::kError;
  if (rate != 0) Say(out, fmt::format("ERROR: binary mismatch rate is {:.6g}, not 0", rate));
}

void JudgeUlp(const Row& npu, const Row& gpu, JudgedRow& out) {
  if (npu[Column::kUlpShare].blank || npu[Column::kMeanUlp].blank)
    return Skip(out, SkipReason::kNoData, "a ULP metric of this row is missing");
  const double share = npu[Column::kUlpShare].value;
  out.ulp_share = {true, share, false, false};
  if (IsFloat8Text(npu.device_dtype)) {
    out.ulp_ratio = {false, 0, true, !(share < 0.001)};
    out.status = share < 0.001 ? Status::kPass : Status::kError;
    if (out.status == Status::kError)
      Say(out, fmt::format("ERROR: share of ULP errors {:.6g}, not below 0.001", share));
    return;
  }
  if (gpu[Column::kUlpShare].blank || gpu[Column::kMeanUlp].blank)
    return Skip(out, SkipReason::kNoGpuData, "the other file has no ULP metrics of this row");
  const double mean = npu[Column::kMeanUlp].value;
  out.ulp_mean = {true, mean, false, false};
  const Pairing means = PairingOf(mean, gpu[Column::kMeanUlp].value);
  const Pairing shares = PairingOf(share, gpu[Column::kUlpShare].value);
  const double ratio = shares == Pairing::kNumbers ? RatioOf(share, gpu[Column::kUlpShare].value,
                                                             RatioFloor(npu.device_dtype))
                                                   : std::nan("");
  if (means == Pairing::kDiffer || shares == Pairing::kDiffer) {
    out.ulp_ratio = {true, ratio, false, true};
    out.status = Status::kError;
    Say(out, "ERROR: NaN or infinity of the ULP metrics differ");
    return;
  }
  if (means == Pairing::kSame) Say(out, "mean ULP error: the same NaN or infinity on both sides");
  const bool single = npu.device_dtype == "torch.float32";
  const bool pass = ratio < 1 || (single ? mean < 64 || share < 0.05 : share < 0.001);
  out.ulp_ratio = {true, ratio, true, !pass};
  out.status = pass ? Status::kPass : Status::kError;
  if (!pass) {
    Say(out, fmt::format("ERROR: mean ULP error {:.6g}, share over the limit {:.6g}, ratio {:.6g}: "
                         "none within its bound",
                         mean, share, ratio));
  }
}

void JudgeThousandth(const Row& npu, JudgedRow& out) {
  const double share = npu[Column::kThousandth].value;
  out.thousandth = {true, share, true, !(share >= 0.999)};
  out.status = share >= 0.999 ? Status::kPass : Status::kError;
  if (out.status == Status::kError)
    Say(out, fmt::format("ERROR: share below 0.1 % is {:.6g}, not 0.999", share));
}

// NaN or infinity that only one side of the replay had: recorded as a rate by us, visible in cosine
// or maximum in older files.
bool OneSidedNonFinite(const Row& npu, const Row& gpu) {
  if (!npu[Column::kInfNan].blank) return npu[Column::kInfNan].value != 0;
  const auto bad = [](const Row& row) {
    const auto non_finite = [&](Column c) { return !row[c].blank && !std::isfinite(row[c].value); };
    return non_finite(Column::kCosine) || non_finite(Column::kMaxAbs);
  };
  return bad(npu) && !bad(gpu);
}

void JudgePair(const Row& npu, const Row& gpu, std::string_view bare, Standard standard,
               JudgedRow& out) {
  const auto algorithm = AlgorithmOf(npu, bare);
  if (!algorithm.has_value()) {
    if (npu.has_status && IsJudgedAsSample(npu.message)) {
      out.status = npu.status;
      Say(out, npu.message);
      return;
    }
    if (npu.has_status && npu.status == Status::kError) {
      out.status = Status::kError;
      Say(out, npu.message.empty() ? "failed in the pre-check" : npu.message);
      return;
    }
    Skip(out, SkipReason::kNoData, "the row has no metrics");
    return;
  }
  out.algorithm = algorithm;
  switch (*algorithm) {
    case Algorithm::kBenchmark:
      JudgeBenchmark(npu, gpu, bare, standard, out);
      break;
    case Algorithm::kAbsoluteThreshold:
      JudgeRates(npu, out);
      break;
    case Algorithm::kAccumulativeError:
      JudgeAccumulative(npu, out);
      break;
    case Algorithm::kBinaryConsistency:
      JudgeBinary(npu, out);
      break;
    case Algorithm::kUlp:
      JudgeUlp(npu, gpu, out);
      break;
    case Algorithm::kThousandth:
      JudgeThousandth(npu, out);
      break;
  }
  if (*algorithm == Algorithm::kBenchmark && out.status == Status::kPass &&
      OneSidedNonFinite(npu, gpu)) {
    out.status = Status::kError;
    if (!npu[Column::kInfNan].blank) out.rates[0] = {true, npu[Column::kInfNan].value, true, true};
    Say(out, "ERROR: NaN or infinity where the reference has none, or of another sign");
  }
}

// Rows that are skipped before any metric is looked at. True: `out` is complete.
bool SkippedBeforeJudging(const Row& npu, JudgedRow& out) {
  const auto copy = [&](SkipReason reason, std::string_view fallback) {
    out.npu_message_copied = true;
    Skip(out, reason, npu.message.empty() ? fallback : std::string_view(npu.message));
    return true;
  };
  if (npu.has_status && npu.status == Status::kSkip && npu.device_dtype.empty())
    return copy(SkipReason::kSkippedBefore, "skipped in the pre-check");
  if (npu.device_dtype.empty()) {
    if (npu.has_status && npu.status == Status::kError) {
      out.status = Status::kError;
      Say(out, npu.message.empty() ? "failed in the pre-check" : npu.message);
      return true;
    }
    return copy(SkipReason::kSkippedBefore, "the row has no dtype");
  }
  if (IsUnjudgedDtype(npu.device_dtype))
    return copy(SkipReason::kDtype,
                fmt::format("{} is not judged against another device", npu.device_dtype));
  if (IsEmptyShape(npu.shape)) return copy(SkipReason::kEmpty, "no elements");
  return false;
}

// "Q1" of a line that a Q rule wrote; empty for other lines.
std::string_view FindingId(std::string_view line) {
  const bool is_finding =
      line.size() > 3 && line[0] == 'Q' && line[1] >= '1' && line[1] <= '9' && line[2] == ' ';
  return is_finding ? line.substr(0, 2) : std::string_view();
}

template <class Fn>
void ForEachLine(std::string_view text, Fn fn) {
  while (!text.empty()) {
    const size_t end = text.find('\n');
    fn(text.substr(0, end));
    if (end == std::string_view::npos) return;
    text.remove_prefix(end + 1);
  }
}

// Bit k: rule Qk wrote a line of the message.
uint16_t FindingsOf(std::string_view message) {
  unsigned out = 0;
  ForEachLine(message, [&](std::string_view line) {
    const std::string_view id = FindingId(line);
    if (!id.empty()) out |= 1u << (id[1] - '0');
  });
  return static_cast<uint16_t>(out);
}

// Findings of the Q rules that the other device does not share.
void AddFindings(const Row& npu, uint16_t shared, JudgedRow& out) {
  if (out.status == Status::kSkip || npu.message.empty()) return;
  ForEachLine(npu.message, [&](std::string_view line) {
    const std::string_view id = FindingId(line);
    if (id.empty() || (shared >> (id[1] - '0') & 1) != 0) return;
    const bool error = line.ends_with(": error");
    if (error || out.status == Status::kPass)
      out.status = error ? Status::kError : Status::kWarning;
    Say(out, line);
  });
}

// The verdict of an API from its rows: worst first; a row that was never compared (absent,
// doubtful, no data) leaves SKIP at best.
class ApiRollUp {
 public:
  void Add(const std::string& name, bool forward, const JudgedRow& row, bool topk) {
    auto [it, inserted] = index_.try_emplace(name, apis_.size());
    if (inserted) apis_.push_back({name, {}, {}, {}, topk});
    Entry& entry = apis_[it->second];
    Side& side = forward ? entry.forward : entry.backward;
    side.Add(row.status);
    switch (row.reason) {
      case SkipReason::kName:
      case SkipReason::kDuplicate:
      case SkipReason::kNoGpuRow:
      case SkipReason::kNoNpuRow:
      case SkipReason::kNoData:
      case SkipReason::kNoGpuData:
        side.uncompared = true;
        break;
      default:
        break;
    }
    if (forward && row.status == Status::kSkip) entry.message = row.message;
  }

  std::vector<ApiVerdict> Finish() const {
    std::vector<ApiVerdict> out;
    out.reserve(apis_.size());
    for (const Entry& entry : apis_) {
      ApiVerdict verdict{entry.name, entry.forward.Verdict(), entry.backward.Verdict(), {}};
      if (verdict.forward == Status::kSkip) verdict.message = entry.message;
      if (entry.topk && verdict.forward == Status::kError)
        verdict.message = "NPU ignores sorted=False and returns sorted values, the CPU does not";
      out.push_back(std::move(verdict));
    }
    return out;
  }

 private:
  struct Side {
    std::array<Status, 4> kinds{};  // each once: all that the worst depends on
    uint8_t count = 0;
    bool uncompared = false;
    void Add(Status status) {
      const auto end = kinds.begin() + count;
      if (std::find(kinds.begin(), end, status) == end && count < kinds.size())
        kinds[count++] = status;
    }
    Status Verdict() const {
      const Status worst = Worst(std::span(kinds).first(count), Status::kSkip);
      if (uncompared && worst != Status::kError) return Status::kSkip;
      return worst;
    }
  };
  struct Entry {
    std::string name;
    Side forward, backward;
    std::string message;
    bool topk = false;
  };
  std::vector<Entry> apis_;
  std::unordered_map<std::string, size_t> index_;
};

// What judging needs of a row of the second file.
struct GpuRow {
  static constexpr std::array<Column, 9> kColumns = {
      Column::kSmallValue, Column::kRmse,     Column::kMaxRel, Column::kMeanRel, Column::kBalance,
      Column::kMeanUlp,    Column::kUlpShare, Column::kCosine, Column::kMaxAbs};
  std::string_view name;
  std::array<double, kColumns.size()> values{};
  uint64_t inputs = 0;  // hash of the checksum text; 0: none
  uint32_t count = 1;   // rows of that name
  uint16_t filled = 0;  // bit per column
  uint16_t findings = 0;
  bool used = false;

  void Take(const Row& row) {
    for (size_t k = 0; k < kColumns.size(); ++k) {
      const auto cell = row[kColumns[k]];
      if (cell.blank) continue;
      filled = static_cast<uint16_t>(filled | 1u << k);
      values[k] = cell.value;
    }
    findings = FindingsOf(row.message);
    inputs = InputsHash(row);
  }
  void Give(Row& row) const {
    row.Clear();
    for (size_t k = 0; k < kColumns.size(); ++k)
      if ((filled >> k & 1) != 0) row.Set(kColumns[k], values[k]);
  }
  static uint64_t InputsHash(const Row& row) {
    return row.inputs.empty() ? 0 : std::hash<std::string_view>()(row.inputs) | 1;
  }
};

}  // namespace

struct FinalJudge::State {
  Standard standard;
  Rules rules;
  std::pmr::monotonic_buffer_resource names;
  std::deque<GpuRow> gpu;  // one for each name, in file order
  std::pmr::unordered_map<std::string_view, GpuRow*> by_name{&names};
  std::pmr::unordered_set<std::string_view> npu_only{&names};
  ApiRollUp roll_up;
  Row other;  // of the second file, while a pair is judged
  uint64_t other_inputs = 0;
  std::string first_other_inputs;

  std::string_view Keep(std::string_view text) {
    char* copy = static_cast<char*>(names.allocate(text.size() + 1, 1));
    std::memcpy(copy, text.data(), text.size());
    return {copy, text.size()};
  }
  GpuRow* Find(std::string_view name) {
    const auto it = by_name.find(name);
    return it == by_name.end() ? nullptr : it->second;
  }
  // True when the name came before in the first file.
  bool IsRepeated(std::string_view name, GpuRow* partner) {
    if (partner != nullptr) return std::exchange(partner->used, true);
    return !npu_only.contains(name) && !npu_only.insert(Keep(name)).second;
  }
  void Judge(const Row& row, const Key& key, GpuRow* partner, JudgedRow& judged);
};

void FinalJudge::State::Judge(const Row& row, const Key& key, GpuRow* partner, JudgedRow& judged) {
  const bool repeated = IsRepeated(row.name, partner);
  if (!key.valid)
    return Skip(judged, SkipReason::kName, "the name is not Type.name.N.direction.output.i");
  if (repeated) return Skip(judged, SkipReason::kDuplicate, "the name occurs before in this file");
  if (partner == nullptr) return Skip(judged, SkipReason::kNoGpuRow, "not in the other file");
  if (partner->count > 1) {
    return Skip(judged, SkipReason::kDuplicate,
                fmt::format("the name occurs {} times in the other file", partner->count));
  }
  if (SkippedBeforeJudging(row, judged)) return;
  partner->Give(other);
  JudgePair(row, other, key.bare, standard, judged);
  if (rules == Rules::kDefault) AddFindings(row, partner->findings, judged);
  const uint64_t inputs = GpuRow::InputsHash(row);
  if (inputs != 0 && partner->inputs != 0 && inputs != partner->inputs && other_inputs++ == 0)
    first_other_inputs = row.name;
}

FinalJudge::FinalJudge(Standard standard, Rules rules) : state_(std::make_unique<State>()) {
  state_->standard = standard;
  state_->rules = rules;
}
FinalJudge::~FinalJudge() = default;

void FinalJudge::AddGpu(const Row& row) {
  if (GpuRow* known = state_->Find(row.name); known != nullptr) {
    ++known->count;
    return;
  }
  GpuRow& kept = state_->gpu.emplace_back();
  kept.name = state_->Keep(row.name);
  kept.Take(row);
  state_->by_name.emplace(kept.name, &kept);
}

msprobe::Status FinalJudge::JudgeNpu(const Row& row, const OnJudged& on_judged) {
  JudgedRow judged;
  judged.name = row.name;
  const Key key = ParseKey(row.name);
  state_->Judge(row, key, state_->Find(row.name), judged);
  if (key.valid) {
    state_->roll_up.Add(key.api_full, key.forward, judged, IsTopK(key.bare));
  } else {
    state_->roll_up.Add(row.name, true, judged, false);
    state_->roll_up.Add(row.name, false, judged, false);
  }
  return on_judged(judged);
}

msprobe::Status FinalJudge::Finish(const OnJudged& on_judged) {
  for (const GpuRow& row : state_->gpu) {
    if (row.used) continue;
    JudgedRow judged;
    judged.name = row.name;
    Skip(judged, SkipReason::kNoNpuRow, "only in the other file");
    const Key key = ParseKey(row.name);
    state_->roll_up.Add(key.valid ? key.api_full : judged.name, !key.valid || key.forward, judged,
                        false);
    MSPROBE_TRY(on_judged(judged));
  }
  return {};
}

std::vector<ApiVerdict> FinalJudge::Apis() const { return state_->roll_up.Finish(); }
uint64_t FinalJudge::other_inputs() const { return state_->other_inputs; }
const std::string& FinalJudge::first_other_inputs() const { return state_->first_other_inputs; }

bool IsJudgedAsSample(std::string_view message) {
  return message.starts_with("random, compared as samples") ||
         message.starts_with("share of zeros");
}

PrecisionComparison JudgeDetails(const DetailsTable& npu, const DetailsTable& gpu,
                                 Standard standard, Rules rules) {
  PrecisionComparison out;
  FinalJudge judge(standard, rules);
  const auto keep = [&](const JudgedRow& row) {
    out.rows.push_back(row);
    return msprobe::Status();
  };
  for (const Row& row : gpu.rows) judge.AddGpu(row);
  for (const Row& row : npu.rows) (void)judge.JudgeNpu(row, keep);
  (void)judge.Finish(keep);
  out.apis = judge.Apis();
  out.other_inputs = judge.other_inputs();
  out.first_other_inputs = judge.first_other_inputs();
  return out;
}

}  // namespace msprobe::precheck
