// Append-only writing of dump.json, stack.json and construct.json: valid JSON after every flush, constant cost per entry.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "base/result.h"

namespace msprobe::dump {

// One JSON object file whose last open object grows. `head` is everything up to and including the '{' of the growing object
// (as Python's indent=1 would print it), `tail` what closes the file. Flush() writes the pending members and the tail with one write at
// the place of the old tail. Not thread-safe.
class GrowingObject {
 public:
  static Result<GrowingObject> Create(const std::string& path, std::string head, std::string tail, int member_indent);
  GrowingObject(GrowingObject&&) noexcept;
  GrowingObject& operator=(GrowingObject&&) noexcept;
  ~GrowingObject();  // flushes nothing

  // `value` is a whole JSON value.
  void Append(std::string_view key, std::string_view value);
  size_t pending_bytes() const;
  uint64_t members() const;      // appended so far
  uint64_t bytes() const;        // of the file after the last flush
  Status Flush();
  Status Close(std::string tail);  // flush with another tail (e.g. the "msprobe" object) and close
  const std::string& path() const;

 private:
  GrowingObject();
  struct Rep;
  std::unique_ptr<Rep> rep_;
};

}  // namespace msprobe::dump
