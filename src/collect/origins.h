// Where tensors come from: which recorded leaf left a piece of memory as it is now.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "collect/collector.h"
#include "metrics/tensor_stats.h"

namespace msprobe::collect {

class Origins {
 public:
  // A tensor: its memory, shape and type.
  struct Piece {
    MemoryId memory;
    std::span<const int64_t> shape;
    DType dtype = DType::kF32;
  };
  // Who left it so.
  struct Producer {
    std::string_view entry;  // "Functional.linear.0.forward"
    std::string_view leaf;   // "output.0"
    int64_t step = 0;
    bool module = false;  // does not take the place of a call inside that left the same
    const metrics::TensorStats* statistics = nullptr;  // to be used again (decisions.md 55)
  };

  // Remembers the producer of a tensor. Tensors of more than kMaxRank dimensions and unknown
  // storages are not remembered.
  void Note(const Piece& piece, const Producer& producer);

  // Appends `"from": {"entry": …, "leaf": …}`, or nothing when no recorded leaf left this memory.
  // Further members, only when they say something:
  //   "step"    the producer is of that earlier step
  //   "view"    {"offset", "strides", "base_strides"} in elements: the tensor is another piece of
  //             the storage than the producer's leaf; `base_strides` are those of that leaf, left
  //             out when it was contiguous
  //   "writes"  writes into the storage since
  // True when something was appended. Of several producers in one storage: the latest of the same
  // piece, else the latest of the largest piece.
  bool AppendFrom(std::string& out, const Piece& piece, int64_t step) const;

  // The statistics of a producer's leaf that is this very piece and was not written since.
  std::optional<metrics::TensorStats> Statistics(const Piece& piece) const;

  void Forget(std::span<const uint64_t> storages);
  size_t size() const;

 private:
  static constexpr size_t kMaxRank = 8;
  static constexpr size_t kMaxPieces = 64;  // of one storage: beyond, the oldest view goes

  struct Record {
    std::shared_ptr<const std::string> entry;
    std::string leaf;
    int64_t step = 0, version = 0, elements = 0;
    const void* address = nullptr;
    uint8_t rank = 0;
    DType dtype = DType::kF32;
    bool contiguous = false;
    std::shared_ptr<const metrics::TensorStats> statistics;
    std::array<int64_t, kMaxRank> shape{}, strides{};
  };
  static bool Fill(Record& record, const Piece& piece);
  static bool SamePiece(const Record& a, const Record& b);
  static void AppendView(std::string& out, const Record& base, const Record& piece);

  mutable std::mutex mutex_;
  std::unordered_map<uint64_t, std::vector<Record>> records_;  // by storage, oldest first
  std::shared_ptr<const std::string> last_entry_;              // leaves of one entry share its name
};

}  // namespace msprobe::collect
