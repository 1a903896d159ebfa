// Result<T>: a value or an Error. Bad input is a Result; programmer errors are asserts.
#pragma once

#include <cassert>
#include <utility>
#include <variant>

#include "base/error.h"

namespace msprobe {

template <class T>
class [[nodiscard]] Result {
 public:
  using value_type = T;
  Result(T value) : v_(std::in_place_index<0>, std::move(value)) {}  // NOLINT: implicit on purpose
  Result(Error error)
      : v_(std::in_place_index<1>, std::move(error)) {}  // NOLINT: implicit on purpose

  bool ok() const { return v_.index() == 0; }
  explicit operator bool() const { return ok(); }

  T& value() & { return assert(ok()), *std::get_if<0>(&v_); }
  const T& value() const& { return assert(ok()), *std::get_if<0>(&v_); }
  T&& value() && { return assert(ok()), std::move(*std::get_if<0>(&v_)); }
  T& operator*() & { return value(); }
  const T& operator*() const& { return value(); }
  T&& operator*() && { return std::move(*this).value(); }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }

  Error& error() & { return assert(!ok()), *std::get_if<1>(&v_); }
  const Error& error() const& { return assert(!ok()), *std::get_if<1>(&v_); }
  Error&& error() && { return assert(!ok()), std::move(*std::get_if<1>(&v_)); }

 private:
  std::variant<T, Error> v_;
};

template <>
class [[nodiscard]] Result<void> {
 public:
  Result() = default;
  Result(Error error) : e_(std::in_place, std::move(error)) {}  // NOLINT: implicit on purpose
  bool ok() const { return !e_.has_value(); }
  explicit operator bool() const { return ok(); }
  Error& error() & { return assert(!ok()), *e_; }
  const Error& error() const& { return assert(!ok()), *e_; }
  Error&& error() && { return assert(!ok()), std::move(*e_); }

 private:
  std::optional<Error> e_;
};

using Status = Result<void>;

}  // namespace msprobe

// Early return of the error of `expr` (a Status or Result).
#define MSPROBE_TRY(expr)                                                                       \
  do {                                                                                          \
    if (auto msprobe_try_ = (expr); !msprobe_try_.ok()) return std::move(msprobe_try_).error(); \
  } while (false)

#define MSPROBE_CONCAT_INNER(a, b) a##b
#define MSPROBE_CONCAT(a, b) MSPROBE_CONCAT_INNER(a, b)
// MSPROBE_ASSIGN(auto x, F()): x = value of F(), or return its error.
#define MSPROBE_ASSIGN(lhs, expr) \
  MSPROBE_ASSIGN_INNER(MSPROBE_CONCAT(msprobe_res_, __LINE__), lhs, expr)
#define MSPROBE_ASSIGN_INNER(tmp, lhs, expr)    \
  auto tmp = (expr);                            \
  if (!tmp.ok()) return std::move(tmp).error(); \
  lhs = std::move(tmp).value()
