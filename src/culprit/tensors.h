// Tensor files of a run, and how far the leaves of two runs are apart (culprit.md 5, 6.14).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <unordered_map>

#include "base/result.h"
#include "culprit/run.h"
#include "tensor/view.h"

namespace msprobe::culprit {

struct Tensor {
  std::vector<std::byte> bytes;
  DType dtype = DType::kF32;
  Shape shape;
  TensorView view() const { return {bytes.data(), dtype, shape, {}}; }
};

// The file of a leaf. Errors: no file, a file that is none or another shape or type than the
// record says (decisions.md 29), more than kMostBytes.
inline constexpr uint64_t kMostBytes = 4ull << 30;
Result<Tensor> ReadTensor(const Run& run, const Leaf& leaf);

// What a distance was taken from. Statistics give a lower bound only.
enum class Source : uint8_t { kNothing, kContent, kElements, kSketch, kStatistics };

struct Distance {
  Source source = Source::kNothing;
  bool equal = false;    // the same content (of statistics: the same statistics)
  bool classes = false;  // numbers (elements: places) of NaN or infinity differ
  double absolute = 0;   // |x - y|, Euclidean
  double norm = 0;       // the larger of |x| and |y|
  double relative = 0;   // absolute / norm; 0 when equal; 1 for exact types that differ
  bool known() const { return source != Source::kNothing; }
};

// Distances between leaves of two runs, each worked out once. Leaves of different numbers of
// elements have none. Not thread-safe.
class Distances {
 public:
  Distances(const Run& target, const Run& golden) : target_(target), golden_(golden) {}
  const Distance& Between(const Leaf& target, const Leaf& golden);
  // The same from recorded figures only: no file is opened.
  Distance Cheap(const Leaf& target, const Leaf& golden) const;
  uint64_t unreadable() const { return unreadable_; }

 private:
  Distance Measure(const Leaf& target, const Leaf& golden);
  bool FromElements(const Leaf& target, const Leaf& golden, Distance& out);
  bool FromSketch(const Leaf& target, const Leaf& golden, Distance& out) const;

  const Run& target_;
  const Run& golden_;
  std::unordered_map<uint64_t, Distance> known_;
  uint64_t unreadable_ = 0;
};

// |x - y| as far as Max, Min, Mean and Norm tell: a lower bound of the distance.
// max(|Δnorm|, |Δmean| sqrt(n), |Δmax|, |Δmin|).
double StatisticsDistance(const Leaf& x, const Leaf& y);

}  // namespace msprobe::culprit
