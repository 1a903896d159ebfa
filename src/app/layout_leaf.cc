#include "app/layout_leaf.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "compare/pair_reader.h"
#include "formats/tensor_file.h"

namespace msprobe::app {
namespace {

using config::Held;

// The axis counted from the first one; nullopt when there is none.
std::optional<size_t> AxisOf(int64_t axis, size_t rank) {
  const auto n = static_cast<int64_t>(rank);
  const int64_t k = axis < 0 ? axis + n : axis;
  if (k < 0 || k >= n) return std::nullopt;
  return static_cast<size_t>(k);
}

bool SameShapes(const std::vector<const Shape*>& shapes) {
  return std::all_of(shapes.begin(), shapes.end(),
                     [&](const Shape* s) { return *s == *shapes.front(); });
}

// The shape of parts side by side along `axis`.
std::optional<Shape> Joined(const std::vector<const Shape*>& shapes, size_t axis) {
  Shape out = *shapes.front();
  out[axis] = 0;
  for (const Shape* s : shapes) {
    if (s->size() != out.size()) return std::nullopt;
    for (size_t k = 0; k < out.size(); ++k) {
      if (k != axis && (*s)[k] != out[k]) return std::nullopt;
    }
    out[axis] += (*s)[axis];
  }
  return out;
}

template <class T>
std::vector<const Shape*> ShapesOf(const std::vector<T>& parts) {
  std::vector<const Shape*> out;
  for (const T& p : parts) out.push_back(&p.shape);
  return out;
}

using Figure = std::optional<double> Recorded::*;

// nullopt unless all parts have the figure.
template <class Fold>
std::optional<double> Folded(const std::vector<Recorded>& parts, Figure figure, Fold fold) {
  std::optional<double> out;
  for (const Recorded& p : parts) {
    if (!(p.*figure)) return std::nullopt;
    out = out ? fold(*out, *(p.*figure)) : *(p.*figure);
  }
  return out;
}

double Elementwise(const Recorded& r) {
  return static_cast<double>(NumElements(r.shape).value_or(0));
}

}  // namespace

std::optional<Recorded> JoinRecorded(const std::vector<Recorded>& parts, const Held& held) {
  if (parts.size() == 1) return parts.front();
  const std::vector<const Shape*> shapes = ShapesOf(parts);
  Recorded out = parts.front();
  if (held.how == Held::How::kSame) return SameShapes(shapes) ? std::optional(out) : std::nullopt;
  if (held.how == Held::How::kSum) {
    if (!SameShapes(shapes)) return std::nullopt;
    out.mean = Folded(parts, &Recorded::mean, [](double a, double b) { return a + b; });
    out.max = out.min = out.norm = std::nullopt;
    return out;
  }
  const auto axis = AxisOf(held.axis, out.shape.size());
  if (!axis) return std::nullopt;
  const std::optional<Shape> shape = Joined(shapes, *axis);
  if (!shape) return std::nullopt;
  out.shape = *shape;
  // NaN is worse than any number.
  const auto worst = [](double a, double b, bool larger) {
    if (std::isnan(a) || std::isnan(b)) return std::numeric_limits<double>::quiet_NaN();
    return larger ? std::max(a, b) : std::min(a, b);
  };
  out.max = Folded(parts, &Recorded::max, [&](double a, double b) { return worst(a, b, true); });
  out.min = Folded(parts, &Recorded::min, [&](double a, double b) { return worst(a, b, false); });
  out.norm = Folded(parts, &Recorded::norm, [](double a, double b) { return std::hypot(a, b); });
  double sum = 0, count = 0;
  for (const Recorded& p : parts) {
    const double n = Elementwise(p);
    if (!p.mean && n > 0) {
      out.mean = std::nullopt;
      return out;
    }
    if (n > 0) sum += *p.mean * n;
    count += n;
  }
  out.mean = count > 0 ? std::optional(sum / count) : std::nullopt;
  return out;
}

double RecordedDistance(const Recorded& a, const Recorded& b) {
  if (a.shape != b.shape) return HUGE_VAL;
  double worst = -1;
  for (const Figure figure : {&Recorded::max, &Recorded::min, &Recorded::mean, &Recorded::norm}) {
    if (!(a.*figure) || !(b.*figure)) continue;
    const double x = *(a.*figure), y = *(b.*figure);
    double d = 0;
    if (std::isfinite(x) && std::isfinite(y)) {
      const double scale = std::abs(x) + std::abs(y);
      // A mean near nothing says nothing beside a norm that is large.
      const double room = figure == &Recorded::mean && a.norm && std::isfinite(*a.norm)
                              ? *a.norm / std::sqrt(std::max(Elementwise(a), 1.0))
                              : 0;
      d = scale + room > 0 ? std::abs(x - y) / (scale + room) : 0;
    } else if (!(x == y) && !(std::isnan(x) && std::isnan(y))) {
      d = 1;
    }
    worst = std::max(worst, d);
  }
  return worst < 0 ? 1 : worst;
}

std::vector<Held> Candidates(const std::vector<Recorded>& parts) {
  std::vector<Held> out;
  if (parts.size() == 1) return {{Held::How::kSame, 0}};
  const std::vector<const Shape*> shapes = ShapesOf(parts);
  const bool same = SameShapes(shapes);
  if (same) out.push_back({Held::How::kSame, 0});
  for (size_t k = 0; k < shapes.front()->size(); ++k) {
    if (Joined(shapes, k)) out.push_back({Held::How::kAxis, static_cast<int64_t>(k)});
  }
  if (same) out.push_back({Held::How::kSum, 0});
  return out;
}

Result<Elements> ReadElements(const std::string& path) {
  MSPROBE_ASSIGN(const formats::TensorFile file, formats::TensorFile::Open(path));
  MSPROBE_ASSIGN(const formats::StoredTensor tensor, formats::SingleTensor(file));
  Elements out;
  out.dtype = tensor.dtype;
  out.shape = tensor.shape;
  out.bytes.resize(static_cast<size_t>(tensor.num_elements) * ItemSize(tensor.dtype));
  MSPROBE_TRY(file.ReadAll(tensor, out.bytes.data()));
  return out;
}

namespace {

Result<Elements> AddUp(std::vector<Elements> parts) {
  const DType from = parts.front().dtype;
  if (IsComplex(from)) return Error(ErrorCode::kUnsupported, "sums of complex parts");
  Elements out;
  out.dtype = from == DType::kF64 ? from : DType::kF32;
  out.shape = parts.front().shape;
  const size_t n = parts.front().bytes.size() / ItemSize(from);
  out.bytes.resize(n * ItemSize(out.dtype));
  for (size_t i = 0; i < n; ++i) {
    double sum = 0;
    for (const Elements& p : parts) sum += compare::ElementAt(p.bytes.data(), from, i, false);
    if (out.dtype == DType::kF64) {
      std::memcpy(out.bytes.data() + i * sizeof sum, &sum, sizeof sum);
    } else {
      const auto narrow = static_cast<float>(sum);
      std::memcpy(out.bytes.data() + i * sizeof narrow, &narrow, sizeof narrow);
    }
  }
  return out;
}

}  // namespace

double ElementDistance(const Elements& a, const Elements& b) {
  if (a.shape != b.shape || IsComplex(a.dtype) != IsComplex(b.dtype)) return HUGE_VAL;
  const size_t n = b.bytes.size() / ItemSize(b.dtype);
  double difference = 0, norm = 0;
  for (size_t i = 0; i < n; ++i) {
    const double x = compare::ElementAt(a.bytes.data(), a.dtype, i, false);
    const double y = compare::ElementAt(b.bytes.data(), b.dtype, i, false);
    if (std::isfinite(x) != std::isfinite(y)) return HUGE_VAL;
    if (!std::isfinite(x)) continue;
    difference += (x - y) * (x - y);
    norm += y * y;
  }
  if (difference == 0) return 0;
  return norm > 0 ? std::sqrt(difference / norm) : HUGE_VAL;
}

namespace {

bool Any(const std::vector<Held>& held, Held::How how) {
  return std::any_of(held.begin(), held.end(), [&](const Held& h) { return h.how == how; });
}

void WriteNumber(json::Writer& w, const std::optional<double>& value) {
  if (value) {
    w.Double(*value);
  } else {
    w.Null();
  }
}

}  // namespace

void WriteJoined(json::Writer& w, const json::Value& part, const Recorded& whole,
                 const std::string& file, const std::vector<Held>& held) {
  const bool cut = Any(held, Held::How::kAxis), sum = Any(held, Held::How::kSum);
  w.StartObject();
  for (const auto* m = part.members_begin(); m != part.members_end(); ++m) {
    const std::string_view key = m->key;
    if (key == "dtype") {
      // Sums of narrow types are kept wider.
      const bool wider =
          sum && !file.empty() && m->value.is_string() && m->value.as_string() != "torch.float64";
      w.Key(key);
      if (wider) {
        w.String("torch.float32");
      } else {
        w.Copy(m->value);
      }
    } else if (key == "data_name") {
      if (!file.empty()) w.Key(key).String(file);
    } else if (key == "shape") {
      w.Key(key).StartArray();
      for (const int64_t n : whole.shape) w.Int(n);
      w.EndArray();
    } else if (key == "type" || key == "requires_grad" || !(cut || sum)) {
      w.Key(key).Copy(m->value);
    } else if (key == "Max") {
      WriteNumber(w.Key(key), whole.max);
    } else if (key == "Min") {
      WriteNumber(w.Key(key), whole.min);
    } else if (key == "Mean") {
      WriteNumber(w.Key(key), whole.mean);
    } else if (key == "Norm") {
      WriteNumber(w.Key(key), whole.norm);
    }
  }
  w.EndObject();
}

Result<Elements> JoinElements(std::vector<Elements> parts, const Held& held) {
  if (parts.size() == 1 || held.how == Held::How::kSame) return std::move(parts.front());
  for (const Elements& p : parts) {
    if (p.dtype != parts.front().dtype) {
      return Error(ErrorCode::kMismatch, "parts of different types");
    }
  }
  const std::vector<const Shape*> shapes = ShapesOf(parts);
  const Error misfit(ErrorCode::kMismatch, "parts whose shapes do not fit");
  if (held.how == Held::How::kSum) {
    return SameShapes(shapes) ? AddUp(std::move(parts)) : Result<Elements>(misfit);
  }
  const auto axis = AxisOf(held.axis, parts.front().shape.size());
  const auto shape = axis ? Joined(shapes, *axis) : std::nullopt;
  if (!shape) return misfit;
  Elements out;
  out.dtype = parts.front().dtype;
  out.shape = *shape;
  // Behind the axis lie whole runs of each part; before it they take turns.
  size_t turns = 1;
  for (size_t k = 0; k < *axis; ++k) turns *= static_cast<size_t>((*shape)[k]);
  for (size_t t = 0; t < turns; ++t) {
    for (const Elements& p : parts) {
      const size_t run = p.bytes.size() / turns;
      const auto at = p.bytes.begin() + static_cast<ptrdiff_t>(t * run);
      out.bytes.insert(out.bytes.end(), at, at + static_cast<ptrdiff_t>(run));
    }
  }
  return out;
}

}  // namespace msprobe::app
