#include "base/error.h"

#include <fmt/format.h>

#include "base/text.h"

namespace msprobe {

std::string_view ErrorCodeName(ErrorCode code) {
  switch (code) {
    case ErrorCode::kInvalidArgument:
      return "invalid_argument";
    case ErrorCode::kConfig:
      return "config";
    case ErrorCode::kNotFound:
      return "not_found";
    case ErrorCode::kPermission:
      return "permission";
    case ErrorCode::kNotRegularFile:
      return "not_regular_file";
    case ErrorCode::kTooLarge:
      return "too_large";
    case ErrorCode::kTruncated:
      return "truncated";
    case ErrorCode::kMalformed:
      return "malformed";
    case ErrorCode::kUnsupported:
      return "unsupported";
    case ErrorCode::kMismatch:
      return "mismatch";
    case ErrorCode::kPathEscape:
      return "path_escape";
    case ErrorCode::kIo:
      return "io";
    case ErrorCode::kNoSpace:
      return "no_space";
    case ErrorCode::kNothingToDo:
      return "nothing_to_do";
    case ErrorCode::kCancelled:
      return "cancelled";
    case ErrorCode::kInternal:
      return "internal";
  }
  return "internal";
}

Error&& Error::At(std::string p) && {
  path = std::move(p);
  return std::move(*this);
}
Error&& Error::AtOffset(uint64_t o) && {
  offset = o;
  return std::move(*this);
}
Error&& Error::AtLine(uint32_t l, uint32_t c) && {
  line = l;
  column = c;
  return std::move(*this);
}
Error&& Error::Key(std::string k) && {
  key_path = std::move(k);
  return std::move(*this);
}
Error&& Error::Hint(std::string h) && {
  hint = std::move(h);
  return std::move(*this);
}

std::string Error::ToString() const {
  std::string out = VisibleText(path);
  if (line > 0) {
    out += fmt::format(":{}", line);
    if (column > 0) out += fmt::format(":{}", column);
  } else if (offset.has_value()) {
    out += fmt::format("@{}", *offset);
  }
  if (!key_path.empty()) {
    if (!out.empty()) out += ' ';
    out += VisibleText(key_path);
  }
  if (!out.empty()) out += ": ";
  // Several problems of a configuration are one a line; elsewhere a line feed comes from a name and
  // is shown as such.
  std::string_view rest = message;
  for (size_t k; code == ErrorCode::kConfig && (k = rest.find('\n')) != std::string_view::npos;) {
    out += VisibleText(rest.substr(0, k)) + '\n';
    rest.remove_prefix(k + 1);
  }
  out += VisibleText(rest);
  if (!hint.empty()) {
    out += "; ";
    out += VisibleText(hint);
  }
  return out;
}

}  // namespace msprobe
