// Append-only writing of dump.json, stack.json and construct.json: valid JSON after every flush,
// constant cost per entry.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "base/result.h"

namespace msprobe::dump {

// One JSON object file whose last open object grows. `head` is everything up to and including the
// '{' of the growing object (as Python's indent=1 would print it), `tail` what closes the file,
// beginning with the '}' of the growing object; the line break before that '}' is written by this
// class once there is a member. Members stand one a line, `member_indent` blanks in. Flush() writes
// the pending members and the tail with one write at the place of the old tail, so the file is
// valid JSON after each flush, and what a torn write leaves is the old members plus a broken end.
// When a write fails, the old tail is put back: the file then is what it was before. The file
// appears under `path` only when its first state (no members) is complete. Not thread-safe.
class GrowingObject {
 public:
  // A member that was appended; good for Replace() until it is flushed.
  using MemberId = uint64_t;

  // Errors: kNotFound (no such folder), kPermission, kNoSpace, kIo. An existing file of that name
  // is replaced.
  static Result<GrowingObject> Create(const std::string& path, std::string head, std::string tail,
                                      int member_indent);
  GrowingObject(GrowingObject&&) noexcept;
  GrowingObject& operator=(GrowingObject&&) noexcept;
  ~GrowingObject();  // flushes nothing

  // `value` is a whole JSON value. Keys are not checked for repetition: readers take the last.
  MemberId Append(std::string_view key, std::string_view value);
  // Another value for a member that was appended since the last flush; it keeps its place. false
  // (and nothing done) when it is in the file already.
  bool Replace(MemberId member, std::string_view key, std::string_view value);
  // Takes back the member appended last; false when it is in the file or was not the last.
  bool DropLast(MemberId member);
  void DropPending();  // forgets what was appended since the last flush
  size_t pending_bytes() const;
  uint64_t pending_members() const;
  uint64_t members() const;  // appended so far
  uint64_t bytes() const;    // of the file after the last flush
  // kNotFound when the file was removed meanwhile: nobody will find what is written to it.
  Status Flush();
  bool removed() const;            // by somebody else, while it is open
  Status Close(std::string tail);  // flush with another tail (e.g. the "msprobe" object) and close
  const std::string& path() const;

  // The file now lives at `path` (its folder was renamed) and shall begin with `head` instead:
  // written anew beside the old one with all flushed members, then renamed over it. Pending members
  // stay pending.
  Status Rebase(const std::string& path, std::string head);
  // Closes the descriptor and writes nothing any more; for a forked child, whose parent owns the
  // file.
  void Abandon();

 private:
  GrowingObject();
  struct Rep;
  std::unique_ptr<Rep> rep_;
};

}  // namespace msprobe::dump
