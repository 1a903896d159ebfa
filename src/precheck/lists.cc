#include "precheck/lists.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <string>

namespace msprobe::precheck {
namespace {

using Names = std::string_view;

constexpr std::array kAbsoluteNames = std::to_array<Names>(
    {"mul",     "mul_",       "__mul__",     "__imul__", "__rmul__",   "add",
     "add_",    "__add__",    "__iadd__",    "__radd__", "div",        "div_",
     "__div__", "__idiv__",   "divide",      "divide_",  "leaky_relu", "leaky_relu_",
     "prelu",   "reciprocal", "reciprocal_", "rsqrt",    "rsqrt_",     "square",
     "square_", "sub",        "sub_",        "rsub",     "__isub__",   "__sub__"});

constexpr std::array kBinaryNames = std::to_array<Names>(
    {"abs",           "abs_",           "absolute",    "absolute_",   "argmin",       "bitwise_and",
     "bitwise_and_",  "broadcast_to",   "ceil",        "ceil_",       "equal",        "fill_",
     "flatten",       "floor",          "floor_",      "gather",      "greater",      "greater_",
     "greater_equal", "greater_equal_", "histc",       "isfinite",    "isnan",        "less",
     "less_",         "less_equal",     "less_equal_", "logical_and", "logical_and_", "logical_not",
     "logical_not_",  "logical_or",     "logical_or_", "masked_fill", "masked_fill_", "max_pool3d",
     "maximum",       "minimum",        "neg",         "neg_",        "nonzero",      "not_equal",
     "not_equal_",    "one_hot",        "pad",         "relu",        "reshape",      "round",
     "round_",        "select",         "sign",        "sign_",       "sort",         "tile",
     "topk",          "transpose",      "transpose_",  "tril",        "tril_",        "triu",
     "triu_",         "type_as"});

constexpr std::array kUlpNames = std::to_array<Names>(
    {"__matmul__", "addbmm", "addbmm_", "addmm", "addmm_", "baddbmm", "baddbmm_", "bilinear", "bmm",
     "chain_matmul", "hspmm", "linear", "matmul", "mm", "mv", "smm", "sspaddmm"});

constexpr std::array kThousandthNames = std::to_array<Names>({"conv1d", "conv2d"});
constexpr std::array kAccumulativeNames = std::to_array<Names>({"test_api"});

constexpr std::array kLevel1 =
    std::to_array<Names>({"embedding", "npu_fusion_attention", "scatter_", "scatter_add_"});
constexpr std::array kLevel2 =
    std::to_array<Names>({"addmm", "npu_cross_entropy_loss", "gelu", "layer_norm", "matmul", "mm",
                          "index", "one_hot", "sum", "npu_rms_norm", "nonzero"});

constexpr std::array kQuantized = std::to_array<Names>(
    {"npu_rms_norm_dynamic_quant", "npu_dynamic_quant", "npu_quant_lightning_indexer"});

template <size_t N>
bool Contains(const std::array<Names, N>& names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

constexpr std::array<std::string_view, 6> kAlgorithmNames = {
    "标杆比对法", "绝对阈值法", "二进制一致法", "ULP误差比对法", "双千指标法", "累积误差比对法"};

constexpr std::array<RatioLimits, 3> kLimits = {{
    {2, 2, 10, 2, 2},
    {2, 1.5, 5, 1.5, 2},
    {2, 1.2, 2, 1.2, 2},
}};

constexpr std::string_view kHalf = "torch.float16";
constexpr std::string_view kBrain = "torch.bfloat16";

bool IsHifloat8(std::string_view dtype) {
  return dtype.find("HiFloat8Tensor") != std::string_view::npos;
}

// 2^exponent, exact.
constexpr double Pow2(int exponent) {
  double v = 1;
  for (int k = 0; k < exponent; ++k) v *= 2;
  for (int k = 0; k > exponent; --k) v /= 2;
  return v;
}

double ByDtype(std::string_view dtype, double half, double brain, double other) {
  if (dtype == kHalf) return half;
  if (dtype == kBrain) return brain;
  return other;
}

}  // namespace

std::string_view AlgorithmName(Algorithm a) { return kAlgorithmNames[static_cast<size_t>(a)]; }

bool AlgorithmFromName(std::string_view name, Algorithm& out) {
  for (size_t k = 0; k < kAlgorithmNames.size(); ++k) {
    if (kAlgorithmNames[k] != name) continue;
    out = static_cast<Algorithm>(k);
    return true;
  }
  return false;
}

Level OperatorLevel(std::string_view api, Standard standard) {
  if (standard == Standard::kOld) return Level::kL0;
  std::string name(api);
  std::transform(name.begin(), name.end(), name.begin(), [](unsigned char c) {
    return static_cast<char>(c >= 'A' && c <= 'Z' ? c + 32 : c);
  });
  for (const std::string_view suffix : {"_backward", "_grad"}) {
    if (name.starts_with("npu_") && name.ends_with(suffix))
      name.resize(name.size() - suffix.size());
  }
  if (Contains(kLevel1, name)) return Level::kL1;
  if (Contains(kLevel2, name)) return Level::kL2;
  return Level::kL0;
}

const RatioLimits& LimitsOf(Level level) { return kLimits[static_cast<size_t>(level)]; }

bool IsFloat8Text(std::string_view dtype) {
  return dtype.starts_with("torch.float8_") || IsHifloat8(dtype);
}

bool IsFloatFamily(std::string_view dtype) {
  return dtype == kHalf || dtype == kBrain || dtype == "torch.float32" ||
         dtype == "torch.float64" || dtype == "torch.complex64" || dtype == "torch.complex128" ||
         IsFloat8Text(dtype);
}

bool IsUnjudgedDtype(std::string_view dtype) {
  return dtype == "torch.float64" || dtype == "torch.complex64" || dtype == "torch.complex128";
}

bool HasErrorMetrics(std::string_view dtype) {
  return dtype == kHalf || dtype == kBrain || dtype == "torch.float32" || IsFloat8Text(dtype);
}

std::span<const std::string_view> NamesOf(Algorithm a) {
  switch (a) {
    case Algorithm::kBenchmark:
      return {};
    case Algorithm::kAbsoluteThreshold:
      return kAbsoluteNames;
    case Algorithm::kBinaryConsistency:
      return kBinaryNames;
    case Algorithm::kUlp:
      return kUlpNames;
    case Algorithm::kThousandth:
      return kThousandthNames;
    case Algorithm::kAccumulativeError:
      return kAccumulativeNames;
  }
  return {};
}

Algorithm AlgorithmByName(std::string_view api) {
  if (Contains(kAbsoluteNames, api)) return Algorithm::kAbsoluteThreshold;
  if (Contains(kBinaryNames, api)) return Algorithm::kBinaryConsistency;
  if (Contains(kUlpNames, api)) return Algorithm::kUlp;
  if (Contains(kThousandthNames, api)) return Algorithm::kThousandth;
  if (Contains(kAccumulativeNames, api)) return Algorithm::kAccumulativeError;
  return Algorithm::kBenchmark;
}

Algorithm ChooseAlgorithm(std::string_view api, std::string_view device_dtype, bool float8_input,
                          Standard standard) {
  if (IsFloat8Text(device_dtype)) return Algorithm::kUlp;
  if (!IsFloatFamily(device_dtype)) return Algorithm::kBinaryConsistency;
  if (standard == Standard::kNew)
    return float8_input ? Algorithm::kAbsoluteThreshold : Algorithm::kBenchmark;
  return AlgorithmByName(api);
}

double SmallValue(std::string_view dtype) {
  return ByDtype(dtype, Pow2(-10), Pow2(-10), Pow2(-20));
}
double SmallValueToleranceAbsolute(std::string_view dtype, SmallValues tables) {
  const double bfloat16 = tables == SmallValues::kCorrected ? Pow2(-16) : 1e-16;
  return ByDtype(dtype, Pow2(-16), bfloat16, Pow2(-30));
}
double SmallValueToleranceBenchmark(std::string_view dtype, SmallValues tables) {
  const double half = tables == SmallValues::kCorrected ? Pow2(-16) : 1e-16;
  return ByDtype(dtype, half, half, Pow2(-30));
}
double RelativeTolerance(std::string_view dtype) {
  return ByDtype(dtype, Pow2(-10), Pow2(-8), Pow2(-20));
}
double AccumulativeBound(std::string_view dtype) {
  return ByDtype(dtype, Pow2(-8), Pow2(-7), Pow2(-11));
}
double AccumulativeBalanceLimit(std::string_view dtype) {
  return ByDtype(dtype, Pow2(-20), Pow2(-7), Pow2(-14));
}
double RatioFloor(std::string_view dtype) { return ByDtype(dtype, Pow2(-11), Pow2(-8), Pow2(-14)); }

bool IsQuantized(std::string_view api) { return Contains(kQuantized, api); }
bool IsSummed(std::string_view api) {
  constexpr std::array<std::string_view, 48> kNames = {"__matmul__",
                                                       "__rmatmul__",
                                                       "addbmm",
                                                       "addbmm_",
                                                       "addmm",
                                                       "addmm_",
                                                       "addmv",
                                                       "addmv_",
                                                       "baddbmm",
                                                       "baddbmm_",
                                                       "batch_norm",
                                                       "bilinear",
                                                       "bmm",
                                                       "chain_matmul",
                                                       "conv1d",
                                                       "conv2d",
                                                       "conv3d",
                                                       "conv_tbc",
                                                       "conv_transpose1d",
                                                       "conv_transpose2d",
                                                       "conv_transpose3d",
                                                       "cumsum",
                                                       "dot",
                                                       "einsum",
                                                       "group_norm",
                                                       "gru",
                                                       "gru_cell",
                                                       "inner",
                                                       "instance_norm",
                                                       "layer_norm",
                                                       "linear",
                                                       "lstm",
                                                       "lstm_cell",
                                                       "matmul",
                                                       "mean",
                                                       "mm",
                                                       "multi_dot",
                                                       "multi_head_attention_forward",
                                                       "mv",
                                                       "npu_fusion_attention",
                                                       "npu_linear",
                                                       "scaled_dot_product_attention",
                                                       "std",
                                                       "sum",
                                                       "tensordot",
                                                       "var",
                                                       "vdot",
                                                       "vecdot"};
  return std::find(kNames.begin(), kNames.end(), api) != kNames.end();
}

bool IsTopK(std::string_view api) { return api == "topk"; }

}  // namespace msprobe::precheck
