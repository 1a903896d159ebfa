#include "compare/rule_texts.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <array>

#include "compare/store.h"
#include "metrics/rounding.h"

namespace msprobe::compare {

std::string_view RuleText(Rule rule) {
  switch (rule) {
    case Rule::kR1:
      return "error: There is nan/inf/-inf in the maximum or minimum value of NPU.";
    case Rule::kR2t:
      return "error: The input/parameters of One Thousandth Err Ratio > 0.9 while the output < "
             "0.6.";
    case Rule::kR2s:
      return "error: The NormRelativeErr of output is greater than 0.5.";
    case Rule::kR3:
      return "error: The Required_Grad of NPU and Bench are inconsistent";
    case Rule::kR4:
      return "error: The scalar parameters of NPU and Bench are inconsistent.";
    case Rule::kR5:
      return "error: The dtype of NPU and Bench are inconsistent.";
    case Rule::kR6:
      return "error: The shape of NPU and Bench are inconsistent.";
    case Rule::kR7t:
      return "warning: The input/parameters of Cosine > 0.9, and input/parameters - output > 0.1";
    case Rule::kR7s:
      return "warning: The norm relative error of output is 10 times that of input.";
    case Rule::kR8Error:
      return "error: The CRC-32 value of NPU differs from that of the bench.";
    case Rule::kR8Warning:
      return "warning: The parameter of NPU does not match the bench.";
    case Rule::kClass:
      return "error: The nan/inf/-inf of NPU and Bench differ in place, sign or presence.";
  }
  return {};
}

std::string_view RuleId(Rule rule) {
  constexpr std::array<std::string_view, 12> kIds = {"R1", "R2", "R2", "R3", "R4", "R5",
                                                     "R6", "R7", "R7", "R8", "R8", "class"};
  return kIds[static_cast<size_t>(rule)];
}

std::string_view RuleId(QRule rule) {
  constexpr std::array<std::string_view, 12> kIds = {"Q1", "Q2", "Q3", "Q4", "Q5", "Q6",
                                                     "N1", "N2", "N3", "N4", "N5", "N6"};
  return kIds[static_cast<size_t>(rule)];
}

namespace {

std::string Sentence(const Finding& f) {
  switch (f.rule) {
    case QRule::kQ1:
      return fmt::format("{} NaN or infinite elements against {}", f.value, f.limit);
    case QRule::kQ2:
      if (f.value < 0) return "values of an exact type differ";
      return fmt::format("{} elements of an exact type differ", f.value);
    case QRule::kQ3:
      return fmt::format("off by {:.2g} of |golden| + rms, rounding and inputs explain {:.2g}",
                         f.value, f.limit);
    case QRule::kQ4:
      return fmt::format(
          "off by {:.2g} (noise {:.2g}), and nothing recorded before it is: look at where it "
          "comes from",
          f.value, f.limit);
    case QRule::kQ5:
      return "shapes differ by dimensions of 1 only";
    case QRule::kQ6:
      return fmt::format("off by {:.2g} (noise {:.2g})", f.value, f.limit);
    case QRule::kN1:
      return "floating dtypes differ, values are judged at the coarser one";
    case QRule::kN2:
      return "integer dtypes differ in width, values are compared exactly";
    case QRule::kN3:
      return fmt::format("{} exact values differ, as near ties may (up to {:.0f})", f.value,
                         f.limit);
    case QRule::kN4:
      return "a consequence";
    case QRule::kN5:
      return "proposed pair: matched by order and likeness, not by name";
    case QRule::kN6:
      return "judged by recorded statistics, a tensor file is missing";
  }
  return {};
}

std::string_view LevelName(Verdict level) {
  if (level == Verdict::kError) return "error";
  return level == Verdict::kWarning ? "warning" : "note";
}

}  // namespace

std::string FindingText(const Finding& f) {
  std::string out = fmt::format("{}: {} {}", LevelName(f.level), RuleId(f.rule), Sentence(f));
  if (!f.origin.empty()) out += fmt::format("; follows from {}", f.origin);
  return out;
}

namespace {

std::string LimitsTable() {
  std::string out = "| family | c | gain | APIs |\n| --- | --- | --- | --- |\n";
  for (const metrics::RoundingFamily& f : metrics::RoundingFamilies()) {
    out += fmt::format("| {} | {} | {} | {} |\n", f.name, f.c, f.gain,
                       f.apis.empty() ? "every other API, and modules"
                                      : fmt::format("{}", fmt::join(f.apis, ", ")));
  }
  return out;
}

std::string NoiseTable() {
  std::string out = "| coarser dtype | u | noise | at most |\n| --- | --- | --- | --- |\n";
  for (const DType t :
       {DType::kF64, DType::kF32, DType::kF16, DType::kBF16, DType::kF8E4M3FN, DType::kF8E5M2}) {
    out += fmt::format("| {} | {:.3g} | {:.3g} | {:.3g} |\n", ShortName(t), UnitRoundoff(t),
                       metrics::NoiseLevel(t), metrics::LargestNoise(t));
  }
  return out;
}

std::string RuleTable() {
  std::string out = "| rule | mode | text |\n| --- | --- | --- |\n";
  const auto add = [&](Rule rule, std::string_view mode) {
    out += fmt::format("| {} | {} | `{}` |\n", RuleId(rule), mode, RuleText(rule));
  };
  add(Rule::kR1, "tensor, statistics");
  add(Rule::kClass, "tensor, statistics");
  add(Rule::kR2t, "tensor");
  add(Rule::kR2s, "statistics");
  add(Rule::kR3, "all");
  add(Rule::kR4, "tensor, statistics");
  add(Rule::kR5, "all");
  add(Rule::kR6, "all");
  add(Rule::kR7t, "tensor");
  add(Rule::kR7s, "statistics");
  add(Rule::kR8Error, "checksum");
  add(Rule::kR8Warning, "checksum");
  return out;
}

constexpr std::string_view kSets = R"(### The three sets

| set | what it is |
| --- | --- |
| `default` | `base`, less what rounding explains, and the rules Q below; what you get without `--rules` |
| `base` | rules R1 to R8 of the original with its documented limits and without its faults |
| `upstream` | R1 to R8 with the limits the original really uses, for people who compare old reports |
| `FILE.yaml` | `default` with other limits for some APIs, dtypes or names |

### Rules R1 to R8

)";

constexpr std::string_view kQRules = R"(
R2 and R7 look at an entry as a whole: R2 (tensor) acts when every input has a one-thousandth ratio above 0.9 and an
output has less than 0.6 (upstream: 0.1); R2 (statistics) when the norms of the inputs agree to 0.1 and that of an output
is off by more than 0.5; R7 when an output's cosine is more than 0.1 below that of the inputs, or its norm 10 times as far
off. R5 and R6 act on checksums in the default set only. Results of `empty`, `empty_like`, `empty_strided`,
`new_empty`, `new_empty_strided`, `empty_with_format`, `numpy`, `to` and `__setitem__` are never judged.

### What the default set does differently

- R5 is a note (N1, N2) between floating types and between integer types: values are judged at the coarser type.
- R6 is a warning (Q5) when the shapes differ by dimensions of 1 only.
- R2, R7 and the `Warning` of the older spelling pass over results whose difference rounding explains.
- R4 holds for every Python value, arguments and results; floating values may differ by the noise of float32.
- In checksum mode requires_grad, dtype and shape count as well; a missing checksum is `unmatched`.
- A tensor or value of which nothing was recorded is `unmatched`; two tensors without elements agree.

| rule | level | when |
| --- | --- | --- |
| Q1 | error | other numbers of NaN or infinite elements were recorded |
| Q2 | error, warning for inputs | bool or integer tensors differ |
| Q3 | error | a result is further off than its own rounding and its inputs explain |
| Q4 | error | a parameter or an input is off by more than noise, and nothing before it is |
| Q5 | warning | shapes differ by dimensions of 1 only |
| Q6 | warning | off by more than noise, as what came before is: a consequence |
| N1, N2 | note | floating types differ; integer types differ in width |
| N3 | note | a few exact values differ, as near ties may when inputs differ by rounding |
| N4 | note | a finding that follows from an earlier row |
| N5 | note | a proposed pair: matched by order and likeness, not by name |
| N6 | note | judged by recorded statistics, because a file is missing |

Notes change no verdict. A row that follows from an earlier one (its inputs are wrong already, or the same wrong numbers
were seen before) is a consequence: Q2 to Q4 are warnings there, the message names the row it follows from, and the
summary counts `consequences` apart. In the older spelling Q and N go to `Err_message`, the summary and the first bad entry, not into
`Accuracy Reached or Not`.

### What rounding explains

A deviation is the largest `|a - b| / (|b| + rms)` over the elements (tensor mode) or over maximum, minimum, mean and norm
(statistics). `rms` is the root mean square of the tensor; for gradients that of the largest gradient of the entry, because
some gradients are zero in exact arithmetic; for sums that of what they add. A result of an API is explained when its
deviation is at most

    c · (u + u_acc · √K) + gain · (largest deviation of its inputs, in backward also of its forward call)

with u the unit roundoff of the coarser dtype, u_acc that of float32 for 16- and 8-bit types, else u, and K the length of
the sums (features of a linear layer, elements per result of a sum, last extent of a norm).

)";

constexpr std::string_view kNoise = R"(
Everything else (inputs, parameters, gradients, results of modules) is judged against noise: the larger of the figure
below and 8 times the largest deviation that was explained so far, but never more than the last column.

)";

constexpr std::string_view kFile = R"(
### Other limits: `--rules FILE.yaml`

    limits:
      - api: linear              # API or class; patterns with * ? [ work in all three
        dtype: torch.bfloat16    # of the target row
        name: "*.layers.3.*"     # of the target row
        rounding: 64             # c
        gain: 100
        noise: 1e-2
        off: [R3, Q6]            # rules that do not act here

Of several items that match, the last counts, figure by figure.
)";

}  // namespace

std::string ExplainRules() {
  std::string out(kSets);
  out += RuleTable();
  out += kQRules;
  out += LimitsTable();
  out += kNoise;
  out += NoiseTable();
  out += kFile;
  return out;
}

}  // namespace msprobe::compare
