#include "culprit/tensors.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/file.h"
#include "formats/tensor_file.h"
#include "metrics/pair_metrics.h"

namespace msprobe::culprit {
namespace {

void Finish(Distance& d, const Leaf& t, const Leaf& g) {
  if (!t.floating || !g.floating) {
    d.relative = d.equal ? 0 : 1;
  } else {
    d.relative = d.absolute == 0 ? 0 : d.norm > 0 ? d.absolute / d.norm : 1;
  }
  if (d.classes) d.relative = 1;
}

// Beyond it a number is a mask, not a value; sketches leave such elements out as well.
constexpr double kHuge = 1e30;

double LargestFinite(const Leaf& leaf) {
  const auto size = [](double v) { return std::isfinite(v) ? std::abs(v) : 0; };
  return std::max(size(leaf.max), size(leaf.min));
}

bool ClassesDiffer(const Leaf& t, const Leaf& g) {
  const auto count = [](int64_t n) { return n < 0 ? 0 : n; };
  if (count(t.nan) != count(g.nan) || count(t.inf) != count(g.inf)) return true;
  // Without numbers of their own NaN and infinity show in the extremes. A norm may overflow.
  const auto other = [](double a, double b) { return std::isfinite(a) != std::isfinite(b); };
  return other(t.max, g.max) || other(t.min, g.min);
}

// Statistics of tensors with masks in them. Minimum, mean and norm (or maximum, mean and norm) are
// the mask's; where they agree as many elements are masked on both sides, and the extreme at the
// other end is one of the values beside them: it bounds their distance and their size from below.
void BesideMasks(const Leaf& t, const Leaf& g, Distance& out) {
  constexpr double kSameMask = 1e-6;  // of sums in another order
  const auto tame = [](double v) { return std::abs(v) < kHuge; };
  const auto alike = [&](double a, double b) {
    return a == b || std::abs(a - b) <= kSameMask * std::max(std::abs(a), std::abs(b));
  };
  const bool above = tame(t.max) && tame(g.max);
  if (above == (tame(t.min) && tame(g.min))) return;
  const auto mask_of = [&](const Leaf& leaf) { return above ? leaf.min : leaf.max; };
  if (!alike(mask_of(t), mask_of(g)) || !alike(t.mean, g.mean) || !alike(t.norm, g.norm)) return;
  const double a = above ? t.max : t.min, b = above ? g.max : g.min;
  out.source = Source::kStatistics;
  out.absolute = std::abs(a - b);
  out.norm = std::max(std::abs(a), std::abs(b));
  Finish(out, t, g);
}

}  // namespace

Result<Tensor> ReadTensor(const Run& run, const Leaf& leaf) {
  if (leaf.data_name.empty()) return Error(ErrorCode::kNotFound, "no file was recorded");
  MSPROBE_ASSIGN(const std::string path, ResolveInside(run.folder, leaf.data_name));
  MSPROBE_ASSIGN(const formats::TensorFile file, formats::TensorFile::Open(path));
  MSPROBE_ASSIGN(const formats::StoredTensor stored, formats::SingleTensor(file));
  if (stored.shape != leaf.shape || TorchName(stored.dtype) != leaf.dtype) {
    return Error(ErrorCode::kMismatch, "the file holds another tensor than the record says")
        .At(path);
  }
  const uint64_t bytes = static_cast<uint64_t>(stored.num_elements) * ItemSize(stored.dtype);
  if (bytes > kMostBytes) return Error(ErrorCode::kTooLarge, "the tensor is too large").At(path);
  Tensor out;
  out.dtype = stored.dtype;
  out.shape = stored.shape;
  out.bytes.resize(bytes);
  MSPROBE_TRY(file.ReadAll(stored, out.bytes.data()));
  return out;
}

double StatisticsDistance(const Leaf& x, const Leaf& y) {
  double d = 0;
  const auto add = [&](double a, double b, double factor) {
    const double delta = std::abs(a - b) * factor;
    if (std::isfinite(delta)) d = std::max(d, delta);
  };
  add(x.norm, y.norm, 1);
  add(x.mean, y.mean, std::sqrt(static_cast<double>(x.elements)));
  add(x.max, y.max, 1);
  add(x.min, y.min, 1);
  return d;
}

Distance Distances::Cheap(const Leaf& t, const Leaf& g) const {
  Distance out;
  if (t.elements != g.elements) return out;
  if (t.has_key && g.has_key && t.key == g.key) {
    out.source = Source::kContent;
    out.equal = true;
    out.norm = std::isfinite(g.norm) ? g.norm : 0;
    return out;
  }
  if (FromSketch(t, g, out)) return out;
  if (std::isnan(t.max) || std::isnan(g.max)) {
    out.classes = ClassesDiffer(t, g);
    if (!out.classes && !(t.has_key && g.has_key)) return out;
    out.source = Source::kStatistics;
    out.relative = 1;
    return out;
  }
  out.classes = ClassesDiffer(t, g);
  const bool huge = LargestFinite(t) >= kHuge || LargestFinite(g) >= kHuge;
  if (huge && !out.classes) {
    BesideMasks(t, g, out);
    return out;
  }
  out.source = Source::kStatistics;
  out.absolute = StatisticsDistance(t, g);
  out.norm = std::max(std::isfinite(t.norm) ? t.norm : 0, std::isfinite(g.norm) ? g.norm : 0);
  // With infinite elements there is no norm: the finite ones are at least as large as their
  // largest.
  if (!std::isfinite(t.norm) || !std::isfinite(g.norm)) {
    out.norm = std::max({out.norm, LargestFinite(t), LargestFinite(g)});
  }
  out.equal = out.absolute == 0 && !(t.has_key && g.has_key);
  Finish(out, t, g);
  return out;
}

bool Distances::FromSketch(const Leaf& t, const Leaf& g, Distance& out) const {
  if (t.sketch == kNowhere || g.sketch == kNowhere) return false;
  const auto d =
      metrics::Distance(target_.sketches[t.sketch], golden_.sketches[g.sketch], t.norm, g.norm);
  if (!d.ok()) return false;
  out.source = Source::kSketch;
  const bool told = !std::isnan(t.max) && LargestFinite(t) < kHuge && LargestFinite(g) < kHuge;
  out.absolute = std::max(d->distance, told ? StatisticsDistance(t, g) : 0);
  const double nt = std::isfinite(t.norm) ? t.norm : target_.sketches[t.sketch].Norm();
  const double ng = std::isfinite(g.norm) ? g.norm : golden_.sketches[g.sketch].Norm();
  out.norm = std::max(nt, ng);
  out.classes = ClassesDiffer(t, g);
  Finish(out, t, g);
  return true;
}

bool Distances::FromElements(const Leaf& t, const Leaf& g, Distance& out) {
  if (t.data_name.empty() || g.data_name.empty()) return false;
  const Result<Tensor> a = ReadTensor(target_, t);
  const Result<Tensor> b = ReadTensor(golden_, g);
  if (!a.ok() || !b.ok()) {
    ++unreadable_;
    return false;
  }
  if (IsComplex(a->dtype) != IsComplex(b->dtype)) return false;
  const kernels::PairErrors e =
      metrics::PairErrorsOf(a->view(), b->view(), kernels::WorkType::kF64);
  out.source = Source::kElements;
  out.equal = e.unequal == 0 && e.class_mismatch == 0 && a->dtype == b->dtype;
  out.classes = e.class_mismatch > 0;
  out.absolute = e.scale * std::sqrt(e.diff_sumsq);
  out.norm = std::max(e.a_scale * std::sqrt(e.a_sumsq), e.b_scale * std::sqrt(e.b_sumsq));
  Finish(out, t, g);
  return true;
}

Distance Distances::Measure(const Leaf& t, const Leaf& g) {
  Distance out;
  if (t.elements != g.elements) return out;
  const bool same_content = t.has_key && g.has_key && t.key == g.key;
  if (!same_content && FromElements(t, g, out)) return out;
  return Cheap(t, g);
}

const Distance& Distances::Between(const Leaf& target, const Leaf& golden) {
  const auto a = static_cast<uint64_t>(&target - target_.leaves.data());
  const auto b = static_cast<uint64_t>(&golden - golden_.leaves.data());
  const uint64_t key = (a << 32) | b;
  const auto it = known_.find(key);
  if (it != known_.end()) return it->second;
  return known_.emplace(key, Measure(target, golden)).first->second;
}

}  // namespace msprobe::culprit
