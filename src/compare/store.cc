#include "compare/store.h"

#include <algorithm>
#include <cstring>

namespace msprobe::compare {
namespace {

constexpr size_t kBlock = 256 << 10;

bool IsNumber(std::string_view text) {
  return !text.empty() &&
         std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
}

Direction DirectionOf(std::string_view word) {
  if (word == "forward") return Direction::kForward;
  if (word == "backward") return Direction::kBackward;
  if (word == "parameters_grad") return Direction::kGrad;
  return Direction::kOther;
}

// Cuts the last dotted component off `head`.
std::string_view CutLast(std::string_view& head) {
  const size_t dot = head.rfind('.');
  const std::string_view last = dot == std::string_view::npos ? head : head.substr(dot + 1);
  head = dot == std::string_view::npos ? std::string_view() : head.substr(0, dot);
  return last;
}

}  // namespace

std::string_view Arena::Join(std::string_view a, std::string_view b, std::string_view c) {
  const size_t size = a.size() + b.size() + c.size();
  if (size == 0) return {};
  if (size > left_) {
    const size_t block = std::max(size, kBlock);
    blocks_.push_back(std::make_unique_for_overwrite<char[]>(block));
    next_ = blocks_.back().get();
    left_ = block;
  }
  char* const out = next_;
  for (const std::string_view part : {a, b, c}) {
    if (!part.empty()) std::memcpy(next_, part.data(), part.size());
    next_ += part.size();
  }
  left_ -= size;
  return {out, size};
}

std::string_view TextPool::Intern(std::string_view text) {
  if (text == last_) return last_;
  auto it = texts_.find(text);
  if (it == texts_.end()) it = texts_.insert(arena_.Copy(text)).first;
  return last_ = *it;
}

NameParts ParseEntryName(std::string_view name) {
  std::string_view head = name;
  const std::string_view last = CutLast(head);
  if (const Direction d = DirectionOf(last); d == Direction::kGrad && !head.empty()) {
    return {.base = head, .call = {}, .direction = d, .number_last = true};
  } else if (d != Direction::kOther) {
    const std::string_view call = CutLast(head);
    if (IsNumber(call) && !head.empty()) {
      return {.base = head, .call = call, .direction = d, .number_last = false};
    }
  } else if (IsNumber(last)) {
    const Direction before = DirectionOf(CutLast(head));
    if (before != Direction::kOther && !head.empty()) {
      return {.base = head, .call = last, .direction = before, .number_last = true};
    }
  }
  return {.base = name, .call = {}, .direction = Direction::kOther, .number_last = false};
}

}  // namespace msprobe::compare
