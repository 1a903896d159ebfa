#include "cli/terminal.h"

#include <fmt/format.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstdio>
#include <optional>
#include <string>

#include "base/text.h"
#include "base/time.h"
#include "cli/status.h"

namespace msprobe::cli {
namespace {

std::string_view LevelName(LogLevel level) {
  switch (level) {
    case LogLevel::kDebug:
      return "debug";
    case LogLevel::kInfo:
      return "info";
    case LogLevel::kWarning:
      return "warning";
    case LogLevel::kError:
      return "error";
  }
  return "";
}

std::atomic<CancelToken*> g_token{nullptr};
std::atomic<int> g_signal{0};

extern "C" void OnInterrupt(int number) {
  g_signal.store(number, std::memory_order_relaxed);
  if (CancelToken* token = g_token.load(std::memory_order_relaxed)) token->Cancel();
}

}  // namespace

Terminal::Terminal(LogLevel level)
    : level_(level), is_terminal_(isatty(STDERR_FILENO) == 1), progress_(is_terminal_) {}

Terminal::~Terminal() {
  const std::lock_guard lock(mutex_);
  ClearProgress();
  std::fflush(stderr);
}

void Terminal::ClearProgress() {
  if (!progress_shown_) return;
  std::fputs("\r\x1b[K", stderr);
  progress_shown_ = false;
}

void Terminal::Write(std::string_view line) {
  ClearProgress();
  std::string text(line);
  text += '\n';
  std::fwrite(text.data(), 1, text.size(), stderr);
}

void Terminal::SetLevel(const TerminalFlags& flags) {
  if (flags.quiet) level_ = LogLevel::kWarning;
  quiet_ = flags.quiet;
  if (flags.verbose) level_ = LogLevel::kInfo;
  if (flags.debug) level_ = LogLevel::kDebug;
}

void Terminal::Log(LogLevel level, std::string_view message) {
  if (level < level_) return;
  const std::lock_guard lock(mutex_);
  Write(fmt::format("msprobe: {}: {}", LevelName(level), VisibleText(message)));
}

void Terminal::Update(std::string_view stage, uint64_t done, uint64_t total) {
  if (quiet_) return;
  const std::lock_guard lock(mutex_);
  const std::optional<std::string> line =
      progress_.Line(VisibleText(stage), done, total, MonotonicSeconds());
  if (!line) return;
  if (!is_terminal_) return Write("msprobe: " + *line);
  const std::string text = "\r\x1b[K" + *line;
  std::fwrite(text.data(), 1, text.size(), stderr);
  std::fflush(stderr);
  progress_shown_ = true;
}

void Terminal::PrintErrors(std::span<const struct Error> errors) {
  constexpr size_t kMost = 20;
  const std::lock_guard lock(mutex_);
  for (size_t i = 0; i < errors.size() && i < kMost; ++i) {
    Write("msprobe: error: " + errors[i].ToString());
  }
  if (errors.size() > kMost)
    Write(fmt::format("msprobe: error: and {} more", errors.size() - kMost));
}

void Terminal::PrintLine(std::string_view line) {
  const std::lock_guard lock(mutex_);
  Write("msprobe: " + VisibleText(line));
}

void Terminal::PrintAnswer(std::string_view text) {
  const std::lock_guard lock(mutex_);
  ClearProgress();
  std::fwrite(text.data(), 1, text.size(), stdout);
  std::fflush(stdout);
}

struct InterruptScope::Saved {
  struct sigaction interrupt;
  struct sigaction terminate;
};

InterruptScope::InterruptScope(CancelToken& token) : saved_(new Saved) {
  g_signal.store(0);
  g_token.store(&token);
  struct sigaction action = {};
  action.sa_handler = OnInterrupt;
  action.sa_flags = static_cast<int>(SA_RESETHAND);
  sigaction(SIGINT, &action, &saved_->interrupt);
  sigaction(SIGTERM, &action, &saved_->terminate);
}

InterruptScope::~InterruptScope() {
  sigaction(SIGINT, &saved_->interrupt, nullptr);
  sigaction(SIGTERM, &saved_->terminate, nullptr);
  g_token.store(nullptr);
  delete saved_;
}

int InterruptScope::signal() const { return g_signal.load(); }

int InterruptScope::status() const { return kSignalBase + (signal() != 0 ? signal() : SIGINT); }

int EndWithError(const Error& error, const InterruptScope& interrupts, Terminal& terminal,
                 std::string_view interrupted) {
  if (error.code == ErrorCode::kCancelled) {
    terminal.PrintLine(interrupted);
    return interrupts.status();
  }
  terminal.PrintErrors({&error, 1});
  return StatusOf(error);
}

}  // namespace msprobe::cli
