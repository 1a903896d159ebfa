#include "compare/pair_reader.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "metrics/pair_metrics.h"
#include "tensor/convert.h"

namespace msprobe::compare {
namespace {

// Both sides of a block stay in the second-level cache.
constexpr int64_t kBlockBytes = 256 << 10;

template <class T>
T Load(const std::byte* at) {
  T value;
  std::memcpy(&value, at, sizeof value);
  return value;
}

double RealAt(const std::byte* at, DType dtype) {
  switch (dtype) {
    case DType::kBool:
      return Load<uint8_t>(at) != 0 ? 1 : 0;
    case DType::kU8:
      return Load<uint8_t>(at);
    case DType::kI8:
      return Load<int8_t>(at);
    case DType::kU16:
      return Load<uint16_t>(at);
    case DType::kI16:
      return Load<int16_t>(at);
    case DType::kU32:
      return Load<uint32_t>(at);
    case DType::kI32:
      return Load<int32_t>(at);
    case DType::kU64:
      return static_cast<double>(Load<uint64_t>(at));
    case DType::kI64:
      return static_cast<double>(Load<int64_t>(at));
    case DType::kF16:
      return static_cast<double>(HalfToFloat(Load<uint16_t>(at)));
    case DType::kBF16:
      return static_cast<double>(BFloat16ToFloat(Load<uint16_t>(at)));
    case DType::kF32:
      return static_cast<double>(Load<float>(at));
    case DType::kF64:
      return Load<double>(at);
    case DType::kF8E4M3FN:
      return static_cast<double>(Float8E4M3FNToFloat(Load<uint8_t>(at)));
    case DType::kF8E4M3FNUZ:
      return static_cast<double>(Float8E4M3FNUZToFloat(Load<uint8_t>(at)));
    case DType::kF8E5M2:
      return static_cast<double>(Float8E5M2ToFloat(Load<uint8_t>(at)));
    case DType::kF8E5M2FNUZ:
      return static_cast<double>(Float8E5M2FNUZToFloat(Load<uint8_t>(at)));
    case DType::kF8E8M0FNU:
      return static_cast<double>(Float8E8M0FNUToFloat(Load<uint8_t>(at)));
    case DType::kC32:
    case DType::kC64:
    case DType::kC128:
      break;  // asked for by part
  }
  return 0;
}

// The kernel only counts elements of differing class; which kind they are decides between "not
// comparable" and "infinitely wrong", and such blocks are rare.
void Classify(const std::byte* a, DType a_dtype, const std::byte* b, DType b_dtype, size_t n,
              PairResult& result) {
  const int parts = IsComplex(a_dtype) ? 2 : 1;
  for (size_t i = 0; i < n; ++i) {
    for (int part = 0; part < parts; ++part) {
      const double x = ElementAt(a, a_dtype, i, part == 1);
      const double y = ElementAt(b, b_dtype, i, part == 1);
      if (std::isnan(x) != std::isnan(y) || std::isinf(x) != std::isinf(y)) {
        result.positions_differ = true;
        return;
      }
      if (std::isinf(x) && x != y) ++result.opposite;
    }
  }
}

}  // namespace

double ElementAt(const std::byte* data, DType dtype, size_t index, bool imaginary) {
  const size_t item = ItemSize(dtype);
  if (!IsComplex(dtype)) return imaginary ? 0 : RealAt(data + index * item, dtype);
  return RealAt(data + index * item + (imaginary ? item / 2 : 0), RealOf(dtype));
}

Result<TensorSource> TensorSource::Open(const std::string& path) {
  MSPROBE_ASSIGN(formats::TensorFile file, formats::TensorFile::Open(path));
  MSPROBE_ASSIGN(formats::StoredTensor tensor, formats::SingleTensor(file));
  return TensorSource(std::move(file), std::move(tensor));
}

uint64_t TensorSource::bytes() const {
  return static_cast<uint64_t>(tensor_.num_elements) * ItemSize(tensor_.dtype);
}

Status TensorSource::Load() {
  loaded_.resize(bytes());
  return file_.ReadAll(tensor_, loaded_.data());
}

Result<const std::byte*> TensorSource::Read(int64_t first, int64_t count,
                                            std::vector<std::byte>& buffer) const {
  const size_t item = ItemSize(tensor_.dtype);
  if (!loaded_.empty()) return loaded_.data() + static_cast<size_t>(first) * item;
  const size_t need = static_cast<size_t>(count) * item;
  if (buffer.size() < need) buffer.resize(need);
  MSPROBE_TRY(file_.ReadElements(tensor_, first, count, buffer.data()));
  return buffer.data();
}

Result<PairResult> ComparePiece(const TensorSource& target, const TensorSource& golden,
                                int64_t first, int64_t count) {
  const DType a_dtype = target.tensor().dtype, b_dtype = golden.tensor().dtype;
  const size_t item = std::max(ItemSize(a_dtype), ItemSize(b_dtype));
  const int64_t block = kBlockBytes / static_cast<int64_t>(item);
  const kernels::WorkType work = metrics::WorkTypeOf(a_dtype, b_dtype);
  thread_local std::vector<std::byte> a_buffer, b_buffer;
  PairResult result;
  for (int64_t done = 0; done < count;) {
    const int64_t n = std::min(block, count - done);
    MSPROBE_ASSIGN(const std::byte* a, target.Read(first + done, n, a_buffer));
    MSPROBE_ASSIGN(const std::byte* b, golden.Read(first + done, n, b_buffer));
    const auto size = static_cast<size_t>(n);
    const kernels::PairErrors part = kernels::PairErrorsOf(a, a_dtype, b, b_dtype, size, work);
    if (part.class_mismatch > 0) Classify(a, a_dtype, b, b_dtype, size, result);
    if (done == 0) {
      result.errors = part;
    } else {
      result.errors.Merge(part);
    }
    if (result.positions_differ) break;  // no metric will be shown
    done += n;
  }
  return result;
}

namespace {

PairPoint PointOf(const std::byte* a, DType a_dtype, const std::byte* b, DType b_dtype, size_t i) {
  const double x = ElementAt(a, a_dtype, i, false), y = ElementAt(b, b_dtype, i, false);
  if (!IsComplex(a_dtype)) return {std::fabs(x - y), std::fabs(y)};
  const double xi = ElementAt(a, a_dtype, i, true), yi = ElementAt(b, b_dtype, i, true);
  return {std::hypot(x - y, xi - yi), std::hypot(y, yi)};
}

}  // namespace

Result<PairPoint> PointAt(const TensorSource& target, const TensorSource& golden, int64_t index) {
  std::vector<std::byte> a_buffer, b_buffer;
  MSPROBE_ASSIGN(const std::byte* a, target.Read(index, 1, a_buffer));
  MSPROBE_ASSIGN(const std::byte* b, golden.Read(index, 1, b_buffer));
  return PointOf(a, target.tensor().dtype, b, golden.tensor().dtype, 0);
}

Result<PairPoint> FindWorst(const TensorSource& target, const TensorSource& golden, double scale,
                            double enough) {
  const DType a_dtype = target.tensor().dtype, b_dtype = golden.tensor().dtype;
  const size_t item = std::max(ItemSize(a_dtype), ItemSize(b_dtype));
  const int64_t block = kBlockBytes / static_cast<int64_t>(item);
  const int64_t count = target.tensor().num_elements;
  thread_local std::vector<std::byte> a_buffer, b_buffer;
  PairPoint worst;
  double largest = 0;
  for (int64_t first = 0; first < count && largest <= enough; first += block) {
    const int64_t n = std::min(block, count - first);
    MSPROBE_ASSIGN(const std::byte* a, target.Read(first, n, a_buffer));
    MSPROBE_ASSIGN(const std::byte* b, golden.Read(first, n, b_buffer));
    for (size_t i = 0; i < static_cast<size_t>(n) && largest <= enough; ++i) {
      const PairPoint p = PointOf(a, a_dtype, b, b_dtype, i);
      const double quotient = p.error / (p.value + scale);
      if (quotient > largest && std::isfinite(p.error)) {
        largest = quotient;
        worst = p;
      }
    }
  }
  return worst;
}

}  // namespace msprobe::compare
