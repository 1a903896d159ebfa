// Names and constants of the API pre-check: which judgement belongs to which operator and dtype.
// Sources: the published behaviour of both generations of the tool, as collected in
// docs/precheck-rules.md.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

namespace msprobe::precheck {

// old: run_ut spelling, chosen by operator name. new: acc_check spelling, chosen by dtype (precheck
// rules, algorithm choice).
enum class Standard : uint8_t { kOld, kNew };

// base: the published rules with their corrections. default: base, and the Q rules of judge.h,
// which only worsen a status and name themselves.
enum class Rules : uint8_t { kBase, kDefault };

// How far off a small value of a 16-bit float may be. The original tool's tables hold 1e-16 where
// its documents say 2^-16, which makes nearly every small value of those types an error; corrected
// is what the documents say (P7).
enum class SmallValues : uint8_t { kOriginal, kCorrected };

enum class Algorithm : uint8_t {
  kBenchmark,          // ratios of five metrics against another device's
  kAbsoluteThreshold,  // three error rates that must be zero
  kBinaryConsistency,  // mismatching elements
  kUlp,                // units in the last place
  kThousandth,         // share of relative errors below 0.1 %
  kAccumulativeError,
};

// The word that details files carry in the column of the algorithm.
std::string_view AlgorithmName(Algorithm a);
// nullopt-like: false when the text is none of the six.
bool AlgorithmFromName(std::string_view name, Algorithm& out);

enum class Level : uint8_t { kL0, kL1, kL2 };
struct RatioLimits {
  double small_value, rmse, max_rel, mean_rel, balance;
};
// Level of an operator by its bare name, case-insensitive; backward names (npu_x_backward,
// npu_x_grad) map to npu_x. The old standard has no levels: always kL0.
Level OperatorLevel(std::string_view api, Standard standard);
const RatioLimits& LimitsOf(Level level);

bool IsFloat8Text(std::string_view dtype);   // fp8 and HiFloat8 spellings
bool IsFloatFamily(std::string_view dtype);  // dtypes outside the binary comparison
bool IsUnjudgedDtype(
    std::string_view dtype);  // float64, complex64, complex128 in the final comparison
bool HasErrorMetrics(std::string_view dtype);  // dtypes with metrics beyond cosine and maximum

// The algorithm for an output. `float8_input`: some input of the call was fp8 or HiFloat8.
Algorithm ChooseAlgorithm(std::string_view api, std::string_view device_dtype, bool float8_input,
                          Standard standard);
// The list an operator's name is in, for the old standard; kBenchmark when in none.
Algorithm AlgorithmByName(std::string_view api);
// The names of that list; empty for kBenchmark.
std::span<const std::string_view> NamesOf(Algorithm a);

// Constants by dtype text; the dtype is the device's.
double SmallValue(std::string_view dtype);  // 2^-10 for 16-bit floats, 2^-20 otherwise
double SmallValueToleranceAbsolute(std::string_view dtype,
                                   SmallValues tables = SmallValues::kOriginal);
double SmallValueToleranceBenchmark(std::string_view dtype,
                                    SmallValues tables = SmallValues::kOriginal);
double RelativeTolerance(std::string_view dtype);  // absolute threshold algorithm
double AccumulativeBound(std::string_view dtype);
double AccumulativeBalanceLimit(std::string_view dtype);
double RatioFloor(std::string_view dtype);  // of the denominator of a ratio

inline constexpr double kBFloat16Limit = 3.3895313892515355e38;
inline constexpr double kCosineAbove = 0.99;
inline constexpr double kCosineZero = 2.220446049250313e-16;
inline constexpr double kMaxAbsBelow = 0.001;

bool IsQuantized(std::string_view api);  // outputs may differ by one
bool IsTopK(std::string_view api);
// Outputs are sums of many products or terms, so that small ones are what cancellation left.
bool IsSummed(std::string_view api);

}  // namespace msprobe::precheck
