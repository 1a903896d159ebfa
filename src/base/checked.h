// Arithmetic on sizes that come from files: nullopt instead of wrapping.
#pragma once

#include <concepts>
#include <optional>

namespace msprobe {

template <std::integral T>
constexpr std::optional<T> CheckedAdd(T a, T b) {
  T r;
  if (__builtin_add_overflow(a, b, &r)) return std::nullopt;
  return r;
}

template <std::integral T>
constexpr std::optional<T> CheckedMul(T a, T b) {
  T r;
  if (__builtin_mul_overflow(a, b, &r)) return std::nullopt;
  return r;
}

}  // namespace msprobe
