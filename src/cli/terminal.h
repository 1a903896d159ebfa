// What a person at a terminal sees: messages and progress on stderr, error lines, interrupts.
#pragma once

#include <mutex>
#include <span>
#include <string_view>

#include "base/error.h"
#include "base/log.h"
#include "cli/progress.h"

namespace msprobe::cli {

// -q, -v, --debug and -h of every command.
struct TerminalFlags {
  bool quiet = false, verbose = false, debug = false, help = false;
};

// Log and progress share stderr, so one object owns it. Progress is a line that
// is written over on a terminal, and a plain line every ten seconds elsewhere.
class Terminal final : public LogSink, public ProgressSink {
 public:
  explicit Terminal(LogLevel level);
  ~Terminal() override;
  void set_level(LogLevel level) { level_ = level; }
  void SetLevel(const TerminalFlags& flags);

  void Log(LogLevel level, std::string_view message) override;
  void Update(std::string_view stage, uint64_t done, uint64_t total) override;

  // "msprobe: error: …" for each of up to 20 problems, then a count of the rest (decisions.md 2).
  void PrintErrors(std::span<const struct Error> errors);
  // A line on stderr without prefix level, shown at every level; control characters are escaped.
  void PrintLine(std::string_view line);
  // Text on stdout.
  void PrintAnswer(std::string_view text);

 private:
  void ClearProgress();
  void Write(std::string_view line);

  std::mutex mutex_;
  LogLevel level_;
  bool is_terminal_ = false;
  bool progress_shown_ = false;
  bool quiet_ = false;
  Progress progress_;
};

// While it lives, the first SIGINT or SIGTERM cancels `token`; a second one ends the process as
// usual. Restores the handlers before.
class InterruptScope {
 public:
  explicit InterruptScope(CancelToken& token);
  ~InterruptScope();
  InterruptScope(const InterruptScope&) = delete;
  InterruptScope& operator=(const InterruptScope&) = delete;
  // 0, or the number of the signal that came.
  int signal() const;
  // Exit status of a command that was interrupted: that of the signal, of SIGINT when none came.
  int status() const;

 private:
  struct Saved;
  Saved* saved_;
};

// What a command that does work in several functions hands around.
struct Attended {
  Terminal& terminal;
  const InterruptScope& interrupts;
  const CancelToken& cancel;
  bool quiet = false;  // no answer on standard output
};

// Says the error that ended a command, or `interrupted` where the user ended it; the exit status.
int EndWithError(const Error& error, const InterruptScope& interrupts, Terminal& terminal,
                 std::string_view interrupted = "interrupted");

}  // namespace msprobe::cli
