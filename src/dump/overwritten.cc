#include "dump/overwritten.h"

#include <algorithm>
#include <array>

namespace msprobe::dump {

bool IsOverwritten(std::string_view api, std::string_view leaf) {
  constexpr std::array<std::string_view, 20> kWriters = {"normal_",
                                                         "uniform_",
                                                         "fill_",
                                                         "zero_",
                                                         "random_",
                                                         "bernoulli_",
                                                         "exponential_",
                                                         "geometric_",
                                                         "log_normal_",
                                                         "cauchy_",
                                                         "copy_",
                                                         "set_",
                                                         "recv",
                                                         "irecv",
                                                         "all_gather",
                                                         "reduce_scatter",
                                                         "_reduce_scatter_base",
                                                         "_all_gather_base",
                                                         "all_gather_into_tensor",
                                                         "reduce_scatter_tensor"};
  if (leaf == "input.out" || leaf == "kwargs.out") return true;
  const bool first = leaf == "input.0" || leaf.starts_with("input.0.");
  const bool named = leaf == "input.tensor" || leaf == "kwargs.tensor" || leaf == "input.output" ||
                     leaf == "kwargs.output";
  return (first || named) && std::ranges::find(kWriters, api) != kWriters.end();
}

}  // namespace msprobe::dump
