// Sketches of tensors (culprit.md 5): k sums from which the distance of two tensors is estimated
// without either of them. A CountSketch with one hash (Charikar et al. 2002); its second moment is
// the tug-of-war estimator (Alon, Matias & Szegedy 1996): E |S(x) - S(y)|^2 = |x - y|^2. Linear:
// shards, micro-batches, partial sums and scaled copies add.
//
// In dump.json, as member "sketch" of a tensor leaf:
//
//     {"k": 256, "seed": 1, "data": "f32:<base64>", "start": [0, 8], "whole": [4, 16],
//      "nan": 2, "inf": 1, "huge": 3}
//
// `data`: in base64 (the prefix keeps a `+` from its beginning, which readers of the original
// refuse as an attempt on a spreadsheet), min(k, n) little-endian float32, the slots from that of
// element 0 on, round the end; n is the number of elements of the whole tensor (a complex element
// is two: real and imaginary part), so that a tensor of up to k elements is kept as it is, with
// signs. start and whole only for a shard: where it begins in the unsharded tensor, and the shape
// of that. nan, inf, huge: elements that count as zero (huge: finite, |x| >= 1e30); left out when
// 0.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "json/json.h"
#include "kernels/sketch.h"
#include "tensor/view.h"

namespace msprobe::metrics {

inline constexpr int64_t kLeastSketchSize = 64, kMostSketchSize = 4096;  // and a multiple of 64

struct SketchSetting {
  uint32_t k = 256;   // slots: a multiple of 64 from kLeastSketchSize to kMostSketchSize
  uint64_t seed = 1;  // at most 2^63 - 1
  bool operator==(const SketchSetting&) const = default;
};

// Where a shard lies in the unsharded tensor; both of the rank of the view.
struct ShardPlace {
  std::vector<int64_t> start, whole;
};

struct Sketch {
  SketchSetting setting;
  std::vector<double> values;       // k slots, slot 0 first; rounded to float32 in a dump
  int64_t elements = 0;             // of the whole tensor; complex elements are two
  int64_t covered = 0;              // of these, the ones that are in it: fewer for a shard
  std::optional<ShardPlace> shard;  // of what was read or measured; none after Add
  uint64_t nan = 0, inf = 0, huge = 0;

  bool whole() const { return covered == elements; }
  uint64_t left_out() const { return nan + inf + huge; }
  double Norm() const;  // estimate of |x|, within ErrorBar; exact for elements <= k
  // Half-width of the 95 % interval of a norm or distance, relative: 9 % at k = 256, as 1/sqrt(k);
  // 0 when elements <= k.
  double ErrorBar() const;
};

// Of any view, any strides, any dtype (integers by value, complex as two elements). `shard`, when
// given, has the rank of the view and lies inside its whole.
Sketch SketchOf(const TensorView& view, const SketchSetting& setting,
                const ShardPlace* shard = nullptr);

// The same, and hash64 (Hash64Of), reading the memory once.
Sketch SketchOf(const TensorView& view, const SketchSetting& setting, uint64_t* hash64);

// The same of elements that arrive in pieces, in row-major order.
class SketchSums {
 public:
  SketchSums(DType dtype, const SketchSetting& setting);
  // `first`: index in the whole of the first element.
  void Add(const std::byte* data, size_t n, uint64_t first);
  // `elements` of the whole, of which `covered` were added.
  Sketch Finish(int64_t elements, int64_t covered) &&;

 private:
  SketchSetting setting_;
  uint64_t parts_;  // of an element: 2 when complex
  DType dtype_;     // of a part
  std::vector<double> sums_;
  kernels::SketchLeftOut left_out_;
};

// Appends the JSON object above.
void AppendSketch(std::string& out, const Sketch& sketch);

// Reads the member "sketch" of a tensor leaf with its "dtype" and "shape". nullopt: the leaf has
// none. Errors: kMalformed with the key of the culprit (wrong kinds, k or seed out of range, data
// that is no base64 or of another length than k and the shape say, a value that is not finite, a
// place that does not fit the shape).
Result<std::optional<Sketch>> ReadSketch(const json::Value& leaf);

// sum += part, for shards in any order, partial sums and micro-batches. An empty `sum` (no values)
// becomes the part. kMismatch: another k, seed or number of elements of the whole. `covered` adds
// up, at most to `elements`.
Status Add(const Sketch& part, Sketch& sum);

// How far two tensors are apart, by their sketches.
struct SketchDistance {
  // Relative distances below this are not told from zero: float32 slots.
  static constexpr double kFloor = 1.5e-7;

  double distance = 0;      // |x - y|
  double distance_bar = 0;  // half-width of its 95 % interval
  double relative = 0;      // |x - y| / |y|; NaN when |y| is 0 and the distance is not; 0 / 0 is 0
  double relative_bar = 0;
  double cosine = 0;         // from the distance and both norms; NaN when a norm is 0
  double cosine_bar = 0;     // proportional to 1 - cosine
  bool below_floor = false;  // the relative distance is "< 1.5e-7"; equality is for hash64
  bool own_norms = false;    // a recorded norm could not be used: both are from the sketches
};

// norm_x, norm_y: the recorded norms. One that is negative, NaN or infinite, or that includes
// elements which the sketch leaves out, is replaced by that of the sketch. kMismatch: another k,
// seed or number of elements, or a sketch that is only a part. Elements that were left out are
// compared by their numbers, which is for the caller to do.
Result<SketchDistance> Distance(const Sketch& x, const Sketch& y,
                                double norm_x = std::numeric_limits<double>::quiet_NaN(),
                                double norm_y = std::numeric_limits<double>::quiet_NaN());

}  // namespace msprobe::metrics
