// What the analyses have in common: summary, names of reports, parents and stacks of an entry.
#pragma once

#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "app/analysis_app.h"
#include "base/log.h"
#include "base/result.h"
#include "dump/reader.h"
#include "json/json.h"

namespace msprobe::app {

// 3 of "rank3"; 0 of "rank", "" and other names.
int64_t RankNumber(std::string_view name);

Status WriteTextFile(const std::string& path, std::string_view text);
// dir/prefix{nanoseconds}.json, a name that is free.
std::string FreeNanoPath(const std::string& dir, std::string_view prefix);

// {command}_summary_{time}.json; sets run.summary_path.
Status WriteAnalysisSummary(const std::string& dir,
                            const std::vector<std::pair<std::string, std::string>>& echo,
                            const std::vector<std::string>& inputs, AnalysisRun& run);

// construct.json and stack.json of one rank folder; either may be missing.
class EntryContext {
 public:
  EntryContext(const std::string& rank_dir, LogSink& log);
  // The entry's parents from the outermost on, and the entry itself.
  void WriteParents(json::Writer& w, const std::string& entry) const;
  // The lines of its stack; {} when none is known.
  void WriteStack(json::Writer& w, const std::string& entry) const;

 private:
  std::unordered_map<std::string, std::string> parents_;
  std::optional<dump::StackTable> stacks_;
};

// Passes messages on and keeps the warnings for the summary.
class MessageLog final : public LogSink {
 public:
  explicit MessageLog(LogSink& inner) : inner_(inner) {}
  void Log(LogLevel level, std::string_view message) override;
  std::vector<std::string> Take() { return std::move(messages_); }

 private:
  LogSink& inner_;
  std::mutex mutex_;
  std::vector<std::string> messages_;
};

}  // namespace msprobe::app
