// Recorded tensors that are multiplied by a matrix before they are compared (compare.md 17.2).
#pragma once

#include <memory>
#include <string>

#include "base/log.h"
#include "base/result.h"
#include "compare/compare.h"
#include "compare/scratch_folder.h"
#include "config/postprocess_config.h"

namespace msprobe::compare {

// Products of one pair of dumps, kept in files of a private folder that goes with the object.
class Postprocessed {
 public:
  // Tensors lie in dump_tensor_data beside the JSON files; files go below
  // `scratch_parent`. First
  // outputs are cleared behind their valid length (valid_tail.h), then products are made in order,
  // each of what the one before left. X·M and M·X are taken over the last one or two dimensions of
  // X without its extents of 1, M has two. float32 products round after each multiply-add, as
  // upstream's do; bf16 and 8-bit tensors become float32; integers float64. What cannot be done
  // (missing or unreadable files, sizes that do not fit, complex) is a warning, and the tensor
  // stays as it is. Errors: only those of the private folder.
  static Result<Postprocessed> Make(const config::PostprocessConfig& config,
                                    const std::string& target_json, const std::string& golden_json,
                                    const std::string& scratch_parent, LogSink& log);
  Postprocessed(Postprocessed&&) noexcept = default;
  Postprocessed& operator=(Postprocessed&&) noexcept = default;

  const std::shared_ptr<const FileMap>& target_files() const { return target_; }
  const std::shared_ptr<const FileMap>& golden_files() const { return golden_; }

 private:
  Postprocessed() = default;
  std::shared_ptr<ScratchFolder> folder_;
  std::shared_ptr<const FileMap> target_, golden_;
};

}  // namespace msprobe::compare
