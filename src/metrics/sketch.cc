#include "metrics/sketch.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cassert>
#include <cmath>
#include <cstring>
#include <iterator>

#include "base/base64.h"
#include "base/checked.h"
#include "kernels/checksum.h"
#include "kernels/sketch.h"
#include "metrics/tensor_stats.h"

namespace msprobe::metrics {
namespace {

static_assert(std::endian::native == std::endian::little, "slots are written as they lie");

constexpr double kErrorBarAt256 = 0.09;
constexpr std::string_view kDataPrefix = "f32:";

Error Bad(std::string key, std::string message) {
  return Error(ErrorCode::kMalformed, std::move(message)).Key("sketch." + std::move(key));
}

// The elements of a shard in row-major order are runs of consecutive elements of the whole: all
// dimensions that the shard has in full, and the one before them.
class ShardRuns {
 public:
  ShardRuns(std::span<const int64_t> shape, const ShardPlace& place)
      : shape_(shape), place_(place) {
    outer_ = shape.size();
    while (outer_ > 0) {
      --outer_;
      length_ *= static_cast<uint64_t>(shape[outer_]);
      if (shape[outer_] != place.whole[outer_]) break;
    }
  }
  uint64_t length() const { return length_; }
  // Index in the whole of the first element of run number `run`.
  uint64_t Start(uint64_t run) const {
    uint64_t start = 0, step = 1;
    for (size_t d = shape_.size(); d-- > 0;) {
      uint64_t index = static_cast<uint64_t>(place_.start[d]);
      if (d < outer_) {
        index += run % static_cast<uint64_t>(shape_[d]);
        run /= static_cast<uint64_t>(shape_[d]);
      }
      start += index * step;
      step *= static_cast<uint64_t>(place_.whole[d]);
    }
    return start;
  }

 private:
  std::span<const int64_t> shape_;
  const ShardPlace& place_;
  size_t outer_ = 0;
  uint64_t length_ = 1;
};

// ---- reading

// A list of as many integers as the tensor has dimensions.
Result<std::vector<int64_t>> Extents(const json::Value& list, const char* key) {
  if (!list.is_array()) return Bad(key, "the value is no list");
  std::vector<int64_t> out;
  for (const json::Value& item : list) {
    if (!item.is_int() || item.as_int() < 0) return Bad(key, "an element is no extent");
    out.push_back(item.as_int());
  }
  return out;
}

Status ReadSetting(const json::Value& object, SketchSetting& out) {
  const json::Value* const k = object.Find("k");
  if (k == nullptr || !k->is_int() || k->as_int() < kLeastSketchSize ||
      k->as_int() > kMostSketchSize || k->as_int() % kLeastSketchSize != 0) {
    return Bad("k", fmt::format("the value is no multiple of {} from {} to {}", kLeastSketchSize,
                                kLeastSketchSize, kMostSketchSize));
  }
  const json::Value* const seed = object.Find("seed");
  if (seed == nullptr || !seed->is_int() || seed->as_int() < 0) {
    return Bad("seed", "the value is no integer from 0 to 2^63 - 1");
  }
  out = {static_cast<uint32_t>(k->as_int()), static_cast<uint64_t>(seed->as_int())};
  return {};
}

Status ReadPlace(const json::Value& object, std::span<const int64_t> shape, int64_t parts,
                 Sketch& out) {
  const json::Value* const start = object.Find("start");
  const json::Value* const whole = object.Find("whole");
  if (start == nullptr && whole == nullptr) return {};
  if (start == nullptr) return Bad("start", "\"whole\" stands without it");
  if (whole == nullptr) return Bad("whole", "\"start\" stands without it");
  ShardPlace place;
  MSPROBE_ASSIGN(place.start, Extents(*start, "start"));
  MSPROBE_ASSIGN(place.whole, Extents(*whole, "whole"));
  if (place.start.size() != shape.size() || place.whole.size() != shape.size()) {
    return Bad("start", "another number of dimensions than the tensor");
  }
  for (size_t d = 0; d < shape.size(); ++d) {
    if (place.start[d] > place.whole[d] - shape[d]) {
      return Bad("start", fmt::format("the shard ends beyond the whole in dimension {}", d));
    }
  }
  const std::optional<int64_t> count = NumElements(place.whole);
  const std::optional<int64_t> elements = count ? CheckedMul(*count, parts) : count;
  if (!elements) return Bad("whole", "the extents have no product");
  out.elements = *elements;
  out.shard = std::move(place);
  return {};
}

Status ReadCounts(const json::Value& object, Sketch& out) {
  const auto elements = static_cast<uint64_t>(out.covered);
  for (const auto& [key, count] :
       {std::pair("nan", &out.nan), std::pair("inf", &out.inf), std::pair("huge", &out.huge)}) {
    const json::Value* const value = object.Find(key);
    if (value == nullptr) continue;
    if (!value->is_int() || value->as_int() < 0 ||
        static_cast<uint64_t>(value->as_int()) > elements) {
      return Bad(key, "the value is no number of elements of the tensor");
    }
    *count = static_cast<uint64_t>(value->as_int());
  }
  if (out.nan > elements - out.inf || out.nan + out.inf > elements - out.huge) {
    return Bad("nan", "more elements are left out than the tensor has");
  }
  return {};
}

size_t Stored(const Sketch& sketch) {
  return static_cast<size_t>(std::min<int64_t>(sketch.elements, sketch.setting.k));
}

Status ReadValues(const json::Value& object, Sketch& out) {
  const json::Value* const data = object.Find("data");
  if (data == nullptr || !data->is_string()) return Bad("data", "the value is no text");
  std::string_view text = data->as_string();
  if (!text.starts_with(kDataPrefix)) {
    return Bad("data", fmt::format("the text does not begin with {}", kDataPrefix));
  }
  text.remove_prefix(kDataPrefix.size());
  const size_t stored = Stored(out), bytes = stored * sizeof(float);
  if (text.size() != (bytes + 2) / 3 * 4) {
    return Bad("data", fmt::format("{} characters where {} values are {}", text.size(), stored,
                                   (bytes + 2) / 3 * 4));
  }
  const std::optional<std::vector<std::byte>> decoded = DecodeBase64(text);
  if (!decoded || decoded->size() != bytes) return Bad("data", "the text is no base64");
  const uint32_t k = out.setting.k;
  out.values.assign(k, 0);
  uint32_t slot = kernels::FirstSlot(k, out.setting.seed);
  for (size_t i = 0; i < stored; ++i, slot = slot + 1 == k ? 0 : slot + 1) {
    float value = 0;
    std::memcpy(&value, decoded->data() + i * sizeof(float), sizeof(float));
    if (!std::isfinite(value)) return Bad("data", fmt::format("value {} is not finite", i));
    out.values[slot] = value;
  }
  return {};
}

// ---- distances

bool Usable(double norm, const Sketch& sketch) {
  return norm >= 0 && std::isfinite(norm) && sketch.left_out() == 0;
}

double DifferenceNorm(const Sketch& x, const Sketch& y) {
  double largest = 0;
  for (size_t j = 0; j < x.values.size(); ++j) {
    largest = std::max(largest, std::fabs(x.values[j] - y.values[j]));
  }
  if (largest == 0) return 0;
  double sum = 0;
  for (size_t j = 0; j < x.values.size(); ++j) {
    const double scaled = (x.values[j] - y.values[j]) / largest;
    sum += scaled * scaled;
  }
  return largest * std::sqrt(sum);
}

Status CheckSame(const Sketch& x, const Sketch& y) {
  const auto mismatch = [](const char* what, auto a, auto b) {
    return Error(ErrorCode::kMismatch, fmt::format("the sketches have {}: {} and {}", what, a, b));
  };
  if (x.setting.k != y.setting.k) return mismatch("another size k", x.setting.k, y.setting.k);
  if (x.setting.seed != y.setting.seed)
    return mismatch("another seed", x.setting.seed, y.setting.seed);
  if (x.elements != y.elements)
    return mismatch("another number of elements", x.elements, y.elements);
  return {};
}

// The distance below which float32 slots tell nothing: rounding relative to the norms, and the
// spacing of subnormal slots.
double Resolution(const Sketch& x, double norm) {
  return std::max(SketchDistance::kFloor * norm,
                  0x1p-149 * std::sqrt(static_cast<double>(x.setting.k)));
}

}  // namespace

double Sketch::Norm() const {
  Sketch zero;
  zero.values.resize(values.size());
  return DifferenceNorm(*this, zero);
}

double Sketch::ErrorBar() const {
  if (elements <= static_cast<int64_t>(setting.k)) return 0;
  return kErrorBarAt256 * std::sqrt(256.0 / setting.k);
}

SketchSums::SketchSums(DType dtype, const SketchSetting& setting)
    : setting_(setting),
      parts_(IsComplex(dtype) ? 2 : 1),
      dtype_(RealOf(dtype)),
      sums_(2 * size_t{setting.k}) {}

void SketchSums::Add(const std::byte* data, size_t n, uint64_t first) {
  kernels::AddToSketch(data, n * parts_, dtype_, first * parts_, setting_.k, setting_.seed,
                       sums_.data(), &left_out_);
}

Sketch SketchSums::Finish(int64_t elements, int64_t covered) && {
  kernels::FoldSketch(setting_.k, sums_.data());
  sums_.resize(setting_.k);
  Sketch out;
  out.setting = setting_;
  out.values = std::move(sums_);
  out.elements = elements * static_cast<int64_t>(parts_);
  out.covered = covered * static_cast<int64_t>(parts_);
  out.nan = left_out_.nan;
  out.inf = left_out_.inf;
  out.huge = left_out_.huge;
  return out;
}

Sketch SketchOf(const TensorView& view, const SketchSetting& setting, const ShardPlace* shard) {
  if (shard == nullptr) return SketchOf(view, setting, static_cast<uint64_t*>(nullptr));
  assert(shard->start.size() == view.shape.size() && shard->whole.size() == view.shape.size());
  SketchSums sums(view.dtype, setting);
  const ShardRuns runs(view.shape, *shard);
  const size_t item = ItemSize(view.dtype);
  uint64_t local = 0;
  ForEachBlock(view, [&](const std::byte* data, size_t n) {
    while (n > 0) {
      const uint64_t inside = local % runs.length();
      const size_t part = std::min<size_t>(n, runs.length() - inside);
      sums.Add(data, part, runs.Start(local / runs.length()) + inside);
      data += part * item;
      local += part;
      n -= part;
    }
  });
  Sketch out = std::move(sums).Finish(NumElements(shard->whole).value_or(0), view.num_elements());
  out.shard = *shard;
  return out;
}

Sketch SketchOf(const TensorView& view, const SketchSetting& setting, uint64_t* hash64) {
  SketchSums sums(view.dtype, setting);
  const size_t item = ItemSize(view.dtype);
  uint64_t first = 0, hash = 0;
  ForEachPiece(view, [&](const std::byte* data, size_t n) {
    // The hash first: it is the slower, and hides the reading of memory.
    if (hash64 != nullptr) hash += kernels::Hash64(data, n, item, first);
    sums.Add(data, n, first);
    first += n;
  });
  if (hash64 != nullptr) *hash64 = hash;
  const int64_t elements = view.num_elements();
  return std::move(sums).Finish(elements, elements);
}

void AppendSketch(std::string& out, const Sketch& sketch) {
  fmt::format_to(std::back_inserter(out), "{{\"k\": {}, \"seed\": {}, \"data\": \"{}",
                 sketch.setting.k, sketch.setting.seed, kDataPrefix);
  std::vector<float> slots(Stored(sketch));
  const uint32_t k = sketch.setting.k;
  uint32_t slot = kernels::FirstSlot(k, sketch.setting.seed);
  constexpr double kMost = std::numeric_limits<float>::max();
  for (float& value : slots) {
    value = static_cast<float>(std::clamp(sketch.values[slot], -kMost, kMost));
    slot = slot + 1 == k ? 0 : slot + 1;
  }
  AppendBase64(out, std::as_bytes(std::span(slots)));
  out += '"';
  if (sketch.shard) {
    const auto list = [&](const char* key, const std::vector<int64_t>& extents) {
      fmt::format_to(std::back_inserter(out), ", \"{}\": {}", key, ShapeText(extents));
    };
    list("start", sketch.shard->start);
    list("whole", sketch.shard->whole);
  }
  for (const auto& [key, count] : {std::pair("nan", sketch.nan), std::pair("inf", sketch.inf),
                                   std::pair("huge", sketch.huge)}) {
    if (count > 0) fmt::format_to(std::back_inserter(out), ", \"{}\": {}", key, count);
  }
  out += '}';
}

Result<std::optional<Sketch>> ReadSketch(const json::Value& leaf) {
  const json::Value* const object = leaf.Find("sketch");
  if (object == nullptr || object->is_null()) return std::optional<Sketch>();
  if (!object->is_object()) {
    return Error(ErrorCode::kMalformed, "the value is no object").Key("sketch");
  }
  const json::Value* const shape_value = leaf.Find("shape");
  const json::Value* const dtype_value = leaf.Find("dtype");
  const auto misfit = [](const char* key) {
    return Error(ErrorCode::kMalformed, "a sketch of a tensor whose record does not say this")
        .Key(key);
  };
  if (shape_value == nullptr || !shape_value->is_array()) return misfit("shape");
  Shape shape;
  for (const json::Value& extent : *shape_value) {
    if (!extent.is_int()) return misfit("shape");
    shape.push_back(extent.as_int());
  }
  const std::optional<int64_t> elements = NumElements(shape);
  if (!elements) return misfit("shape");
  const std::optional<DType> dtype = dtype_value != nullptr && dtype_value->is_string()
                                         ? DTypeFromTorchName(dtype_value->as_string())
                                         : std::nullopt;
  const int64_t parts = dtype && IsComplex(*dtype) ? 2 : 1;
  const std::optional<int64_t> values = CheckedMul(*elements, parts);
  if (!values) return misfit("shape");
  Sketch out;
  out.elements = out.covered = *values;
  MSPROBE_TRY(ReadSetting(*object, out.setting));
  MSPROBE_TRY(ReadPlace(*object, shape, parts, out));
  MSPROBE_TRY(ReadCounts(*object, out));
  MSPROBE_TRY(ReadValues(*object, out));
  return std::optional(std::move(out));
}

Status Add(const Sketch& part, Sketch& sum) {
  if (sum.values.empty()) {
    sum = part;
    sum.shard.reset();
    return {};
  }
  MSPROBE_TRY(CheckSame(part, sum));
  for (size_t j = 0; j < sum.values.size(); ++j) sum.values[j] += part.values[j];
  sum.covered = std::min(sum.elements - part.covered, sum.covered) + part.covered;
  sum.nan += part.nan;
  sum.inf += part.inf;
  sum.huge += part.huge;
  return {};
}

Result<SketchDistance> Distance(const Sketch& x, const Sketch& y, double norm_x, double norm_y) {
  MSPROBE_TRY(CheckSame(x, y));
  if (!x.whole() || !y.whole()) {
    return Error(ErrorCode::kMismatch, "a sketch is of a part of a tensor")
        .Hint("add the sketches of all shards first");
  }
  SketchDistance out;
  out.own_norms = !Usable(norm_x, x) || !Usable(norm_y, y);
  if (out.own_norms) {
    norm_x = x.Norm();
    norm_y = y.Norm();
  }
  const double bar = x.ErrorBar();
  out.distance = DifferenceNorm(x, y);
  out.distance_bar = bar * out.distance;
  out.below_floor = out.distance < Resolution(x, std::max(norm_x, norm_y));
  out.relative = out.distance == 0 ? 0 : norm_y > 0 ? out.distance / norm_y : NAN;
  // Norms of the sketches have errors of their own, independent of that of the distance.
  out.relative_bar = out.relative * (out.own_norms ? bar * std::sqrt(2.0) : bar);
  if (!(norm_x > 0 && norm_y > 0)) {
    out.cosine = out.cosine_bar = NAN;
    return out;
  }
  // (|x|^2 + |y|^2 - d^2) / 2|x||y|, without the cancellation; in ratios, which do not overflow.
  const double ratio = norm_x / norm_y, d = out.distance / norm_y;
  const double apart = d * d / ratio;
  out.cosine = std::clamp(1 - (apart - (ratio - 1) * (ratio - 1) / ratio) / 2, -1.0, 1.0);
  out.cosine_bar = std::min(2.0, bar * apart);
  return out;
}

}  // namespace msprobe::metrics
