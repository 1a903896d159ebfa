#include "culprit/score_model.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace msprobe::culprit {
namespace {

using Names = std::span<const std::string_view>;

constexpr std::string_view kProducts[] = {
    "matmul",       "bmm",        "mm",          "addmm",    "addbmm",       "baddbmm",
    "linear",       "__matmul__", "__rmatmul__", "einsum",   "addmv",        "mv",
    "dot",          "inner",      "outer",       "ger",      "tensordot",    "bilinear",
    "chain_matmul", "kron",       "vdot",        "addr",     "lstm",         "gru",
    "rnn_tanh",     "rnn_relu",   "lstm_cell",   "gru_cell", "matrix_power", "multi_dot"};
constexpr std::string_view kConvolutions[] = {
    "conv1d",           "conv2d",      "conv3d",   "conv_transpose1d", "conv_transpose2d",
    "conv_transpose3d", "convolution", "conv_tbc", "unfold",           "fold"};
constexpr std::string_view kNorms[] = {
    "layer_norm",           "batch_norm", "group_norm",        "instance_norm", "rms_norm",
    "local_response_norm",  "normalize",  "native_layer_norm", "npu_rms_norm",  "cosine_similarity",
    "cosine_embedding_loss"};
constexpr std::string_view kAttention[] = {"softmax",
                                           "log_softmax",
                                           "softmin",
                                           "gumbel_softmax",
                                           "scaled_dot_product_attention",
                                           "multi_head_attention_forward",
                                           "npu_fusion_attention",
                                           "flash_attn_func",
                                           "logsumexp"};
constexpr std::string_view kPrefixes[] = {"cumsum", "cumprod", "logcumsumexp", "cumsum_",
                                          "cumprod_"};
constexpr std::string_view kTransposed[] = {"conv_transpose1d", "conv_transpose2d",
                                            "conv_transpose3d"};
constexpr std::string_view kCasting[] = {"scaled_dot_product_attention", "prelu",
                                         "multi_head_attention_forward"};
constexpr std::string_view kDividing[] = {
    "div",      "div_",   "__truediv__", "__itruediv__", "__rtruediv__", "true_divide",
    "rsqrt",    "rsqrt_", "reciprocal",  "log",          "log_",         "log2",
    "log10",    "log1p",  "pow",         "pow_",         "__pow__",      "__ipow__",
    "__rpow__", "exp",    "sqrt",        "tan",          "addcdiv",      "addcdiv_"};
constexpr std::string_view kSums[] = {
    "add",      "add_",     "__add__", "__iadd__", "__radd__", "sub",      "sub_",    "__sub__",
    "__isub__", "__rsub__", "rsub",    "sum",      "mean",     "cumsum",   "addcmul", "addcmul_",
    "addcdiv",  "lerp",     "var",     "std",      "var_mean", "std_mean", "trace",   "nansum"};

// Their gradients are those of the result times something of at most about 1: what the call was
// given (masks of -1e38, large scores) has no part in the size of its gradient.
constexpr std::string_view kBounded[] = {"add",         "add_",        "__add__",
                                         "__iadd__",    "__radd__",    "sub",
                                         "sub_",        "__sub__",     "__isub__",
                                         "__rsub__",    "rsub",        "sum",
                                         "mean",        "softmax",     "log_softmax",
                                         "softmin",     "logsumexp",   "relu",
                                         "relu_",       "relu6",       "leaky_relu",
                                         "leaky_relu_", "elu",         "selu",
                                         "celu",        "gelu",        "silu",
                                         "mish",        "sigmoid",     "sigmoid_",
                                         "logsigmoid",  "hardsigmoid", "hardswish",
                                         "hardtanh",    "tanh",        "tanh_",
                                         "softplus",    "softsign",    "clamp",
                                         "clamp_",      "masked_fill", "masked_fill_",
                                         "where",       "maximum",     "minimum",
                                         "cat",         "stack",       "split",
                                         "chunk",       "max_pool1d",  "max_pool2d",
                                         "max_pool3d",  "avg_pool1d",  "avg_pool2d",
                                         "avg_pool3d",  "max",         "min",
                                         "amax",        "amin",        "abs",
                                         "neg",         "__neg__",     "cross_entropy",
                                         "nll_loss",    "embedding",   "index_select",
                                         "gather",      "to",          "float",
                                         "half",        "bfloat16",    "type",
                                         "sin",         "cos",         "pad",
                                         "repeat",      "expand",      "adaptive_avg_pool2d"};

// Their derivatives jump: an input that rounding moves across the place changes an element of the
// gradient as a whole. Of inputs that deviate by d about d do, so the gradient deviates by sqrt(d).
constexpr std::string_view kKinked[] = {"relu",
                                        "relu_",
                                        "relu6",
                                        "leaky_relu",
                                        "leaky_relu_",
                                        "rrelu",
                                        "prelu",
                                        "threshold",
                                        "hardtanh",
                                        "hardswish",
                                        "hardsigmoid",
                                        "clamp",
                                        "clamp_",
                                        "clip",
                                        "abs",
                                        "sign",
                                        "max_pool1d",
                                        "max_pool2d",
                                        "max_pool3d",
                                        "max",
                                        "min",
                                        "amax",
                                        "amin",
                                        "maximum",
                                        "minimum",
                                        "topk",
                                        "sort",
                                        "median",
                                        "l1_loss",
                                        "smooth_l1_loss",
                                        "huber_loss",
                                        "hinge_embedding_loss",
                                        "margin_ranking_loss",
                                        "adaptive_max_pool1d",
                                        "adaptive_max_pool2d",
                                        "adaptive_max_pool3d"};

constexpr std::string_view kPowers[] = {"softmax", "softmin", "gumbel_softmax",
                                        "exp",     "exp_",    "exp2"};

bool Has(Names names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

}  // namespace

double PValue(const ScoreModel& model, double score) {
  if (!(score > 1)) return 1;
  if (std::isinf(score)) return 0;
  return std::min(1.0, model.tail * std::pow(score, -model.exponent));
}

double DiscoveryLimit(const ScoreModel& model, std::vector<double> p_values, size_t tests) {
  std::sort(p_values.begin(), p_values.end());
  double limit = -1;
  const auto m = static_cast<double>(std::max(tests, p_values.size()));
  for (size_t k = 0; k < p_values.size(); ++k) {
    if (p_values[k] <= model.q * static_cast<double>(k + 1) / m) limit = p_values[k];
  }
  return limit;
}

double Kappa(std::string_view api, double n, bool sixteen) {
  const double root = std::sqrt(std::max(1.0, n));
  double kappa = 1 + std::log2(std::max(1.0, n)) / 4;
  if (Has(kProducts, api)) {
    kappa = 1 + root / 2;
  } else if (Has(kConvolutions, api)) {
    kappa = 1 + root;
  } else if (Has(kNorms, api)) {
    kappa = 2 + root / 4;
  } else if (Has(kAttention, api)) {
    kappa = 4;
  }
  constexpr double kScattered = 8;
  if (Has(kPrefixes, api) || (sixteen && Has(kTransposed, api))) kappa *= kScattered;
  return kappa;
}

double ParameterGradKappa(double n) { return 8 * (1 + std::sqrt(std::max(1.0, n)) / 2); }

bool IsProduct(std::string_view api) { return Has(kProducts, api) || Has(kConvolutions, api); }

bool IsLowPrecision(std::string_view api) { return IsProduct(api) || Has(kCasting, api); }

Growth GrowthOf(std::string_view api, bool sixteen) {
  Growth out;
  // Of 16 bits even the inputs' deviations are large: what is 30 times as large is no noise.
  if (sixteen) {
    out.own = 0.02;
    out.gain = 6;
  }
  if (Has(kDividing, api)) out.gain *= 10;
  out.kinked = Has(kKinked, api);
  // Two results of sums over steps, element by element: where both are noise, so is their ratio.
  constexpr double kRatio = 1e5;
  if (api == "addcdiv" || api == "addcdiv_") out.gain = kRatio;
  out.bounded = Has(kBounded, api);
  out.powers = Has(kPowers, api);
  out.cancels = Has(kSums, api) || IsProduct(api) || Has(kNorms, api);
  return out;
}

}  // namespace msprobe::culprit
