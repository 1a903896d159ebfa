// What a dump records of a tensor: Max, Min, Mean, Norm, with the policy for kinds and special
// values.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <variant>

#include "kernels/stats.h"
#include "tensor/view.h"

namespace msprobe::metrics {

// A number as dump.json carries it. monostate: null.
using Number = std::variant<std::monostate, bool, int64_t, uint64_t, double>;

// dump.md 12 with B4, B15 and decisions.md 22. Max/Min exact in the tensor's type (bool for bool,
// integers as integers, floats as their double value); Mean and Norm from double sums, IEEE over
// non-finite values (NaN anywhere: all four NaN for floats). Complex: of magnitudes. Empty: four
// nulls. Integers: mean and norm as double; bool: mean and norm null as upstream. Rank 0: Norm is
// |x| (B15).
struct TensorStats {
  Number max, min, mean, norm;
  uint64_t nan = 0, inf = 0;      // counts
  Number finite_max, finite_min;  // set only when nan + inf > 0 and something is finite
};

TensorStats StatsOf(const TensorView& view);

// What else is to be known of the elements: called with contiguous pieces of at most kPieceBytes
// that together are the view in row-major order.
using PieceFn = std::function<void(const std::byte* data, size_t n)>;
inline constexpr size_t kPieceBytes = 64 << 10;  // what a second reader finds in cache

// Calls fn for the pieces of the view.
void ForEachPiece(const TensorView& view, const PieceFn& fn);

// StatsOf, with `also` called for each piece right before its statistics are taken: of contiguous
// memory, and of a strided view, every page is fetched once for both. Twice: a block whose
// dimensions are permuted (the statistics go by memory, the pieces by rows), and float64 or
// complex128 whose squares leave double's range (scaled sums).
TensorStats StatsOf(const TensorView& view, const PieceFn& also);

// The same from kernels' parts, for callers that have merged statistics of a tensor's pieces
// (shards, chunks).
TensorStats StatsOfFloats(const kernels::FloatStats& s, bool rank_zero);
TensorStats StatsOfIntegers(const kernels::IntStats& s);

// CRC-32 of the bytes in row-major order (dump.md 13), xor of 64-bit words, hash64; any strides.
uint32_t Crc32Of(const TensorView& view);
uint64_t Xor64Of(const TensorView& view);
uint64_t Hash64Of(const TensorView& view);

}  // namespace msprobe::metrics
