// Plain data as bytes, for results that travel between processes of one version of this program
// (engine.h): whole numbers in 8 bytes of little-endian order, texts and lists behind their length.
// Both directions of a struct are one function beside it:
//
//   template <class Archive> void Fields(Archive& a, Counts& c) { a(c.pass, c.warning); }
//
// and the last word of an enumeration stands there too, so that no other is read:
//
//   constexpr Mode LastOf(Mode) { return Mode::kMd5; }
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <unordered_map>
#include <utility>
#include <vector>

namespace msprobe::app {

constexpr size_t kWord = 8;

inline void AppendWord(std::string& out, uint64_t value) {
  for (size_t i = 0; i < kWord; ++i) {
    out += static_cast<char>(static_cast<unsigned char>(value >> (8 * i)));
  }
}

// Of the first kWord bytes, which must be there.
inline uint64_t WordAt(std::string_view bytes) {
  uint64_t value = 0;
  for (size_t i = 0; i < kWord; ++i) {
    value |= uint64_t{static_cast<unsigned char>(bytes[i])} << (8 * i);
  }
  return value;
}

class Packer {
 public:
  explicit Packer(std::string& out) : out_(out) {}
  template <class... T>
  void operator()(T&... values) {
    (Put(values), ...);
  }

 private:
  void Word(uint64_t value) { AppendWord(out_, value); }
  template <class T>
  void Put(T& value) {
    if constexpr (std::is_enum_v<T>) {
      Word(static_cast<uint64_t>(value));
    } else if constexpr (std::is_integral_v<T>) {
      Word(static_cast<uint64_t>(value));
    } else if constexpr (std::is_floating_point_v<T>) {
      Word(std::bit_cast<uint64_t>(static_cast<double>(value)));
    } else {
      Fields(*this, value);
    }
  }
  void Put(std::string& text) {
    Word(text.size());
    out_ += text;
  }
  template <class T>
  void Put(std::optional<T>& value) {
    Word(value ? 1 : 0);
    if (value) Put(*value);
  }
  template <class A, class B>
  void Put(std::pair<A, B>& value) {
    Put(value.first);
    Put(value.second);
  }
  template <class T>
  void Put(std::vector<T>& list) {
    Word(list.size());
    if constexpr (std::is_same_v<T, bool>) {
      for (const bool b : list) Word(b ? 1 : 0);
    } else {
      for (T& value : list) Put(value);
    }
  }
  template <class V>
  void Put(std::map<std::string, V>& map) {
    Word(map.size());
    for (auto& [key, value] : map) {
      std::string copy = key;
      Put(copy);
      Put(value);
    }
  }
  std::string& out_;
};

// Bytes that are no such data leave `ok()` false and values as they were; nothing is read beyond
// the end, and no list is made longer than the bytes that are left.
class Unpacker {
 public:
  explicit Unpacker(std::string_view bytes) : bytes_(bytes) {}
  bool ok() const { return ok_; }
  // Everything was read, and nothing is left.
  bool done() const { return ok_ && bytes_.empty(); }
  template <class... T>
  void operator()(T&... values) {
    (Get(values), ...);
  }

 private:
  uint64_t Word() {
    if (bytes_.size() < kWord) {
      ok_ = false;
      bytes_ = {};
      return 0;
    }
    const uint64_t value = WordAt(bytes_);
    bytes_.remove_prefix(kWord);
    return value;
  }
  size_t Length() {
    const uint64_t n = Word();
    if (n > bytes_.size()) ok_ = false;
    return ok_ ? static_cast<size_t>(n) : 0;
  }
  template <class T>
  void Get(T& value) {
    if constexpr (std::is_enum_v<T>) {
      const uint64_t word = Word();
      if (word > static_cast<uint64_t>(LastOf(value))) ok_ = false;
      if (ok_) value = static_cast<T>(word);
    } else if constexpr (std::is_integral_v<T>) {
      const uint64_t word = Word();
      if (ok_) value = static_cast<T>(word);
    } else if constexpr (std::is_floating_point_v<T>) {
      const uint64_t word = Word();
      if (ok_) value = static_cast<T>(std::bit_cast<double>(word));
    } else {
      Fields(*this, value);
    }
  }
  void Get(std::string& text) {
    const size_t n = Length();
    text.assign(bytes_.substr(0, n));
    bytes_.remove_prefix(n);
  }
  template <class T>
  void Get(std::optional<T>& value) {
    value.reset();
    if (Word() == 0 || !ok_) return;
    value.emplace();
    Get(*value);
  }
  template <class A, class B>
  void Get(std::pair<A, B>& value) {
    Get(value.first);
    Get(value.second);
  }
  template <class T>
  void Get(std::vector<T>& list) {
    const size_t n = Length();
    list.clear();
    for (size_t i = 0; i < n && ok_; ++i) {
      T value{};
      Get(value);
      list.push_back(std::move(value));
    }
  }
  template <class V>
  void Get(std::map<std::string, V>& map) {
    const size_t n = Length();
    map.clear();
    for (size_t i = 0; i < n && ok_; ++i) {
      std::pair<std::string, V> entry;
      Get(entry);
      map.insert(std::move(entry));
    }
  }
  std::string_view bytes_;
  bool ok_ = true;
};

template <class T>
std::string Packed(T& value) {
  std::string out;
  Packer pack(out);
  pack(value);
  return out;
}

// nullopt when the bytes are not exactly one such value.
template <class T>
std::optional<T> Unpacked(std::string_view bytes) {
  T value{};
  Unpacker unpack(bytes);
  unpack(value);
  if (!unpack.done()) return std::nullopt;
  return value;
}

}  // namespace msprobe::app
