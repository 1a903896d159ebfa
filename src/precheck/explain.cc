#include "precheck/explain.h"

#include <fmt/format.h>

#include <array>
#include <string_view>

namespace msprobe::precheck {
namespace {

constexpr std::array<std::string_view, 3> kDtypes = {"torch.float16", "torch.bfloat16",
                                                     "torch.float32"};

void AppendNames(std::string& out, Algorithm algorithm) {
  size_t width = 0;
  for (const std::string_view name : NamesOf(algorithm)) {
    if (width == 0 || width + name.size() > 100) {
      out += "\n    ";
      width = 4;
    }
    out += name;
    out += ' ';
    width += name.size() + 1;
  }
  out += '\n';
}

void AppendConstants(std::string& out) {
  out += "Constants by dtype of the device's output\n";
  for (const std::string_view t : kDtypes) {
    out += fmt::format(
        "  {}: small value {:.6g}; tolerance there {:.6g} (benchmark), {:.6g} (absolute "
        "threshold); "
        "relative tolerance {:.6g}; floor of a ratio's denominator {:.6g}\n",
        t, SmallValue(t), SmallValueToleranceBenchmark(t), SmallValueToleranceAbsolute(t),
        RelativeTolerance(t), RatioFloor(t));
  }
}

void AppendChoice(std::string& out, Standard standard) {
  out += "Algorithm of an output (first that fits)\n";
  out += fmt::format("  8-bit float output: {}\n", AlgorithmName(Algorithm::kUlp));
  out +=
      fmt::format("  bool or integer output: {}\n", AlgorithmName(Algorithm::kBinaryConsistency));
  if (standard == Standard::kNew) {
    out += fmt::format("  8-bit float input: {}\n", AlgorithmName(Algorithm::kAbsoluteThreshold));
    out += fmt::format("  any other: {}\n", AlgorithmName(Algorithm::kBenchmark));
    return;
  }
  for (const Algorithm a : {Algorithm::kAbsoluteThreshold, Algorithm::kBinaryConsistency,
                            Algorithm::kUlp, Algorithm::kThousandth}) {
    out += fmt::format("  {}, by name:", AlgorithmName(a));
    AppendNames(out, a);
  }
  out += fmt::format("  any other: {}\n", AlgorithmName(Algorithm::kBenchmark));
}

void AppendFindings(std::string& out) {
  out +=
      "Findings that only worsen a status (rule set default); unit: u (|reference| + scale), u the "
      "dtype's unit roundoff,\n"
      "scale the larger of rms(reference) and rms of the largest input or gradient\n"
      "  Q1 error: largest error above 256 + 16 sqrt(terms) units (16-bit: 32 + 2 sqrt(terms)); "
      "with "
      "a baseline above 8 times\n"
      "     the baseline's and above 16 (16-bit: 4)\n"
      "  Q2 error: root mean square error above 2.5 times the baseline's and above 8 (16-bit: "
      "0.5)\n"
      "  Q3 warning: subnormal results are zero\n"
      "  baseline: the same call on the CPU in the recorded dtypes, for NPU, CUDA and "
      "--candidate\n\n";
}

void AppendFinal(std::string& out, Standard standard) {
  out += "Final verdict (api_precision_compare)\n";
  out += fmt::format(
      "  {}: ratio of small-value error share, RMSE, largest and mean relative error, each to the "
      "other device's, at most:\n",
      AlgorithmName(Algorithm::kBenchmark));
  const auto line = [&](std::string_view who, Level level) {
    const RatioLimits& l = LimitsOf(level);
    out += fmt::format(
        "    {}: {:.3g}, {:.3g}, {:.3g}, {:.3g} (error balance {:.3g}: shown, not counted)\n", who,
        l.small_value, l.rmse, l.max_rel, l.mean_rel, l.balance);
  };
  line(standard == Standard::kOld ? "all operators" : "L0, all others", Level::kL0);
  if (standard == Standard::kNew) {
    line("L1: embedding npu_fusion_attention scatter_ scatter_add_", Level::kL1);
    line(
        "L2: addmm npu_cross_entropy_loss gelu layer_norm matmul mm index one_hot sum npu_rms_norm "
        "nonzero",
        Level::kL2);
  }
  out += fmt::format("  {}: three error rates that must be 0\n",
                     AlgorithmName(Algorithm::kAbsoluteThreshold));
  out += fmt::format("  {}: share of mismatches must be 0\n",
                     AlgorithmName(Algorithm::kBinaryConsistency));
  out += fmt::format(
      "  {}: 8-bit: share of errors over 1 ULP below 0.001. float32: mean below 64 ULP, or share "
      "over "
      "32 ULP below 0.05, or below the other device's. 16-bit: share over 1 ULP below 0.001, or "
      "below "
      "the other device's\n",
      AlgorithmName(Algorithm::kUlp));
  out += fmt::format("  {}: share of relative errors below 0.1 % at least 0.999\n",
                     AlgorithmName(Algorithm::kThousandth));
  out += "  NaN or infinity on one side only, or of another sign: error\n";
}

}  // namespace

std::string ExplainRules(Standard standard, Rules rules) {
  std::string out = fmt::format("Rules of the pre-check, standard {}, rule set {}\n\n",
                                standard == Standard::kOld ? "old (run_ut)" : "new (acc_check)",
                                rules == Rules::kBase ? "base" : "default");
  AppendChoice(out, standard);
  out +=
      "\nStatus of an output (accuracy_checking_details)\n"
      "  shapes or kinds of dtype differ: error\n"
      "  NaN or infinity where the other side has none, or of another sign: error; agreeing ones "
      "are left out\n"
      "  bool and integer: any mismatch is an error\n"
      "  1. cosine not above 0.99: error\n"
      "  2. largest absolute error below 0.001: pass\n"
      "  3. 16-bit: share of relative errors below 1 % (bfloat16: 2^-6) not above 0.99: error\n"
      "  4. 16-bit: share below 0.1 % (bfloat16: 2^-8) above 0.999: pass, else warning\n"
      "  5. others: share below 0.1 % not above 0.999: error; share below 0.01 % not above 0.9999: "
      "warning; else pass\n"
      "  the worst output gives the status of its API\n\n";
  if (rules == Rules::kDefault) AppendFindings(out);
  AppendConstants(out);
  out += '\n';
  AppendFinal(out, standard);
  out +=
      "\nSource: the documented and measured behaviour of the releases 8.x (old) and 26.x (new), "
      "corrected where their own\ndocuments say otherwise; docs/precheck-rules.md lists the "
      "corrections.\n";
  return out;
}

}  // namespace msprobe::precheck
