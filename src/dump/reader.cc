#include "dump/reader.h"

#include <dirent.h>
#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <tuple>
#include <unordered_set>

#include "base/file.h"
#include "dump/journal.h"

namespace msprobe::dump {
namespace {

Error NotAnObject(const std::string& path, std::string_view found) {
  return Error(ErrorCode::kMalformed, fmt::format("the top level is {}", found))
      .At(path)
      .Hint("an object is expected");
}

// Cuts a document into the members of its top-level object, and, when `descend` names one of those
// and it is an object, into the members of that one too. Each member's value is built, handed over
// and dropped, so memory is bounded by the largest member.
class MemberSplitter : public json::Handler {
 public:
  // Whether the value of this member is wanted; others are skipped without being built.
  virtual bool Wants(std::string_view key) = 0;
  // A complete member of the top level (`nested` false) or of the object that was descended into.
  // false stops.
  virtual bool Member(bool nested, std::string_view key, const json::Value& value) = 0;
  // The member to descend into was met: as an object, or as something else (then it is skipped).
  virtual void Descended(bool is_object) { (void)is_object; }

  explicit MemberSplitter(std::string_view descend = {}) : descend_(descend) {}

  bool not_an_object() const { return not_an_object_; }
  bool top_level_is_list() const { return list_; }

  bool Null() override {
    return Scalar([](json::Handler& h) { return h.Null(); });
  }
  bool Bool(bool v) override {
    return Scalar([&](json::Handler& h) { return h.Bool(v); });
  }
  bool Int(int64_t v) override {
    return Scalar([&](json::Handler& h) { return h.Int(v); });
  }
  bool BigInt(std::string_view v) override {
    return Scalar([&](json::Handler& h) { return h.BigInt(v); });
  }
  bool Double(double v) override {
    return Scalar([&](json::Handler& h) { return h.Double(v); });
  }
  bool String(std::string_view v) override {
    return Scalar([&](json::Handler& h) { return h.String(v); });
  }
  bool StartArray() override {
    return Open(false, [](json::Handler& h) { return h.StartArray(); });
  }
  bool EndArray() override {
    return Close([](json::Handler& h) { return h.EndArray(); });
  }
  bool StartObject() override {
    return Open(true, [](json::Handler& h) { return h.StartObject(); });
  }
  bool EndObject() override {
    return Close([](json::Handler& h) { return h.EndObject(); });
  }
  bool Key(std::string_view key) override {
    if (inside_ > 0) return !building_ || builder_.Key(key);
    key_ = key;
    return true;
  }

 private:
  // Depth of containers that are not being collected: 0 before the top object, 1 in it, 2 in the
  // member descended into.
  bool BeforeTop() const { return depth_ == 0; }
  bool AtDescend() const { return depth_ == 1 && !descend_.empty() && key_ == descend_; }

  bool Refuse(bool list) {
    not_an_object_ = true;
    list_ = list;
    return false;
  }

  template <class Event>
  bool Scalar(Event event) {
    if (inside_ > 0) return !building_ || event(builder_);
    if (BeforeTop()) return Refuse(false);
    if (AtDescend()) {
      Descended(false);
      return true;
    }
    if (!WantsNow()) return true;
    return event(builder_) && Deliver();
  }

  template <class Event>
  bool Open(bool object, Event event) {
    if (inside_ > 0) {
      ++inside_;
      return !building_ || event(builder_);
    }
    if (BeforeTop()) {
      if (!object) return Refuse(true);
      depth_ = 1;
      return true;
    }
    if (AtDescend()) {
      Descended(object);
      if (object) {
        depth_ = 2;
        return true;
      }
      building_ = false;
    } else {
      building_ = WantsNow();
    }
    inside_ = 1;
    return !building_ || event(builder_);
  }

  template <class Event>
  bool Close(Event event) {
    if (inside_ == 0) {
      if (depth_ == 2) key_ = descend_;
      --depth_;
      return true;
    }
    --inside_;
    if (!building_) return true;
    if (!event(builder_)) return false;
    return inside_ > 0 || Deliver();
  }

  bool WantsNow() { return depth_ == 2 || Wants(key_); }

  bool Deliver() {
    const json::Document document = builder_.Take();
    return Member(depth_ == 2, key_, document.root());
  }

  std::string descend_;
  std::string key_;
  json::ValueBuilder builder_;
  int depth_ = 0;
  uint32_t inside_ = 0;    // containers open inside the current member's value
  bool building_ = false;  // the current member's value is being built
  bool not_an_object_ = false, list_ = false;
};

class DumpSplitter final : public MemberSplitter {
 public:
  // `names` collects hashes of the names delivered; nullptr: not needed.
  DumpSplitter(ReadInfo& info, const EntryFn& entry, std::unordered_set<size_t>* names)
      : MemberSplitter("data"), info_(info), entry_(entry), names_(names) {}

  bool Wants(std::string_view key) override {
    return key == "task" || key == "level" || key == "framework" || key == "dump_data_dir" ||
           key == "msprobe";
  }

  void Descended(bool is_object) override { info_.header.has_data = is_object; }

  bool Member(bool nested, std::string_view key, const json::Value& value) override {
    if (nested) {
      ++info_.entries;
      if (names_ != nullptr) names_->insert(std::hash<std::string_view>()(key));
      return entry_(key, value);
    }
    Header& header = info_.header;
    if (key == "msprobe") {
      const json::Value* version = value.Find("format_version");
      if (version != nullptr && version->is_int()) header.format_version = version->as_int();
      const json::Value* complete = value.Find("complete");
      if (complete != nullptr && complete->is_bool()) header.complete = complete->as_bool();
      return true;
    }
    std::optional<std::string> text;
    if (value.is_string()) text = std::string(value.as_string());
    if (key == "task") header.task = text.value_or("");
    if (key == "level") header.level = text.value_or("");
    if (key == "framework") header.framework = text.value_or("");
    if (key == "dump_data_dir") header.dump_data_dir = std::move(text);
    return true;
  }

 private:
  ReadInfo& info_;
  const EntryFn& entry_;
  std::unordered_set<size_t>* names_;
};

// Every member of the top-level object, for stack.json and construct.json.
class TopMembers final : public MemberSplitter {
 public:
  using Fn = std::function<void(std::string_view, const json::Value&)>;
  explicit TopMembers(Fn fn) : fn_(std::move(fn)) {}
  bool Wants(std::string_view) override { return true; }
  bool Member(bool, std::string_view key, const json::Value& value) override {
    ++members;
    fn_(key, value);
    return true;
  }
  uint64_t members = 0;

 private:
  Fn fn_;
};

// Whether a parse that ended with `error` may keep what came before: an early end or a tear does
// not spoil complete members, a limit does.
bool IsTear(const Error& error) {
  return error.code == ErrorCode::kTruncated || error.code == ErrorCode::kMalformed;
}

Status RefuseEmpty(const InputFile& file) {
  if (file.size() > 0) return {};
  return Error(ErrorCode::kTruncated, "the file is empty")
      .At(file.path())
      .Hint("a JSON object is expected");
}

Status ReadTopMembers(const std::string& path, TopMembers::Fn fn) {
  MSPROBE_ASSIGN(const InputFile file, InputFile::Open(path));
  MSPROBE_TRY(RefuseEmpty(file));
  TopMembers members(std::move(fn));
  auto parsed = json::ParseFile(file, members);
  if (members.not_an_object())
    return NotAnObject(path, members.top_level_is_list() ? "a list" : "a single value");
  if (!parsed.ok() && (!IsTear(parsed.error()) || members.members == 0))
    return std::move(parsed).error();
  return {};
}

bool AllStrings(const json::Value& value, std::vector<std::string>& out) {
  if (!value.is_array()) return false;
  out.reserve(value.size());
  for (const json::Value& item : value) {
    if (!item.is_string()) return false;
    out.emplace_back(item.as_string());
  }
  return true;
}

}  // namespace

namespace {

// The journal that belongs to `path`, which is called `name`. One that cannot be read is as good as
// none.
Journal JournalBeside(const std::string& path, std::string_view name) {
  if (BaseName(path) != name) return {};
  auto journal = ReadJournal(DirName(path));
  return journal.ok() ? std::move(journal).value() : Journal{};
}

// Entries that were recorded after the last flush. `in_file` holds the names that the file has
// beyond what the journal knows of: a flush was under way, and those are the same entries.
void DeliverJournal(const Journal& journal, const std::unordered_set<size_t>& in_file,
                    const EntryFn& entry, ReadInfo& info) {
  std::unordered_map<std::string_view, size_t> last;
  for (size_t k = 0; k < journal.records.size(); ++k)
    if (journal.records[k].kind == RecordKind::kEntry) last[journal.records[k].name] = k;
  for (size_t k = 0; k < journal.records.size(); ++k) {
    const JournalRecord& record = journal.records[k];
    if (record.kind != RecordKind::kEntry || last[record.name] != k) continue;
    if (in_file.contains(std::hash<std::string_view>()(record.name))) continue;
    const auto document = json::ParseDocument(record.value);
    if (!document.ok()) continue;
    ++info.entries;
    ++info.journal_entries;
    if (!entry(record.name, document->root())) return;
  }
}

}  // namespace

Result<ReadInfo> ReadDump(const std::string& path, const EntryFn& entry) {
  // The journal first: what a living process flushes meanwhile is then in both, and not in neither.
  Journal journal = JournalBeside(path, "dump.json");
  if (journal.records.empty()) journal = JournalBeside(path, "debug.json");
  MSPROBE_ASSIGN(const InputFile file, InputFile::Open(path));
  if (journal.records.empty()) MSPROBE_TRY(RefuseEmpty(file));
  const bool flushed_since = !journal.records.empty() && journal.dump_size != file.size();
  std::unordered_set<size_t> in_file;
  ReadInfo info;
  bool stopped = false;
  const EntryFn watched = [&](std::string_view name, const json::Value& value) {
    stopped = !entry(name, value);
    return !stopped;
  };
  DumpSplitter splitter(info, watched, flushed_since ? &in_file : nullptr);
  auto parsed = json::ParseFile(file, splitter);
  if (splitter.not_an_object())
    return NotAnObject(path, splitter.top_level_is_list() ? "a list" : "a single value");
  if (!stopped) DeliverJournal(journal, in_file, watched, info);
  if (!parsed.ok()) {
    Error error = std::move(parsed).error();
    if (error.path.empty()) error.path = path;
    if (!IsTear(error) || info.entries == 0) return error;
    info.torn = true;
    info.tear = std::move(error);
  }
  return info;
}

const std::vector<std::string>* StackTable::Find(const std::string& entry) const {
  const auto it = of_entry.find(entry);
  return it == of_entry.end() ? nullptr : &stacks[it->second];
}

namespace {

void AddFromJournal(const Journal& journal, StackTable& table) {
  std::unordered_map<std::string_view, uint32_t>
      index_of;  // number of a stack -> index in the table
  for (const JournalRecord& record : journal.records) {
    if (record.kind == RecordKind::kFrames) {
      std::vector<std::string> lines;
      const auto document = json::ParseDocument(record.value);
      if (!document.ok() || !AllStrings(document->root(), lines)) continue;
      index_of[record.name] = static_cast<uint32_t>(table.stacks.size());
      table.stacks.push_back(std::move(lines));
    }
    if (record.kind != RecordKind::kStack) continue;
    const auto it = index_of.find(record.value);
    if (it != index_of.end()) table.of_entry.insert_or_assign(record.name, it->second);
  }
}

}  // namespace

Result<StackTable> ReadStack(const std::string& path) {
  // Which of the two shapes the file has is certain only once the key "0" was met or the file has
  // ended, so both readings of an item are kept apart until then.
  struct Item {
    std::vector<std::string> names, lines;
  };
  const Journal journal = JournalBeside(path, "stack.json");
  std::vector<Item> numbered, named;
  uint64_t neither = 0;
  bool new_shape = false;
  MSPROBE_TRY(ReadTopMembers(path, [&](std::string_view key, const json::Value& value) {
    if (key == "0" && (value.is_array() || value.is_object() || value.is_string()))
      new_shape = new_shape || value.size() > 0;
    Item item;
    if (value.is_array() && value.size() == 2 && value[0].is_array() && value[1].is_array()) {
      if (AllStrings(value[0], item.names) && AllStrings(value[1], item.lines))
        numbered.push_back(std::move(item));
      else
        ++neither;
    } else if (AllStrings(value, item.lines)) {
      item.names.emplace_back(key);
      named.push_back(std::move(item));
    } else {
      ++neither;
    }
  }));

  StackTable table;
  table.skipped = neither + (new_shape ? named.size() : numbered.size());
  for (Item& item : new_shape ? numbered : named) {
    const auto index = static_cast<uint32_t>(table.stacks.size());
    table.stacks.push_back(std::move(item.lines));
    for (std::string& name : item.names) table.of_entry.insert_or_assign(std::move(name), index);
  }
  AddFromJournal(journal, table);
  return table;
}

Result<std::unordered_map<std::string, std::string>> ReadConstruct(const std::string& path) {
  std::unordered_map<std::string, std::string> parents;
  const Journal journal = JournalBeside(path, "construct.json");
  const auto add = [&](std::string_view child, const json::Value& value) {
    const json::Value* parent = &value;
    if (value.is_array() && value.size() == 2) parent = &value[0];  // [parent, micro step]
    if (parent->is_null()) parents.insert_or_assign(std::string(child), std::string());
    if (parent->is_string())
      parents.insert_or_assign(std::string(child), std::string(parent->as_string()));
  };
  MSPROBE_TRY(ReadTopMembers(path, add));
  for (const JournalRecord& record : journal.records) {
    if (record.kind != RecordKind::kConstruct) continue;
    const auto document = json::ParseDocument(record.value);
    if (document.ok()) add(record.name, document->root());
  }
  return parents;
}

// ---- folders
// ---------------------------------------------------------------------------------------------------------------

namespace {

// The number after `prefix` when that is the whole rest of `name`.
std::optional<int64_t> NumberAfter(std::string_view name, std::string_view prefix,
                                   bool leading_zeros) {
  if (!name.starts_with(prefix)) return std::nullopt;
  name.remove_prefix(prefix.size());
  if (name.empty() || name.front() < '0' || name.front() > '9') return std::nullopt;
  if (!leading_zeros && name.size() > 1 && name.front() == '0') return std::nullopt;
  int64_t number = 0;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), number);
  if (error != std::errc() || end != name.data() + name.size()) return std::nullopt;
  return number;
}

Status ForEachFolder(const std::string& dir,
                     const std::function<void(const std::string& name, std::string path)>& fn) {
  DIR* handle = opendir(dir.c_str());
  if (handle == nullptr) return ErrnoError(errno, "list", dir);
  for (errno = 0; const dirent* item = readdir(handle); errno = 0) {
    const std::string name = item->d_name;
    if (name == "." || name == "..") continue;
    std::string path = JoinPath(dir, name);
    if (IsDirectory(path)) fn(name, std::move(path));
  }
  const int err = errno;
  closedir(handle);
  if (err != 0) return ErrnoError(err, "list", dir);
  return {};
}

}  // namespace

Result<std::vector<RankDir>> ListRanks(const std::string& step_dir) {
  std::vector<RankDir> ranks;
  MSPROBE_TRY(ForEachFolder(step_dir, [&](const std::string& name, std::string path) {
    if (name == "rank") {
      ranks.push_back({name, std::move(path), RankDir::Kind::kPlain, 0});
    } else if (const auto rank = NumberAfter(name, "rank", false)) {
      ranks.push_back({name, std::move(path), RankDir::Kind::kRank, *rank});
    } else if (const auto process = NumberAfter(name, "proc", true)) {
      ranks.push_back({name, std::move(path), RankDir::Kind::kProcess, *process});
    }
  }));
  const auto order = [](const RankDir& r) {
    return r.kind == RankDir::Kind::kPlain ? 0 : r.kind == RankDir::Kind::kRank ? 1 : 2;
  };
  std::sort(ranks.begin(), ranks.end(), [&](const RankDir& a, const RankDir& b) {
    return std::tuple(order(a), a.number, std::string_view(a.name)) <
           std::tuple(order(b), b.number, std::string_view(b.name));
  });
  return ranks;
}

Result<std::vector<StepDir>> ListSteps(const std::string& root) {
  std::vector<StepDir> steps;
  MSPROBE_TRY(ForEachFolder(root, [&](const std::string& name, std::string path) {
    if (const auto step = NumberAfter(name, "step", false))
      steps.push_back({name, std::move(path), *step});
  }));
  std::sort(steps.begin(), steps.end(),
            [](const StepDir& a, const StepDir& b) { return a.number < b.number; });
  return steps;
}

}  // namespace msprobe::dump
