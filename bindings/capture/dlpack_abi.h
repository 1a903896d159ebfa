// The part of the DLPack 1.x C ABI that reading a tensor needs: the exchange table that
// torch.Tensor offers as
// `__dlpack_c_exchange_api__` (a capsule named "dlpack_exchange_api"). Layouts and codes follow the
// published DLPack specification (github.com/dmlc/dlpack, include/dlpack/dlpack.h, version 1.3);
// functions that are not called are kept as untyped pointers.
#pragma once

#include <cstdint>

namespace msprobe::capture::dlpack {

inline constexpr uint32_t kMajorVersion = 1;
inline constexpr const char* kCapsuleName = "dlpack_exchange_api";

inline constexpr int32_t kDeviceCpu = 1;
inline constexpr int32_t kDeviceCudaHost = 3;   // pinned memory
inline constexpr int32_t kDeviceRocmHost = 11;  // pinned memory

enum TypeCode : uint8_t {
  kInt = 0,
  kUInt = 1,
  kFloat = 2,
  kBfloat = 4,
  kComplex = 5,
  kBool = 6,
  kFloat8E4M3FN = 10,
  kFloat8E4M3FNUZ = 11,
  kFloat8E5M2 = 12,
  kFloat8E5M2FNUZ = 13,
  kFloat8E8M0FNU = 14,
};

struct Device {
  int32_t type;
  int32_t id;
};

struct DataType {
  uint8_t code;
  uint8_t bits;
  uint16_t lanes;
};

struct Tensor {
  void* data;
  Device device;
  int32_t ndim;
  DataType dtype;
  int64_t* shape;
  int64_t* strides;  // in elements
  uint64_t byte_offset;
};

struct Version {
  uint32_t major;
  uint32_t minor;
};

struct ExchangeHeader {
  Version version;
  ExchangeHeader* older;
};

struct ExchangeApi {
  ExchangeHeader header;
  void* allocate;
  void* managed_from_object;
  void* managed_to_object;
  // Fills *out without taking a reference: valid until control returns to the owner. 0, or -1 with
  // a Python error set.
  int (*tensor_from_object)(void* object, Tensor* out);
  void* current_stream;
};

}  // namespace msprobe::capture::dlpack
