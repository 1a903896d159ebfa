#include "config/json_source.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/file.h"

namespace msprobe::config {
namespace {

// Follows one key path through the events of a parse and stops at its hit number `wanted` (0: never
// stops, only counts). A key may occur several times; the last one counts.
class PathFinder final : public json::Handler {
 public:
  PathFinder(const std::vector<KeyPath::Part>& parts, uint64_t wanted)
      : parts_(parts), wanted_(wanted) {}

  uint64_t hits() const { return hits_; }

  bool Null() override { return Scalar(); }
  bool Bool(bool) override { return Scalar(); }
  bool Int(int64_t) override { return Scalar(); }
  bool BigInt(std::string_view) override { return Scalar(); }
  bool Double(double) override { return Scalar(); }
  bool String(std::string_view) override { return Scalar(); }
  bool StartObject() override { return Open(); }
  bool StartArray() override { return Open(); }
  bool EndObject() override { return Close(); }
  bool EndArray() override { return Close(); }

  bool Key(std::string_view key) override {
    if (!OnPath()) return true;
    const KeyPath::Part& part = parts_[on_path_ - 1];
    matched_ = part.index < 0 && part.key == key;
    return !matched_ || on_path_ < parts_.size() || Hit();
  }

 private:
  // Is the innermost open container one that the path leads through?
  bool OnPath() const { return depth_ > 0 && depth_ == on_path_ && on_path_ <= parts_.size(); }
  bool Hit() { return ++hits_ != wanted_; }

  // A value begins: for an element of an array on the path this is where its index is compared.
  bool Begin() {
    if (!OnPath()) return true;
    const KeyPath::Part& part = parts_[on_path_ - 1];
    if (part.index < 0) return true;
    matched_ = next_index_.back()++ == part.index;
    return !matched_ || on_path_ < parts_.size() || Hit();
  }
  bool Scalar() {
    const bool go_on = Begin();
    matched_ = false;
    return go_on;
  }
  bool Open() {
    const bool go_on = Begin();
    if (depth_ == 0 || (OnPath() && matched_)) {
      ++on_path_;
      next_index_.push_back(0);
    }
    matched_ = false;
    ++depth_;
    return go_on;
  }
  bool Close() {
    if (depth_ == on_path_) {
      --on_path_;
      next_index_.pop_back();
    }
    --depth_;
    return true;
  }

  const std::vector<KeyPath::Part>& parts_;
  const uint64_t wanted_;
  uint64_t hits_ = 0;
  size_t depth_ = 0;
  size_t on_path_ = 0;  // that many of the outermost open containers are on the path
  std::vector<int64_t> next_index_;
  bool matched_ = false;  // the value that comes next continues the path
};

// `end` is just behind a key or a scalar, or at the bracket that opens a value: where does that
// token begin?
size_t TokenStart(std::string_view text, size_t end) {
  end = std::min(end, text.size());
  if (end < text.size() && (text[end] == '[' || text[end] == '{')) return end;
  const auto is_blank = [](char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; };
  while (end > 0 && (is_blank(text[end - 1]) || text[end - 1] == ':' || text[end - 1] == ','))
    --end;
  if (end == 0) return 0;
  size_t i = end - 1;
  if (text[i] == '"') {
    while (i > 0) {
      --i;
      if (text[i] != '"') continue;
      size_t slashes = 0;
      while (slashes < i && text[i - 1 - slashes] == '\\') ++slashes;
      if (slashes % 2 == 0) return i;
    }
    return 0;
  }
  if (text[i] == '{' || text[i] == '[') return i;
  const std::string_view ends = "[{,: \t\r\n";
  while (i > 0 && ends.find(text[i - 1]) == std::string_view::npos) --i;
  return i;
}

}  // namespace

KeyPath KeyPath::Key(std::string_view key) const {
  KeyPath out = *this;
  out.parts_.push_back({std::string(key), -1});
  return out;
}

KeyPath KeyPath::Index(size_t index) const {
  KeyPath out = *this;
  out.parts_.push_back({{}, static_cast<int64_t>(index)});
  return out;
}

std::string KeyPath::ToString() const {
  std::string out;
  for (const Part& part : parts_) {
    if (part.index >= 0) {
      out += fmt::format("[{}]", part.index);
    } else {
      if (!out.empty()) out += '.';
      out += part.key;
    }
  }
  return out;
}

Result<JsonSource> JsonSource::Read(const std::string& path) {
  JsonSource source;
  source.path_ = path;
  MSPROBE_ASSIGN(source.text_, ReadTextFile(path, kMaxBytes));
  json::Limits limits;
  limits.max_depth = 100;
  auto document = json::ParseDocument(source.text_, limits);
  if (!document.ok()) return std::move(document).error().At(path);
  source.document_ = std::move(document).value();
  return source;
}

JsonSource::LineColumn JsonSource::Locate(const KeyPath& where) const {
  if (where.parts().empty()) return {};
  PathFinder counter(where.parts(), 0);
  if (!json::Parse(text_, counter).ok() || counter.hits() == 0) return {};
  PathFinder finder(where.parts(), counter.hits());
  const auto info = json::Parse(text_, finder);
  if (!info.ok() || !info->stopped) return {};
  const size_t start = TokenStart(text_, static_cast<size_t>(info->bytes));
  LineColumn out{1, 1};
  for (const char c : std::string_view(text_).substr(0, start)) {
    if (c == '\n') {
      ++out.line;
      out.column = 1;
    } else if ((static_cast<unsigned char>(c) & 0xC0u) != 0x80u) {
      ++out.column;  // characters, not bytes
    }
  }
  return out;
}

Error JsonSource::Problem(const KeyPath& where, std::string message, std::string hint) const {
  const LineColumn place = Locate(where);
  return Error(ErrorCode::kConfig, std::move(message))
      .At(path_)
      .AtLine(place.line, place.column)
      .Key(where.ToString())
      .Hint(std::move(hint));
}

std::string JsonSource::Note(const KeyPath& where, std::string message) const {
  return Problem(where, std::move(message)).ToString();
}

std::string ShownValue(const json::Value& value) {
  constexpr size_t kMaxShown = 60;
  std::string out;
  json::Writer(out).Copy(value);
  if (out.size() > kMaxShown) {
    out.resize(kMaxShown);  // ASCII only, so no character is cut in two
    out += "...";
  }
  return out;
}

std::string WrongKind(const json::Value& value) {
  return fmt::format("the value {} is {}", ShownValue(value), KindName(value));
}

std::string_view KindName(const json::Value& value) {
  switch (value.type()) {
    case json::Value::Type::kNull:
      return "null";
    case json::Value::Type::kBool:
      return "a boolean";
    case json::Value::Type::kInt:
    case json::Value::Type::kBigInt:
      return "an integer";
    case json::Value::Type::kDouble:
      return "a number";
    case json::Value::Type::kString:
      return "a string";
    case json::Value::Type::kArray:
      return "a list";
    case json::Value::Type::kObject:
      return "an object";
  }
  return "a value";
}

}  // namespace msprobe::config
