// What a comparison keeps of both dumps: leaves in report order, their texts in one arena.
#pragma once

#include <cstddef>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "compare/compare.h"
#include "dump/reader.h"

namespace msprobe::compare {

// Texts that live as long as the arena, at stable addresses.
class Arena {
 public:
  std::string_view Copy(std::string_view text) { return Join(text, {}, {}); }
  std::string_view Join(std::string_view a, std::string_view b, std::string_view c = {});

 private:
  std::vector<std::unique_ptr<char[]>> blocks_;
  char* next_ = nullptr;
  size_t left_ = 0;
};

// Texts that repeat (dtypes, shapes): one copy each.
class TextPool {
 public:
  explicit TextPool(Arena& arena) : arena_(arena) {}
  std::string_view Intern(std::string_view text);

 private:
  Arena& arena_;
  std::unordered_set<std::string_view> texts_;
  std::string_view last_;
};

enum class Direction : uint8_t { kOther, kForward, kBackward, kGrad };

// compare.md 4.5: `Torch.add.3.forward`, `Module.fc.Linear.backward.1`, `….parameters_grad[.0]`. A
// name that fits none of these is kOther with the whole name as base.
struct NameParts {
  std::string_view base;
  std::string_view call;  // digits; empty when there are none
  Direction direction = Direction::kOther;
  bool number_last = false;  // module style: the number follows the direction
};
NameParts ParseEntryName(std::string_view name);

// The name under which an entry is matched (decisions.md 33): module paths without the components
// that wrappers put in (`module`, `_orig_mod`, `_fsdp_wrapped_module`), functions that are one
// object under two names by the first of them (`Torch.conv2d` as `Functional.conv2d`).
std::string CanonicalName(std::string_view name);

struct Entry {
  std::string name;
  size_t first = 0, count = 0;  // leaves [first, first + count)
};

// A sketch as a dump has it: float32 slots.
struct KeptSketch {
  metrics::Sketch head;  // without values
  std::vector<float> values;
  metrics::Sketch Expanded() const;
};

struct Side {
  Side() = default;
  Side(const Side&) = delete;
  Side& operator=(const Side&) = delete;

  dump::ReadInfo info;
  Arena arena;
  TextPool pool{arena};
  std::deque<Entry>
      entries;  // file order; a repeated name keeps its first place and its last content
  std::vector<Leaf> leaves;
  std::deque<LeafMore> more;  // of leaves
  std::deque<KeptSketch> sketches;
  uint64_t bad_sketches = 0;    // records that cannot be read
  std::string bad_sketch;       // the first of them, with the reason
  std::deque<Leaf> merged;      // leaves that stand for several (consistent.h)
  bool has_md5 = false;         // some leaf carries a checksum
  uint64_t duplicates = 0;      // entries that a later one of the same name replaced
  uint64_t duplicate_keys = 0;  // members inside entries that a later one of the same key replaced
  uint64_t malformed = 0;       // leaves of kind kMalformed
};

struct Comparison::Store {
  Side target, golden;
  std::optional<dump::StackTable> stack;
};

}  // namespace msprobe::compare
