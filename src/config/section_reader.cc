#include "config/section_reader.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "base/text.h"

namespace msprobe::config {
namespace {

constexpr int64_t kMostNumber = 1'000'000;   // of a rank or step
constexpr size_t kMostElements = 1'000'000;  // of their lists
constexpr size_t kKeyDistance = 2;           // a key nearer than this is a misspelling
constexpr std::string_view kComment =
    "_comment";  // keys that begin so are for readers, at every place
constexpr std::string_view kNumbersHint =
    "expected a list of integers from 0 to 1000000 and ranges like \"3-7\"";

// A decimal number of digits only, at most kMostNumber.
std::optional<int64_t> ParseNumber(std::string_view text) {
  int64_t value = 0;
  const auto r = std::from_chars(text.data(), text.data() + text.size(), value);
  const bool digits = !text.empty() && text.front() >= '0' && text.front() <= '9';
  if (!digits || r.ec != std::errc() || r.ptr != text.data() + text.size() || value > kMostNumber)
    return std::nullopt;
  return value;
}

using Range = std::pair<int64_t, int64_t>;  // both ends inclusive

std::optional<Range> ParseRange(const json::Value& value) {
  if (value.is_int()) {
    const int64_t n = value.as_int();
    if (n < 0 || n > kMostNumber) return std::nullopt;
    return Range{n, n};
  }
  if (!value.is_string()) return std::nullopt;
  const std::string_view text = value.as_string();
  const size_t dash = text.find('-');
  const auto first = ParseNumber(text.substr(0, dash));
  const auto last = dash == std::string_view::npos ? first : ParseNumber(text.substr(dash + 1));
  if (!first || !last || *first > *last) return std::nullopt;
  return Range{*first, *last};
}

// Merged first, so that many overlapping ranges cost no more than their union.
std::vector<int64_t> Expand(std::vector<Range> ranges) {
  std::sort(ranges.begin(), ranges.end());
  std::vector<int64_t> out;
  int64_t next = 0;
  for (const auto& [first, last] : ranges) {
    for (int64_t n = std::max(first, next); n <= last; ++n) out.push_back(n);
    next = std::max(next, last + 1);
  }
  return out;
}

}  // namespace

Error Spot::Problem(std::string message, std::string hint) const {
  if (source != nullptr) return source->Problem(where, std::move(message), std::move(hint));
  return Error(ErrorCode::kInvalidArgument, std::move(message))
      .At("PrecisionDebugger")
      .Key(where.ToString())
      .Hint(std::move(hint));
}

std::vector<int64_t> ReadNumbers(const json::Value& value, const Spot& spot, Problems& problems) {
  if (!value.is_array()) {
    problems.Add(spot.Problem(WrongKind(value), std::string(kNumbersHint)));
    return {};
  }
  if (value.size() > kMostElements) {
    problems.Add(spot.Problem(fmt::format("the list has {} elements", value.size()),
                              "expected at most 1000000"));
    return {};
  }
  std::vector<Range> ranges;
  for (size_t i = 0; i < value.size(); ++i) {
    if (const auto range = ParseRange(value[i])) {
      ranges.push_back(*range);
      continue;
    }
    problems.Add(spot.Index(i).Problem(
        fmt::format("the element {} is not a number or range", ShownValue(value[i])),
        std::string(kNumbersHint)));
    if (problems.size() > Problems::kShown) break;  // a long list that is wrong throughout
  }
  return Expand(std::move(ranges));
}

void SectionReader::Bool(std::string_view key, bool& out) {
  const json::Value* value = Find(key);
  if (value == nullptr) return;
  if (value->is_bool()) {
    out = value->as_bool();
  } else {
    problems_.Add(At(key).Problem(WrongKind(*value), "expected true or false"));
  }
}

void SectionReader::Int(std::string_view key, int64_t least, int64_t most, int64_t& out) {
  const json::Value* value = Find(key);
  if (value == nullptr) return;
  std::string expected = most == INT64_MAX
                             ? fmt::format("expected an integer of at least {}", least)
                             : fmt::format("expected an integer from {} to {}", least, most);
  if (!value->is_int()) {
    problems_.Add(At(key).Problem(WrongKind(*value), std::move(expected)));
  } else if (value->as_int() < least || value->as_int() > most) {
    problems_.Add(At(key).Problem(fmt::format("the value {} is out of range", value->as_int()),
                                  std::move(expected)));
  } else {
    out = value->as_int();
  }
}

void SectionReader::Text(std::string_view key, std::optional<std::string>& out) {
  const json::Value* value = Find(key);
  if (value == nullptr) return;
  if (!value->is_string()) {
    problems_.Add(At(key).Problem(WrongKind(*value), "expected a string"));
  } else if (value->as_string().find('\0') != std::string_view::npos) {
    problems_.Add(
        At(key).Problem(fmt::format("the value {} contains a null character", ShownValue(*value))));
  } else {
    out = std::string(value->as_string());
  }
}

void SectionReader::TextList(std::string_view key, std::vector<std::string>& out) {
  const json::Value* value = Find(key);
  if (value == nullptr) return;
  if (!value->is_array()) {
    problems_.Add(At(key).Problem(WrongKind(*value), "expected a list of strings"));
    return;
  }
  std::vector<std::string> texts;
  for (size_t i = 0; i < value->size(); ++i) {
    const json::Value& element = (*value)[i];
    if (element.is_string()) {
      texts.emplace_back(element.as_string());
    } else {
      problems_.Add(At(key).Index(i).Problem(WrongKind(element), "expected a list of strings"));
      if (problems_.size() > Problems::kShown) return;
    }
  }
  out = std::move(texts);
}

void SectionReader::Numbers(std::string_view key, std::vector<int64_t>& out) {
  if (const json::Value* value = Find(key)) out = ReadNumbers(*value, At(key), problems_);
}

void SectionReader::CheckKeys(std::span<const std::string_view> known,
                              std::vector<std::string>& unknown) {
  if (object_ == nullptr) return;
  for (auto* m = object_->members_begin(); m != object_->members_end(); ++m) {
    if (std::find(known.begin(), known.end(), m->key) != known.end()) continue;
    if (m->key.starts_with(kComment)) continue;
    const std::string_view nearest = Nearest(m->key, known);
    if (!nearest.empty() && EditDistance(m->key, nearest) <= kKeyDistance) {
      problems_.Add(
          At(m->key).Problem("unknown key", fmt::format("did you mean \"{}\"?", nearest)));
    } else {
      unknown.push_back(At(m->key).Note("unknown key, ignored"));
      log_.Warning(unknown.back());
    }
  }
}

void SectionReader::WarnWithoutEffect(std::span<const std::string_view> keys,
                                      std::string_view reason) {
  for (const std::string_view key : keys) {
    if (Find(key) != nullptr)
      log_.Warning(At(key).Note(fmt::format("this key has no effect: {}", reason)));
  }
}

Error SectionReader::WrongWord(const json::Value& value, const Spot& spot,
                               std::span<const std::string_view> allowed) {
  std::string message = value.is_string()
                            ? fmt::format("the value {} is not known", ShownValue(value))
                            : WrongKind(value);
  return spot.Problem(std::move(message), fmt::format("expected {}", QuotedList(allowed)));
}

}  // namespace msprobe::config
