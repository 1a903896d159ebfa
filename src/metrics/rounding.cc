#include "metrics/rounding.h"

#include <algorithm>
#include <array>
#include <string_view>
#include <unordered_map>

namespace msprobe::metrics {
namespace {

using Names = std::string_view;

constexpr std::array kMoving = {
    Names("view"),      Names("reshape"),    Names("permute"),      Names("transpose"),
    Names("flatten"),   Names("chunk"),      Names("split"),        Names("cat"),
    Names("stack"),     Names("expand"),     Names("repeat"),       Names("unsqueeze"),
    Names("squeeze"),   Names("contiguous"), Names("clone"),        Names("__getitem__"),
    Names("embedding"), Names("gather"),     Names("index_select"), Names("repeat_interleave"),
    Names("relu"),      Names("pad"),        Names("masked_fill"),  Names("where"),
    Names("max"),       Names("min"),        Names("clamp"),        Names("abs"),
    Names("neg"),       Names("__neg__"),    Names("flip"),         Names("roll")};
constexpr std::array kDivision = {
    Names("div"),  Names("__truediv__"), Names("true_divide"),      Names("rsqrt"),
    Names("log"),  Names("pow"),         Names("__pow__"),          Names("reciprocal"),
    Names("sqrt"), Names("normalize"),   Names("cosine_similarity")};
constexpr std::array kProducts = {Names("linear"),
                                  Names("matmul"),
                                  Names("__matmul__"),
                                  Names("bmm"),
                                  Names("mm"),
                                  Names("addmm"),
                                  Names("baddbmm"),
                                  Names("einsum"),
                                  Names("conv1d"),
                                  Names("conv2d"),
                                  Names("conv3d"),
                                  Names("conv_transpose1d"),
                                  Names("conv_transpose2d"),
                                  Names("conv_transpose3d"),
                                  Names("bilinear"),
                                  Names("lstm"),
                                  Names("gru"),
                                  Names("scaled_dot_product_attention"),
                                  Names("multi_head_attention_forward")};
constexpr std::array kNorms = {Names("layer_norm"),  Names("batch_norm"),    Names("group_norm"),
                               Names("rms_norm"),    Names("instance_norm"), Names("softmax"),
                               Names("log_softmax"), Names("cross_entropy"), Names("nll_loss"),
                               Names("mse_loss")};
constexpr std::array kSums = {Names("sum"),    Names("mean"), Names("var"),       Names("std"),
                              Names("cumsum"), Names("norm"), Names("logsumexp"), Names("prod")};

constexpr std::array<RoundingFamily, 6> kFamilies = {{
    {"moving", 8, 4, kMoving},
    {"division", 16, 300, kDivision},
    {"product", 32, 30, kProducts},
    {"norm and loss", 32, 100, kNorms},
    {"sum", 16, 30, kSums},
    {"general", 32, 30, {}},
}};

}  // namespace

std::span<const RoundingFamily> RoundingFamilies() { return kFamilies; }

const RoundingFamily& RoundingFamilyOf(std::string_view api) {
  static const auto by_name = [] {
    std::unordered_map<std::string_view, const RoundingFamily*> out;
    for (const RoundingFamily& family : kFamilies) {
      for (const std::string_view name : family.apis) out.emplace(name, &family);
    }
    return out;
  }();
  auto found = by_name.find(api);
  // In-place spellings round as the others do.
  if (found == by_name.end() && api.ends_with('_') && !api.ends_with("__")) {
    found = by_name.find(api.substr(0, api.size() - 1));
  }
  return found == by_name.end() ? kFamilies.back() : *found->second;
}

double AccumulationRoundoff(DType dtype) {
  const double u = UnitRoundoff(dtype);
  return std::min(u, UnitRoundoff(DType::kF32));
}

double NoiseLevel(DType dtype) {
  switch (RealOf(dtype)) {
    case DType::kF64:
      return 1e-11;
    case DType::kF32:
      return 2e-5;
    case DType::kF16:
      return 0.02;
    case DType::kBF16:
      return 0.06;
    default:
      return IsExact(dtype) ? 0 : 0.5;  // 8-bit floats
  }
}

double LargestNoise(DType dtype) {
  switch (RealOf(dtype)) {
    case DType::kF64:
    case DType::kF32:
      return 1e-3;
    case DType::kF16:
    case DType::kBF16:
      return 0.3;
    default:
      return IsExact(dtype) ? 0 : 1;
  }
}

}  // namespace msprobe::metrics
