// Training against inference (`--consistent_check`, compare.md 18): modules that one framework
// splits and the other fuses are compared as one.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/log.h"
#include "compare/scratch_folder.h"
#include "compare/store.h"

namespace msprobe::compare {

// Where an entry of a training or inference dump belongs: what both frameworks call alike.
struct ModulePlace {
  int64_t layer = -1;  // of `layers.<n>`
  std::string key;     // module without layer, in the words of the inference side
};
// `base`: an entry name without direction and number, like `Module.model.layers.0.mlp.Qwen2MLP`.
ModulePlace PlaceOf(std::string_view base, Backend backend, bool training);

// Rows of a training dump (target) against an inference dump (golden): target rows in their order,
// then golden rows without a partner. Rows pair by call, layer, module and place in the entry.
// fsdp: all training rows of one inference row become one leaf; megatron: all inference rows of one
// training row. Training entries between a backward pass of the whole model and the next forward
// pass (recomputation) are left out; `notes` says how many. Sets what MatchRows sets, and
// `merged`.
std::vector<Row> ConsistentRows(Side& target, Side& golden, const Options& options,
                                std::vector<std::string>& notes);

// Tensors of merged leaves in files of `scratch`, by `data_name` in `files`: inputs are those of
// the first part; parameters are joined along their first dimension, all else along the second,
// without extents of 1. What cannot be joined is a warning and has no file.
void JoinMergedTensors(const std::vector<Row>& rows, bool golden, const std::string& folder,
                       ScratchFolder& scratch, FileMap& files, LogSink& log);

}  // namespace msprobe::compare
