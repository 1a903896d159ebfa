// The journal beside dump.json: what was recorded but not yet flushed, in a shared mapping that
// survives the process (decisions.md 8).
//
// Layout, little-endian: 8 bytes magic, u64 generation, two u64 sizes of dump.json (the one of
// index generation % 2 holds), zeros up to byte 64, then records, each at a multiple of 8: u32
// bytes of the payload, u32 CRC-32 of generation and payload; payload: u8 kind, 3 zero bytes, u32
// bytes of the name, name, value. The first record whose length or CRC is wrong ends the list: it
// belongs to an older generation or was being written when the process died.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace msprobe::dump {

inline constexpr char kJournalName[] = ".msprobe_journal";

enum class RecordKind : uint8_t {
  kEntry = 1,      // a member of `data`: name and JSON value
  kConstruct = 2,  // a member of construct.json: name and JSON value
  kFrames = 3,     // the number of a stack, in decimal, and the JSON list of its frame lines
  kStack = 4,      // an entry name and the number of its stack; its kFrames record comes before
};

// Writing side. Not thread-safe. Append() makes no system call.
class JournalWriter {
 public:
  // Takes over the content of `fd`, which stays the caller's: sizes the file to hold `capacity`
  // bytes of records, reserves the space (a full disk must not turn a store into a signal) and maps
  // it. `dump_size`: of dump.json now. Errors: kNoSpace, kIo.
  static Result<JournalWriter> Create(int fd, size_t capacity, uint64_t dump_size);
  JournalWriter(JournalWriter&& other) noexcept;
  JournalWriter& operator=(JournalWriter&& other) noexcept;
  ~JournalWriter();

  // false when there is no room: flush, Reset() and go on.
  bool Append(RecordKind kind, std::string_view name, std::string_view value);
  // Everything appended so far has reached the JSON files; dump.json has `dump_size` bytes now.
  void Reset(uint64_t dump_size);

 private:
  JournalWriter() = default;
  std::byte* base_ = nullptr;
  size_t size_ = 0, at_ = 0;
  uint64_t generation_ = 0;
};

struct JournalRecord {
  RecordKind kind = RecordKind::kEntry;
  std::string name, value;
};

struct Journal {
  uint64_t dump_size = 0;              // of dump.json when the first of the records was written
  std::vector<JournalRecord> records;  // in order of writing
};

// The journal in `folder`; without records when there is none, or none that this tool wrote.
// Errors: those of reading a file that exists.
Result<Journal> ReadJournal(const std::string& folder);

}  // namespace msprobe::dump
