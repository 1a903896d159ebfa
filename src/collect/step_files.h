// The three JSON files of one step: dump.json (or debug.json), stack.json, construct.json.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "dump/journal.h"
#include "dump/writer.h"

namespace msprobe::collect {

// Call stacks, kept once per process, and the entries of the current step that came with each.
class StackBook {
 public:
  uint32_t Add(std::vector<std::string> frame_lines);
  void Note(uint32_t stack, std::string_view entry);
  // One item per stack that got names since the last call, in the order of their first name.
  void Drain(dump::GrowingObject& file);
  void Forget();  // names not yet drained

 private:
  friend class StepFiles;
  struct Stack {
    std::string frames_json;
    std::string names_json;      // without brackets; empty: none since the last Drain()
    uint64_t journal_round = 0;  // the frames are in the journal of that round
  };
  std::vector<Stack> stacks_;
  std::vector<uint32_t> noted_;  // stacks with names, by first name
};

struct StepHeader {
  std::string task, level;
  std::optional<std::string> tensor_dir;
  bool debug = false;      // debug.json alone
  bool extra_info = true;  // stack.json and construct.json too
};

// Where unflushed records are kept in case the process dies; fd -1: nowhere.
struct JournalSpace {
  int fd = -1;
  size_t capacity = 0;
};

class StepFiles {
 public:
  using MemberId = dump::GrowingObject::MemberId;
  // When there is no room for the journal, a smaller one is taken; none at all only where the file
  // system cannot have one. Errors: kNoSpace (then nothing is left), and those of writing.
  static Result<StepFiles> Create(const std::string& folder, const StepHeader& header,
                                  const JournalSpace& journal);

  // `journal_value`: the same as far as it holds should the process die now.
  MemberId AppendEntry(std::string_view name, std::string_view value,
                       std::string_view journal_value);
  bool ReplaceEntry(MemberId member, std::string_view name, std::string_view value,
                    std::string_view journal_value);
  // A value that will change yet: kept for the case that the process dies, not written.
  void JournalEntry(std::string_view name, std::string_view value) {
    Journal(dump::RecordKind::kEntry, name, value);
  }
  // `parent` empty: null.
  MemberId AppendConstruct(std::string_view child, std::string_view parent);
  bool DropLastConstruct(MemberId member);
  void NoteStack(StackBook& stacks, uint32_t stack, std::string_view entry);

  bool journal_full() const { return journal_full_; }  // flush now
  bool has_journal() const { return journal_.has_value(); }
  // After a flush that failed: entries that no reader can find, neither in the files nor in the
  // journal.
  uint64_t lost_entries() const;
  bool removed() const { return dump_.removed(); }  // dump.json, by somebody else
  size_t pending_bytes() const;
  uint64_t bytes() const;  // on disk
  Status Flush(StackBook& stacks);
  // The last flush; `footer_json` becomes the member "msprobe" of dump.json.
  Status Close(StackBook& stacks, std::string_view footer_json);
  Status Move(const std::string& folder, const StepHeader& header);
  void Abandon();

 private:
  explicit StepFiles(dump::GrowingObject dump) : dump_(std::move(dump)) {}
  bool Journal(dump::RecordKind kind, std::string_view name, std::string_view value);

  dump::GrowingObject dump_;
  std::optional<dump::GrowingObject> stack_, construct_;
  std::optional<dump::JournalWriter> journal_;
  bool journal_full_ = false;
  uint64_t not_journaled_ = 0;  // entries since the last flush
  uint64_t journal_round_ = 0;  // changes with each flush, over all steps of the process
};

}  // namespace msprobe::collect
