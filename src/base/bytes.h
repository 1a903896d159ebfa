// A cursor over bytes that never reads past the end. Little-endian, no alignment needed.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <string_view>
#include <type_traits>

namespace msprobe {

static_assert(std::endian::native == std::endian::little, "big-endian hosts are not supported");

using Bytes = std::span<const std::byte>;

inline Bytes AsBytes(std::string_view s) { return std::as_bytes(std::span(s.data(), s.size())); }
inline std::string_view AsText(Bytes b) {
  return {reinterpret_cast<const char*>(b.data()), b.size()};
}

class ByteReader {
 public:
  explicit ByteReader(Bytes bytes) : bytes_(bytes) {}

  size_t position() const { return pos_; }
  size_t remaining() const { return bytes_.size() - pos_; }
  bool done() const { return pos_ == bytes_.size(); }

  // nullopt (and no movement) when fewer than sizeof(T) bytes are left.
  template <class T>
    requires std::is_trivially_copyable_v<T>
  std::optional<T> Read() {
    if (remaining() < sizeof(T)) return std::nullopt;
    T value;
    std::memcpy(&value, bytes_.data() + pos_, sizeof(T));
    pos_ += sizeof(T);
    return value;
  }

  std::optional<Bytes> Take(size_t n) {
    if (remaining() < n) return std::nullopt;
    const Bytes out = bytes_.subspan(pos_, n);
    pos_ += n;
    return out;
  }

  // Bytes up to and without `delimiter`, which is consumed; nullopt when it does not occur.
  std::optional<std::string_view> TakeUntil(char delimiter) {
    const std::string_view rest = AsText(bytes_.subspan(pos_));
    const size_t k = rest.find(delimiter);
    if (k == std::string_view::npos) return std::nullopt;
    pos_ += k + 1;
    return rest.substr(0, k);
  }

  bool Seek(size_t position) {
    if (position > bytes_.size()) return false;
    pos_ = position;
    return true;
  }

 private:
  Bytes bytes_;
  size_t pos_ = 0;
};

}  // namespace msprobe
