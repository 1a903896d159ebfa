#include "app/tensor_diff.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "compare/pair_reader.h"
#include "kernels/load.h"

namespace msprobe::app {
namespace {

using compare::TensorSource;

constexpr int64_t kMostIndexes = 65'536;  // of an axis that is told apart
constexpr size_t kPiece = 64 * 1024;      // elements

// The axes that are told apart, and where in them an element lies.
class AxisSums {
 public:
  explicit AxisSums(const Shape& shape) : shape_(shape), sums_(shape.size()) {
    for (size_t a = 0; a < shape.size(); ++a) {
      if (shape[a] > 1 && shape[a] <= kMostIndexes) {
        sums_[a].assign(static_cast<size_t>(shape[a]), 0.0);
      }
    }
  }
  void Add(int64_t index, double squared) {
    for (size_t a = shape_.size(); a-- > 0;) {
      const int64_t at = index % shape_[a];
      index /= shape_[a];
      if (!sums_[a].empty()) sums_[a][static_cast<size_t>(at)] += squared;
    }
  }
  std::vector<std::vector<double>> Shares(double total) && {
    for (std::vector<double>& axis : sums_) {
      for (double& s : axis) s = total > 0 ? s / total : 0;
    }
    return std::move(sums_);
  }

 private:
  const Shape& shape_;
  std::vector<std::vector<double>> sums_;
};

// One pass over pairs of elements.
class Tally {
 public:
  Tally(TensorDiff& out, const DiffLimits& limits) : out_(out), limits_(limits), axes_(out.shape) {}

  void Add(int64_t index, double t, double g) { Add(index, t, g, t - g, t * g, t - g); }

  void AddComplex(int64_t index, const double* a, const double* b) {
    const double t = std::hypot(a[0], a[1]), g = std::hypot(b[0], b[1]);
    Add(index, t, g, std::hypot(a[0] - b[0], a[1] - b[1]), a[0] * b[0] + a[1] * b[1], 0);
  }

  void Finish() {
    out_.relative_l2 = squared_ == 0 ? 0
                                     : (golden_ > 0 ? std::sqrt(squared_ / golden_)
                                                    : std::numeric_limits<double>::infinity());
    out_.cosine = product_ / std::sqrt(golden_) / std::sqrt(target_);
    out_.bias = pairs_ > 0 ? sum_ / static_cast<double>(pairs_) : 0;
    std::sort(out_.worst.begin(), out_.worst.end(), Worse);
    out_.shares = std::move(axes_).Shares(counted_);
  }

 private:
  // `d`: the difference; `product`, `signed_d`: what it adds to the inner product and to the bias.
  void Add(int64_t index, double t, double g, double d, double product, double signed_d) {
    const bool finite = std::isfinite(t) && std::isfinite(g);
    if (!finite) {
      if (t == g || (std::isnan(t) && std::isnan(g))) return;
      ++out_.class_differs;
      return Keep({index, t, g, std::numeric_limits<double>::infinity()});
    }
    ++pairs_;
    squared_ += d * d;
    golden_ += g * g;
    target_ += t * t;
    product_ += product;
    sum_ += signed_d;
    if (std::abs(d) <= limits_.above) return;
    axes_.Add(index, d * d);
    counted_ += d * d;
    ++out_.decades[static_cast<int>(std::floor(std::log10(std::abs(d))))];
    Keep({index, t, g, std::abs(d)});
  }

  static bool Worse(const DiffPlace& a, const DiffPlace& b) {
    return a.difference != b.difference ? a.difference > b.difference : a.index < b.index;
  }
  void Keep(const DiffPlace& place) {
    ++out_.different;
    if (out_.first.size() < limits_.first) out_.first.push_back(place);
    // A heap whose front is the least of the worst.
    std::vector<DiffPlace>& heap = out_.worst;
    if (heap.size() < limits_.first) {
      heap.push_back(place);
      std::push_heap(heap.begin(), heap.end(), Worse);
    } else if (!heap.empty() && Worse(place, heap.front())) {
      std::pop_heap(heap.begin(), heap.end(), Worse);
      heap.back() = place;
      std::push_heap(heap.begin(), heap.end(), Worse);
    }
  }

  TensorDiff& out_;
  const DiffLimits& limits_;
  AxisSums axes_;
  double squared_ = 0, counted_ = 0, golden_ = 0, target_ = 0, product_ = 0, sum_ = 0;
  int64_t pairs_ = 0;
};

// Elements of one side as doubles; complex ones as their parts.
Status Load(const TensorSource& source, int64_t first, size_t n, std::vector<std::byte>& bytes,
            std::vector<double>& out) {
  MSPROBE_ASSIGN(const std::byte* data, source.Read(first, static_cast<int64_t>(n), bytes));
  const DType dtype = source.tensor().dtype;
  if (IsComplex(dtype)) {
    out.resize(2 * n);
    kernels::LoadComplex(data, 1, n, dtype, out.data());
  } else {
    out.resize(n);
    kernels::LoadDoubles(data, 1, n, dtype, out.data());
  }
  return {};
}

}  // namespace

Result<TensorDiff> DiffTensors(const std::string& target, const std::string& golden,
                               const DiffLimits& limits) {
  MSPROBE_ASSIGN(TensorSource t, TensorSource::Open(target));
  MSPROBE_ASSIGN(TensorSource g, TensorSource::Open(golden));
  if (t.tensor().shape != g.tensor().shape) {
    return Error(ErrorCode::kMismatch,
                 fmt::format("has shape {}, the other file {}", ShapeText(t.tensor().shape),
                             ShapeText(g.tensor().shape)))
        .At(target)
        .Hint("only tensors of one shape have elements that belong together");
  }
  const bool complex = IsComplex(t.tensor().dtype);
  if (complex != IsComplex(g.tensor().dtype)) {
    return Error(ErrorCode::kMismatch, "is complex on one side only").At(target);
  }
  if (!t.streams()) MSPROBE_TRY(t.Load());
  if (!g.streams()) MSPROBE_TRY(g.Load());
  TensorDiff out;
  out.target_dtype = t.tensor().dtype;
  out.golden_dtype = g.tensor().dtype;
  out.shape = t.tensor().shape;
  out.elements = t.tensor().num_elements;
  Tally tally(out, limits);
  std::vector<std::byte> bytes;
  std::vector<double> a, b;
  for (int64_t first = 0; first < out.elements;) {
    const size_t n = std::min<size_t>(kPiece, static_cast<size_t>(out.elements - first));
    MSPROBE_TRY(Load(t, first, n, bytes, a));
    MSPROBE_TRY(Load(g, first, n, bytes, b));
    for (size_t i = 0; i < n; ++i) {
      const int64_t at = first + static_cast<int64_t>(i);
      if (complex) {
        tally.AddComplex(at, a.data() + 2 * i, b.data() + 2 * i);
      } else {
        tally.Add(at, a[i], b[i]);
      }
    }
    first += static_cast<int64_t>(n);
  }
  tally.Finish();
  return out;
}

std::string IndexText(int64_t index, const Shape& shape) {
  Shape at(shape.size());
  for (size_t a = shape.size(); a-- > 0;) {
    at[a] = index % shape[a];
    index /= shape[a];
  }
  return ShapeText(at);
}

int SharpestAxis(const TensorDiff& diff) {
  int best = -1;
  double sharpest = 0;
  for (size_t a = 0; a < diff.shares.size(); ++a) {
    if (diff.shares[a].empty()) continue;
    const double most = *std::max_element(diff.shares[a].begin(), diff.shares[a].end());
    const double sharp = most * static_cast<double>(diff.shares[a].size());
    if (sharp > sharpest) {
      sharpest = sharp;
      best = static_cast<int>(a);
    }
  }
  return best;
}

}  // namespace msprobe::app
