#include "kernels/checksum.h"

#include <libdeflate.h>

#include <array>
#include <cstring>

namespace msprobe::kernels {

uint32_t Crc32(uint32_t seed, const std::byte* data, size_t bytes) {
  // libdeflate answers a null pointer with the initial value, whatever the seed.
  if (bytes == 0) return seed;
  return libdeflate_crc32(seed, data, bytes);
}

uint64_t Xor64(const std::byte* data, size_t bytes) {
  // Eight independent words, so that the compiler may use vectors of any width.
  std::array<uint64_t, 8> lanes{};
  size_t i = 0;
  for (; i + sizeof(lanes) <= bytes; i += sizeof(lanes)) {
    std::array<uint64_t, 8> words;
    std::memcpy(words.data(), data + i, sizeof(words));
    for (size_t k = 0; k < lanes.size(); ++k) lanes[k] ^= words[k];
  }
  uint64_t result = 0;
  for (const uint64_t lane : lanes) result ^= lane;
  for (; i < bytes; i += 8) {
    uint64_t word = 0;
    std::memcpy(&word, data + i, bytes - i < 8 ? bytes - i : 8);
    result ^= word;
  }
  return result;
}

}  // namespace msprobe::kernels
