// Values of a parsed document, their arena, and the builder that fills it from events.
#include <algorithm>
#include <array>
#include <atomic>
#include <charconv>
#include <cstring>
#include <limits>
#include <numeric>

#include "json/json.h"

namespace msprobe::json {
namespace {

// Objects above this size carry an index (one uint32_t per member, sorted by key, behind the
// members).
constexpr size_t kIndexedFrom = 17;

// Grows in blocks, frees all at once; addresses stay.
class Arena {
 public:
  void* Allocate(size_t bytes, size_t align) {
    size_t at = (used_ + align - 1) & ~(align - 1);
    if (blocks_.empty() || at + bytes > capacity_) {
      block_size_ = std::min<size_t>(block_size_ * 2, 1u << 20);
      capacity_ = std::max(bytes, block_size_);
      blocks_.push_back(std::make_unique_for_overwrite<std::byte[]>(capacity_));
      at = 0;
    }
    used_ = at + bytes;
    return blocks_.back().get() + at;
  }
  std::string_view Copy(std::string_view text) {
    if (text.empty()) return "";
    char* const p = static_cast<char*>(Allocate(text.size(), 1));
    std::memcpy(p, text.data(), text.size());
    return {p, text.size()};
  }
  // Forgets everything but the block at work.
  void Clear() {
    if (blocks_.size() > 1) blocks_.erase(blocks_.begin(), blocks_.end() - 1);
    used_ = 0;
  }

 private:
  std::vector<std::unique_ptr<std::byte[]>> blocks_;
  size_t block_size_ = 512;
  size_t capacity_ = 0;
  size_t used_ = 0;
};

uint64_t CountSmallDuplicates(std::span<const Value::Member> members) {
  uint64_t count = 0;
  for (size_t i = 0; i < members.size(); ++i) {
    for (size_t k = i + 1; k < members.size(); ++k) {
      if (members[i].key == members[k].key) {
        ++count;
        break;
      }
    }
  }
  return count;
}

}  // namespace

double Value::as_double() const {
  switch (type_) {
    case Type::kDouble:
      return u_.d;
    case Type::kInt:
      return static_cast<double>(u_.i);
    case Type::kBigInt: {
      double value = 0;
      const auto r = std::from_chars(u_.s, u_.s + size_, value);
      if (r.ec == std::errc::result_out_of_range) {
        value = std::numeric_limits<double>::infinity();
        if (u_.s[0] == '-') value = -value;
      }
      return value;
    }
    default:
      return std::numeric_limits<double>::quiet_NaN();
  }
}

const Value* Value::Find(std::string_view key) const {
  if (type_ != Type::kObject) return nullptr;
  const Member* const members = u_.members;
  if (size_ < kIndexedFrom) {
    for (size_t i = size_; i-- > 0;) {
      if (members[i].key == key) return &members[i].value;
    }
    return nullptr;
  }
  const uint32_t* const index = reinterpret_cast<const uint32_t*>(members + size_);
  const uint32_t* const past =
      std::upper_bound(index, index + size_, key,
                       [&](std::string_view k, uint32_t i) { return k < members[i].key; });
  if (past == index || members[past[-1]].key != key) return nullptr;
  return &members[past[-1]].value;
}

struct Document::Rep {
  struct Recycler;
  Arena arena;
  Value root;
  uint64_t duplicates = 0;
  std::shared_ptr<Recycler> home;  // null: of no builder, or waiting in it
};

// Where a builder's documents leave their memory for the next one. They may end on other threads.
struct Document::Rep::Recycler {
  std::atomic<Rep*> spare = nullptr;
  Recycler() = default;
  Recycler(const Recycler&) = delete;
  Recycler& operator=(const Recycler&) = delete;
  ~Recycler() { delete spare.load(); }
  void Put(std::unique_ptr<Rep> rep) {
    rep->arena.Clear();
    rep->root = Value();
    rep->duplicates = 0;
    delete spare.exchange(rep.release());
  }
  std::unique_ptr<Rep> Get() {
    std::unique_ptr<Rep> rep(spare.exchange(nullptr));
    return rep ? std::move(rep) : std::make_unique<Rep>();
  }
};

Document::Document() : rep_(std::make_unique<Rep>()) {}
Document::Document(Document&&) noexcept = default;
Document& Document::operator=(Document&&) noexcept = default;
Document::~Document() {
  if (!rep_ || !rep_->home) return;
  const std::shared_ptr<Rep::Recycler> home = std::move(rep_->home);
  home->Put(std::move(rep_));
}
const Value& Document::root() const { return rep_->root; }
uint64_t Document::duplicate_keys() const { return rep_->duplicates; }

struct ValueBuilder::Rep {
  struct Open {
    size_t first;          // of its members in `pending`
    std::string_view key;  // under which the container itself goes
  };
  std::shared_ptr<Document::Rep::Recycler> recycler = std::make_shared<Document::Rep::Recycler>();
  std::unique_ptr<Document::Rep> document = recycler->Get();
  std::vector<Value::Member> pending;  // of all open containers, innermost last
  std::vector<Open> open;
  std::string_view key;
  std::array<std::string_view, 256> recent_keys;  // the same few names come again and again
  bool complete = false;

  bool Add(const Value& value) {
    if (open.empty()) {
      document->root = value;
      complete = true;
    } else {
      pending.push_back({key, value});
      key = {};
    }
    return true;
  }
  bool Begin() {
    open.push_back({pending.size(), key});
    key = {};
    return true;
  }
  std::string_view Intern(std::string_view text) {
    if (text.empty()) return "";
    const size_t slot = (text.size() * 31u + static_cast<unsigned char>(text.front()) * 7u +
                         static_cast<unsigned char>(text.back())) %
                        recent_keys.size();
    if (recent_keys[slot] != text) recent_keys[slot] = document->arena.Copy(text);
    return recent_keys[slot];
  }
  std::span<Value::Member> Innermost() { return std::span(pending).subspan(open.back().first); }
  bool Close(const Value& container) {
    pending.resize(open.back().first);
    key = open.back().key;
    open.pop_back();
    return Add(container);
  }
};

ValueBuilder::ValueBuilder() : rep_(std::make_unique<Rep>()) {}
ValueBuilder::~ValueBuilder() = default;

bool ValueBuilder::Null() { return rep_->Add(Value()); }

bool ValueBuilder::Bool(bool value) {
  Value v;
  v.type_ = Value::Type::kBool;
  v.u_.b = value;
  return rep_->Add(v);
}

bool ValueBuilder::Int(int64_t value) {
  Value v;
  v.type_ = Value::Type::kInt;
  v.u_.i = value;
  return rep_->Add(v);
}

bool ValueBuilder::BigInt(std::string_view digits) {
  Value v;
  v.type_ = Value::Type::kBigInt;
  v.size_ = static_cast<uint32_t>(digits.size());
  v.u_.s = rep_->document->arena.Copy(digits).data();
  return rep_->Add(v);
}

bool ValueBuilder::Double(double value) {
  Value v;
  v.type_ = Value::Type::kDouble;
  v.u_.d = value;
  return rep_->Add(v);
}

bool ValueBuilder::String(std::string_view value) {
  Value v;
  v.type_ = Value::Type::kString;
  v.size_ = static_cast<uint32_t>(value.size());
  v.u_.s = rep_->document->arena.Copy(value).data();
  return rep_->Add(v);
}

bool ValueBuilder::Key(std::string_view key) {
  rep_->key = rep_->Intern(key);
  return true;
}

bool ValueBuilder::StartObject() { return rep_->Begin(); }

bool ValueBuilder::EndObject() {
  const std::span<Value::Member> members = rep_->Innermost();
  const size_t n = members.size();
  if (n > std::numeric_limits<uint32_t>::max()) return false;
  Value v;
  v.type_ = Value::Type::kObject;
  v.size_ = static_cast<uint32_t>(n);
  if (n > 0) {
    Document::Rep& document = *rep_->document;
    const bool indexed = n >= kIndexedFrom;
    const size_t bytes = n * (sizeof(Value::Member) + (indexed ? sizeof(uint32_t) : 0));
    auto* const out =
        static_cast<Value::Member*>(document.arena.Allocate(bytes, alignof(Value::Member)));
    std::uninitialized_copy(members.begin(), members.end(), out);
    v.u_.members = out;
    if (!indexed) {
      document.duplicates += CountSmallDuplicates(members);
    } else {
      auto* const index = reinterpret_cast<uint32_t*>(out + n);
      std::iota(index, index + n, 0u);
      std::sort(index, index + n, [out](uint32_t a, uint32_t b) {
        const int order = out[a].key.compare(out[b].key);
        return order != 0 ? order < 0 : a < b;
      });
      for (size_t i = 1; i < n; ++i)
        document.duplicates += out[index[i]].key == out[index[i - 1]].key;
    }
  }
  return rep_->Close(v);
}

bool ValueBuilder::StartArray() { return rep_->Begin(); }

bool ValueBuilder::EndArray() {
  const std::span<Value::Member> members = rep_->Innermost();
  const size_t n = members.size();
  if (n > std::numeric_limits<uint32_t>::max()) return false;
  Value v;
  v.type_ = Value::Type::kArray;
  v.size_ = static_cast<uint32_t>(n);
  if (n > 0) {
    auto* const out =
        static_cast<Value*>(rep_->document->arena.Allocate(n * sizeof(Value), alignof(Value)));
    for (size_t i = 0; i < n; ++i) std::construct_at(out + i, members[i].value);
    v.u_.array = out;
  }
  return rep_->Close(v);
}

bool ValueBuilder::complete() const { return rep_->complete; }

Document ValueBuilder::Take() {
  Document document;
  document.rep_ = std::move(rep_->document);
  document.rep_->home = rep_->recycler;
  rep_->document = rep_->recycler->Get();
  rep_->pending.clear();
  rep_->open.clear();
  rep_->key = {};
  rep_->recent_keys = {};
  rep_->complete = false;
  return document;
}

namespace {

Result<Document> TakeWhole(ValueBuilder& builder) {
  if (!builder.complete())
    return Error(ErrorCode::kTooLarge, "an array or object of more than 4294967295 elements");
  return builder.Take();
}

}  // namespace

Result<Document> ParseDocument(std::string_view text, const Limits& limits) {
  ValueBuilder builder;
  MSPROBE_TRY(Parse(text, builder, limits));
  return TakeWhole(builder);
}

Result<Document> ParseDocumentFile(const std::string& path, const Limits& limits) {
  MSPROBE_ASSIGN(const InputFile file, InputFile::Open(path));
  ValueBuilder builder;
  MSPROBE_TRY(ParseFile(file, builder, limits));
  return TakeWhole(builder);
}

}  // namespace msprobe::json
