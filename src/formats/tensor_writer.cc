// .pt as torch.save writes one plain CPU tensor, and .npy as np.save does.
#include <fmt/format.h>

#include "archive/zip.h"
#include "base/checked.h"
#include "formats/contents.h"
#include "formats/npy_header.h"

namespace msprobe::formats {
namespace {

// Classes of the storages that have one; the other types are an untyped storage and a dtype
// (_rebuild_tensor_v3).
std::string_view StorageClass(DType dtype) {
  switch (dtype) {
    case DType::kBool:
      return "BoolStorage";
    case DType::kU8:
      return "ByteStorage";
    case DType::kI8:
      return "CharStorage";
    case DType::kI16:
      return "ShortStorage";
    case DType::kI32:
      return "IntStorage";
    case DType::kI64:
      return "LongStorage";
    case DType::kF16:
      return "HalfStorage";
    case DType::kBF16:
      return "BFloat16Storage";
    case DType::kF32:
      return "FloatStorage";
    case DType::kF64:
      return "DoubleStorage";
    case DType::kC64:
      return "ComplexFloatStorage";
    case DType::kC128:
      return "ComplexDoubleStorage";
    default:
      return {};
  }
}

// Protocol 2, as Python's pickle module writes it: every new string, tuple and global is remembered
// in the memo.
class Pickler {
 public:
  std::string Take() && { return std::move(out_) + '.'; }
  Pickler& Op(char opcode) {
    out_ += opcode;
    return *this;
  }
  Pickler& Remember() {
    out_ += 'q';
    out_ += static_cast<char>(memo_++);
    return *this;
  }
  Pickler& Global(std::string_view module, std::string_view name) {
    out_ += fmt::format("c{}\n{}\n", module, name);
    return Remember();
  }
  Pickler& Text(std::string_view text) {
    out_ += 'X';
    Number(static_cast<uint32_t>(text.size()));
    out_ += text;
    return Remember();
  }
  Pickler& Int(int64_t value) {  // >= 0
    if (value <= UINT8_MAX) {
      out_ += 'K';
      Number(static_cast<uint8_t>(value));
    } else if (value <= UINT16_MAX) {
      out_ += 'M';
      Number(static_cast<uint16_t>(value));
    } else if (value <= INT32_MAX) {
      out_ += 'J';
      Number(static_cast<int32_t>(value));
    } else {
      // LONG1: as few bytes as hold the number and its sign bit.
      uint8_t bytes = 0;
      while (bytes < 8 && (value >> (8 * bytes)) != 0) ++bytes;
      if (((value >> (8 * bytes - 1)) & 1) != 0) ++bytes;
      out_ += '\x8a';
      out_ += static_cast<char>(bytes);
      out_.append(reinterpret_cast<const char*>(&value), std::min<size_t>(bytes, sizeof(value)));
    }
    return *this;
  }
  Pickler& Tuple(std::span<const int64_t> values) {
    if (values.empty()) return Op(')');
    if (values.size() > 3) Op('(');
    for (const int64_t v : values) Int(v);
    Op(values.size() > 3 ? 't' : static_cast<char>('\x84' + static_cast<char>(values.size())));
    return Remember();
  }

 private:
  template <class T>
  void Number(T value) {
    out_.append(reinterpret_cast<const char*>(&value), sizeof(T));
  }
  std::string out_ = "\x80\x02";
  uint8_t memo_ = 0;
};

std::string TensorPickle(DType dtype, std::span<const int64_t> shape, bool requires_grad,
                         int64_t n) {
  const std::string_view type = StorageClass(dtype);
  const bool untyped = type.empty();
  Pickler p;
  p.Global("torch._utils", untyped ? "_rebuild_tensor_v3" : "_rebuild_tensor_v2");
  p.Op('(').Op('(').Text("storage");
  if (untyped) {
    p.Global("torch.storage", "UntypedStorage");
  } else {
    p.Global("torch", type);
  }
  p.Text("0").Text("cpu").Int(untyped ? n * static_cast<int64_t>(ItemSize(dtype)) : n);
  p.Op('t').Remember().Op('Q');
  p.Int(0).Tuple(shape).Tuple(TorchStrides(shape)).Op(requires_grad ? '\x88' : '\x89');
  p.Global("collections", "OrderedDict").Op(')').Op('R').Remember();
  if (untyped) p.Global("torch", ShortName(dtype));
  p.Op('t').Remember().Op('R').Remember();
  return std::move(p).Take();
}

Result<int64_t> CheckedElements(DType dtype, std::span<const int64_t> shape, Bytes data,
                                const std::string& path) {
  const auto n = NumElements(shape);
  const auto bytes = n ? CheckedMul(*n, static_cast<int64_t>(ItemSize(dtype))) : std::nullopt;
  if (!bytes || static_cast<uint64_t>(*bytes) != data.size()) {
    return Error(ErrorCode::kInvalidArgument,
                 fmt::format("{} bytes are no {} of shape {}", data.size(), TorchName(dtype),
                             ShapeText(shape)))
        .At(path);
  }
  return *n;
}

}  // namespace

Status WritePt(const std::string& path, DType dtype, std::span<const int64_t> shape,
               bool requires_grad, Bytes data) {
  MSPROBE_ASSIGN(const int64_t n, CheckedElements(dtype, shape, data, path));
  // torch.load cannot read back what torch.save writes for the types of _rebuild_tensor_v3 when
  // they require gradients ("a leaf Variable that requires grad is being used in an in-place
  // operation", torch 2.13).
  const bool grad = requires_grad && !IsExact(dtype) && !StorageClass(dtype).empty();
  MSPROBE_ASSIGN(AtomicFile out, AtomicFile::Create(path));
  archive::ZipWriter zip(out);
  MSPROBE_TRY(zip.Add("archive/data.pkl", AsBytes(TensorPickle(dtype, shape, grad, n))));
  MSPROBE_TRY(zip.Add("archive/byteorder", AsBytes("little")));
  MSPROBE_TRY(zip.Add("archive/data/0", data));
  MSPROBE_TRY(zip.Add("archive/version", AsBytes("3\n")));
  MSPROBE_TRY(zip.Finish());
  return out.Commit();
}

Status WriteNpy(const std::string& path, DType dtype, std::span<const int64_t> shape, Bytes data) {
  MSPROBE_TRY(CheckedElements(dtype, shape, data, path));
  const std::string_view descr = NpyDescr(dtype);
  if (descr.empty())
    return Error(ErrorCode::kUnsupported, fmt::format("NumPy has no {}", ShortName(dtype)))
        .At(path);
  std::string sizes;
  for (const int64_t extent : shape)
    sizes += fmt::format("{}{}", sizes.empty() ? "" : ", ", extent);
  if (shape.size() == 1) sizes += ',';
  std::string header =
      fmt::format("{{'descr': '{}', 'fortran_order': False, 'shape': ({}), }}", descr, sizes);
  // NumPy leaves room for 21 digits of the first extent, so that arrays can be appended to in
  // place.
  if (!shape.empty())
    header.append(21 - std::min<size_t>(21, fmt::formatted_size("{}", shape[0])), ' ');
  constexpr size_t kFixed = 10;
  header.append((64 - (kFixed + header.size() + 1) % 64) % 64, ' ');
  header += '\n';
  std::string start(kNpyMagic);
  start += '\x01';
  start += '\x00';
  start += static_cast<char>(header.size() & 0xFF);
  start += static_cast<char>(header.size() >> 8);
  MSPROBE_ASSIGN(AtomicFile out, AtomicFile::Create(path));
  MSPROBE_TRY(out.Write(start));
  MSPROBE_TRY(out.Write(header));
  MSPROBE_TRY(out.Write(AsText(data)));
  return out.Commit();
}

}  // namespace msprobe::formats
