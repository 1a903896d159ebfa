#include "precheck/random_fill.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "tensor/convert.h"

namespace msprobe::precheck {
namespace {

using Block = std::array<uint32_t, 4>;

Block Philox(uint64_t key, uint64_t counter) {
  constexpr uint64_t kMul0 = 0xD2511F53;
  constexpr uint64_t kMul1 = 0xCD9E8D57;
  constexpr uint32_t kWeyl0 = 0x9E3779B9;
  constexpr uint32_t kWeyl1 = 0xBB67AE85;
  Block x = {static_cast<uint32_t>(counter), static_cast<uint32_t>(counter >> 32), 0, 0};
  uint32_t k0 = static_cast<uint32_t>(key);
  uint32_t k1 = static_cast<uint32_t>(key >> 32);
  for (int round = 0; round < 10; ++round) {
    const uint64_t p0 = kMul0 * x[0];
    const uint64_t p1 = kMul1 * x[2];
    x = {static_cast<uint32_t>(p1 >> 32) ^ x[1] ^ k0, static_cast<uint32_t>(p1),
         static_cast<uint32_t>(p0 >> 32) ^ x[3] ^ k1, static_cast<uint32_t>(p0)};
    k0 += kWeyl0;
    k1 += kWeyl1;
  }
  return x;
}

uint64_t Low(const Block& x) { return x[0] | static_cast<uint64_t>(x[1]) << 32; }
uint64_t High(const Block& x) { return x[2] | static_cast<uint64_t>(x[3]) << 32; }

// Calls fn(i, word) for all words of a stream.
template <class Fn>
void ForEachWord(uint64_t key, uint64_t count, Fn fn) {
  for (uint64_t i = 0; i < count; i += 2) {
    const Block x = Philox(key, i / 2);
    fn(i, Low(x));
    if (i + 1 < count) fn(i + 1, High(x));
  }
}

template <class T, class Convert>
void Fill(uint64_t key, double low, double high, uint64_t count, std::byte* out, Convert convert) {
  ForEachWord(key, count, [&](uint64_t i, uint64_t word) {
    const double u = static_cast<double>(word >> 11) * 0x1p-53;
    const double v = std::clamp(low * (1 - u) + high * u, low, high);
    const T bits = convert(v);
    std::memcpy(out + i * sizeof(T), &bits, sizeof(T));
  });
}

// A step from 0 to span, both included.
uint64_t StepOf(uint64_t word, uint64_t span) {
  __extension__ typedef unsigned __int128 Wide;
  if (span == UINT64_MAX) return word;
  return static_cast<uint64_t>((Wide{word} * (Wide{span} + 1)) >> 64);
}

template <class T>
void FillWidth(uint64_t key, int64_t low, uint64_t span, uint64_t count, std::byte* out) {
  ForEachWord(key, count, [&](uint64_t i, uint64_t word) {
    const T value = static_cast<T>(static_cast<uint64_t>(low) + StepOf(word, span));
    std::memcpy(out + i * sizeof(T), &value, sizeof(T));
  });
}

}  // namespace

uint64_t StreamKey(uint64_t seed, std::string_view api, std::string_view path) {
  const uint64_t name = XXH3_64bits_withSeed(api.data(), api.size(), seed);
  return XXH3_64bits_withSeed(path.data(), path.size(), name);
}

uint64_t StreamWord(uint64_t key, uint64_t index) {
  const Block x = Philox(key, index / 2);
  return index % 2 == 0 ? Low(x) : High(x);
}

bool FillUniform(uint64_t key, DType dtype, double low, double high, uint64_t count,
                 std::byte* out) {
  const auto through_float = [](auto convert) {
    return [convert](double v) { return convert(static_cast<float>(v)); };
  };
  switch (dtype) {
    case DType::kF64:
      Fill<double>(key, low, high, count, out, [](double v) { return v; });
      return true;
    case DType::kF32:
      Fill<float>(key, low, high, count, out, [](double v) { return static_cast<float>(v); });
      return true;
    case DType::kC64:
      Fill<float>(key, low, high, 2 * count, out, [](double v) { return static_cast<float>(v); });
      return true;
    case DType::kC128:
      Fill<double>(key, low, high, 2 * count, out, [](double v) { return v; });
      return true;
    case DType::kF16:
      Fill<uint16_t>(key, low, high, count, out, through_float(FloatToHalf));
      return true;
    case DType::kC32:
      Fill<uint16_t>(key, low, high, 2 * count, out, through_float(FloatToHalf));
      return true;
    case DType::kBF16:
      Fill<uint16_t>(key, low, high, count, out, through_float(FloatToBFloat16));
      return true;
    default:
      return false;
  }
}

bool FillIntegers(uint64_t key, DType dtype, int64_t low, uint64_t span, uint64_t count,
                  std::byte* out) {
  if (dtype == DType::kBool) {
    ForEachWord(key, count, [&](uint64_t i, uint64_t word) {
      const uint64_t value = static_cast<uint64_t>(low) + StepOf(word, span);
      out[i] = std::byte{static_cast<int64_t>(value) > 0};
    });
    return true;
  }
  if (!IsExact(dtype)) return false;
  switch (ItemSize(dtype)) {
    case 1:
      FillWidth<uint8_t>(key, low, span, count, out);
      return true;
    case 2:
      FillWidth<uint16_t>(key, low, span, count, out);
      return true;
    case 4:
      FillWidth<uint32_t>(key, low, span, count, out);
      return true;
    case 8:
      FillWidth<uint64_t>(key, low, span, count, out);
      return true;
    default:
      return false;
  }
}

}  // namespace msprobe::precheck
