// What went wrong with an input, where, and what was expected.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace msprobe {

// The closed set of causes. Python sees the names without the k, in lower snake case.
enum class ErrorCode : uint8_t {
  kInvalidArgument,  // an option or API argument
  kConfig,           // content of a configuration file
  kNotFound,         // a path that does not exist
  kPermission,       // exists, may not be read or written
  kNotRegularFile,   // a directory, FIFO, socket or device where a file belongs, or the other way
                     // round
  kTooLarge,         // beyond a limit of ours
  kTruncated,        // ends before its own structure says
  kMalformed,        // structure contradicts the format or itself
  kUnsupported,      // valid, but of a kind this tool does not read
  kMismatch,         // two inputs that do not belong together
  kPathEscape,       // a name inside a file that leads out of its folder
  kIo,               // the operating system failed to read or write
  kNoSpace,          // disk full or quota
  kNothingToDo,      // valid inputs without anything to work on
  kCancelled,        // interrupted by the user
  kInternal,         // a fault of this tool
};

std::string_view ErrorCodeName(ErrorCode code);

// One problem. Only `code` and `message` are always set; the place is whatever is known of it.
struct Error {
  ErrorCode code = ErrorCode::kInternal;
  std::string message;             // what is wrong, without place
  std::string hint;                // what was expected or what to do; may be empty
  std::string path;                // file or option, as the user typed it
  std::optional<uint64_t> offset;  // byte offset inside `path`
  uint32_t line = 0;               // 1-based, 0 = unknown
  uint32_t column = 0;             // 1-based, 0 = unknown
  std::string key_path;            // "statistics.summary_mode", "data[3].shape"

  Error() = default;
  Error(ErrorCode c, std::string m) : code(c), message(std::move(m)) {}

  // Chainable setters, so that the place can be added where it is known.
  Error&& At(std::string p) &&;
  Error&& AtOffset(uint64_t o) &&;
  Error&& AtLine(uint32_t l, uint32_t c) &&;
  Error&& Key(std::string k) &&;
  Error&& Hint(std::string h) &&;

  // "<path>[:<line>:<column> | @<offset>][ <key path>]: <message>[; <hint>]" with control
  // characters and bidirectional overrides made visible. No "msprobe: error:" prefix.
  std::string ToString() const;
};

}  // namespace msprobe
