#include "collect/step_files.h"

#include <fmt/format.h>
#include <unistd.h>

#include <atomic>

#include "base/file.h"
#include "json/json.h"

namespace msprobe::collect {
namespace {

std::string HeadText(const StepHeader& header) {
  std::string head = "{\n \"task\": ";
  json::AppendString(head, header.task);
  head += ",\n \"level\": ";
  json::AppendString(head, header.level);
  head += ",\n \"framework\": \"pytorch\",\n \"dump_data_dir\": ";
  if (header.tensor_dir.has_value())
    json::AppendString(head, *header.tensor_dir);
  else
    head += "null";
  head += ",\n \"data\": {";
  return head;
}

constexpr size_t kLeastJournal = 32u << 10;

Result<std::optional<dump::JournalWriter>> MakeJournal(const JournalSpace& space,
                                                       uint64_t dump_size) {
  std::optional<dump::JournalWriter> journal;
  for (size_t capacity = space.capacity; space.fd >= 0; capacity /= 4) {
    auto made = dump::JournalWriter::Create(space.fd, capacity, dump_size);
    if (made.ok()) {
      journal.emplace(std::move(made).value());
      break;
    }
    if (made.error().code != ErrorCode::kNoSpace) break;
    if (capacity / 4 < kLeastJournal) return std::move(made).error();
  }
  return journal;
}

uint64_t NextRound() {
  static std::atomic<uint64_t> round{0};
  return round.fetch_add(1) + 1;
}

std::string DumpPath(const std::string& folder, const StepHeader& header) {
  return JoinPath(folder, header.debug ? "debug.json" : "dump.json");
}

}  // namespace

// ---- StackBook
// -------------------------------------------------------------------------------------

uint32_t StackBook::Add(std::vector<std::string> frame_lines) {
  Stack stack;
  stack.frames_json = "[";
  for (const std::string& line : frame_lines) {
    if (stack.frames_json.size() > 1) stack.frames_json += ", ";
    json::AppendString(stack.frames_json, line);
  }
  stack.frames_json += ']';
  stacks_.push_back(std::move(stack));
  return static_cast<uint32_t>(stacks_.size() - 1);
}

void StackBook::Note(uint32_t stack, std::string_view entry) {
  if (stack >= stacks_.size()) return;
  std::string& names = stacks_[stack].names_json;
  if (names.empty())
    noted_.push_back(stack);
  else
    names += ", ";
  json::AppendString(names, entry);
}

void StackBook::Drain(dump::GrowingObject& file) {
  for (const uint32_t id : noted_) {
    Stack& stack = stacks_[id];
    file.Append(fmt::format_int(file.members()).c_str(),
                fmt::format("[[{}], {}]", stack.names_json, stack.frames_json));
    stack.names_json.clear();
  }
  noted_.clear();
}

void StackBook::Forget() {
  for (const uint32_t id : noted_) stacks_[id].names_json.clear();
  noted_.clear();
}

// ---- StepFiles
// -------------------------------------------------------------------------------------

Result<StepFiles> StepFiles::Create(const std::string& folder, const StepHeader& header,
                                    const JournalSpace& journal) {
  MSPROBE_ASSIGN(auto dump, dump::GrowingObject::Create(DumpPath(folder, header), HeadText(header),
                                                        "}\n}", 2));
  StepFiles files(std::move(dump));
  files.journal_round_ = NextRound();
  const auto rest = [&]() -> Status {
    if (header.extra_info && !header.debug) {
      MSPROBE_ASSIGN(files.stack_,
                     dump::GrowingObject::Create(JoinPath(folder, "stack.json"), "{", "}", 1));
      MSPROBE_ASSIGN(files.construct_,
                     dump::GrowingObject::Create(JoinPath(folder, "construct.json"), "{", "}", 1));
    }
    MSPROBE_ASSIGN(files.journal_, MakeJournal(journal, files.dump_.bytes()));
    return {};
  };
  Status made = rest();
  if (made.ok()) return files;
  for (const auto* file : {&files.dump_, files.stack_ ? &*files.stack_ : nullptr,
                           files.construct_ ? &*files.construct_ : nullptr})
    if (file != nullptr) unlink(file->path().c_str());
  return std::move(made).error();
}

bool StepFiles::Journal(dump::RecordKind kind, std::string_view name, std::string_view value) {
  if (!journal_.has_value() || journal_->Append(kind, name, value)) return true;
  journal_full_ = true;
  return false;
}

StepFiles::MemberId StepFiles::AppendEntry(std::string_view name, std::string_view value,
                                           std::string_view journal_value) {
  if (!Journal(dump::RecordKind::kEntry, name, journal_value)) ++not_journaled_;
  return dump_.Append(name, value);
}

uint64_t StepFiles::lost_entries() const {
  return journal_.has_value() ? not_journaled_ : dump_.pending_members();
}

bool StepFiles::ReplaceEntry(MemberId member, std::string_view name, std::string_view value,
                             std::string_view journal_value) {
  if (!dump_.Replace(member, name, value)) return false;
  Journal(dump::RecordKind::kEntry, name, journal_value);
  return true;
}

StepFiles::MemberId StepFiles::AppendConstruct(std::string_view child, std::string_view parent) {
  if (!construct_.has_value()) return 0;
  std::string value;
  if (parent.empty())
    value = "null";
  else
    json::AppendString(value, parent);
  Journal(dump::RecordKind::kConstruct, child, value);
  return construct_->Append(child, value);
}

void StepFiles::NoteStack(StackBook& stacks, uint32_t stack, std::string_view entry) {
  if (!stack_.has_value() || stack >= stacks.stacks_.size()) return;
  stacks.Note(stack, entry);
  if (!journal_.has_value()) return;
  const fmt::format_int number(stack);
  const std::string_view text(number.data(), number.size());
  StackBook::Stack& known = stacks.stacks_[stack];
  if (known.journal_round != journal_round_) {
    known.journal_round = journal_round_;
    Journal(dump::RecordKind::kFrames, text, known.frames_json);
  }
  Journal(dump::RecordKind::kStack, entry, text);
}

bool StepFiles::DropLastConstruct(MemberId member) {
  return construct_.has_value() && construct_->DropLast(member);
}

size_t StepFiles::pending_bytes() const {
  return dump_.pending_bytes() + (construct_.has_value() ? construct_->pending_bytes() : 0);
}

uint64_t StepFiles::bytes() const {
  return dump_.bytes() + (stack_.has_value() ? stack_->bytes() : 0) +
         (construct_.has_value() ? construct_->bytes() : 0);
}

Status StepFiles::Flush(StackBook& stacks) {
  MSPROBE_TRY(dump_.Flush());
  not_journaled_ = 0;
  if (stack_.has_value()) {
    stacks.Drain(*stack_);
    MSPROBE_TRY(stack_->Flush());
  }
  if (construct_.has_value()) MSPROBE_TRY(construct_->Flush());
  if (journal_.has_value()) {
    journal_->Reset(dump_.bytes());
    journal_full_ = false;
    journal_round_ = NextRound();
  }
  return {};
}

Status StepFiles::Close(StackBook& stacks, std::string_view footer_json) {
  // The other files first: dump.json may call itself complete only when they are.
  if (stack_.has_value()) {
    stacks.Drain(*stack_);
    MSPROBE_TRY(stack_->Close("}"));
  }
  if (construct_.has_value()) MSPROBE_TRY(construct_->Close("}"));
  return dump_.Close(fmt::format("}},\n \"msprobe\": {}\n}}", footer_json));
}

Status StepFiles::Move(const std::string& folder, const StepHeader& header) {
  MSPROBE_TRY(dump_.Rebase(DumpPath(folder, header), HeadText(header)));
  if (stack_.has_value()) MSPROBE_TRY(stack_->Rebase(JoinPath(folder, "stack.json"), "{"));
  if (construct_.has_value())
    MSPROBE_TRY(construct_->Rebase(JoinPath(folder, "construct.json"), "{"));
  return {};
}

void StepFiles::Abandon() {
  dump_.Abandon();
  if (stack_.has_value()) stack_->Abandon();
  if (construct_.has_value()) construct_->Abandon();
}

}  // namespace msprobe::collect
