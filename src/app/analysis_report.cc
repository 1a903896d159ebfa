#include "app/analysis_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <unordered_set>

#include "base/file.h"
#include "base/time.h"

namespace msprobe::app {
namespace {

void WriteStrings(json::Writer& w, const std::vector<std::string>& list) {
  w.StartArray();
  for (const std::string& s : list) w.String(s);
  w.EndArray();
}

void WriteRank(json::Writer& w, const AnalysisRank& r, bool overflow) {
  w.StartObject();
  if (!r.step.empty()) w.Key("step").String(r.step);
  w.Key("rank").String(r.rank);
  w.Key("target").String(r.path);
  w.Key("status").String(r.problem.empty() ? "done" : "failed");
  if (!r.problem.empty()) {
    w.Key("problem").String(r.problem);
    w.EndObject();
    return;
  }
  w.Key("entries").Uint(r.entries);
  w.Key(overflow ? "source_count" : "different_count").Uint(r.bad);
  w.Key(overflow ? "sources" : "different");
  WriteStrings(w, r.sources);
  if (!overflow) {
    w.Key("not_compared").Uint(r.not_compared);
    w.Key("report").String(r.report);
  } else {
    w.Key("first_consumer");
    if (r.first_consumer) {
      w.StartObject();
      w.Key("entry").String(*r.first_consumer);
      w.Key("reason").String(r.consumer_reason);
      w.EndObject();
    } else {
      w.Null();
    }
  }
  w.EndObject();
}

std::string SummaryText(const std::vector<std::pair<std::string, std::string>>& echo,
                        const std::vector<std::string>& inputs, const AnalysisRun& run) {
  const bool overflow = run.command != "compare";
  std::string text;
  json::Writer w(text, 2);
  uint64_t entries = 0, bad = 0;
  for (const AnalysisRank& r : run.ranks) {
    entries += r.entries;
    bad += r.bad;
  }
  w.StartObject();
  w.Key("format_version").Int(1);
  w.Key("tool_version").String(MSPROBE_VERSION);
  w.Key("command").String(run.command);
  w.Key("options").StartObject();
  for (const auto& [key, value] : echo) w.Key(key).String(value);
  w.EndObject();
  w.Key("inputs");
  WriteStrings(w, inputs);
  w.Key("started").String(IsoUtc(run.started));
  w.Key("seconds").Double(std::round(run.seconds * 1000) / 1000);
  w.Key("counts").StartObject();
  w.Key("ranks").Uint(run.ranks.size());
  w.Key("entries").Uint(entries);
  w.Key(overflow ? "sources" : "different").Uint(bad);
  w.EndObject();
  w.Key("first").StartArray();
  for (const FoundEntry& f : run.first) {
    w.StartObject();
    if (!f.step.empty()) w.Key("step").String(f.step);
    w.Key("rank").Int(f.rank);
    w.Key("entry").String(f.entry);
    w.Key("reason").String(f.reason);
    w.EndObject();
  }
  w.EndArray();
  w.Key("reports");
  WriteStrings(w, run.reports);
  w.Key("ranks").StartArray();
  for (const AnalysisRank& r : run.ranks) WriteRank(w, r, overflow);
  w.EndArray();
  w.Key("messages");
  WriteStrings(w, run.messages);
  w.EndObject();
  return text + "\n";
}

}  // namespace

int64_t RankNumber(std::string_view name) {
  int64_t number = 0;
  if (!name.starts_with("rank")) return 0;
  const std::string_view digits = name.substr(4);
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), number);
  return error == std::errc() && end == digits.data() + digits.size() ? number : 0;
}

Status WriteTextFile(const std::string& path, std::string_view text) {
  MSPROBE_ASSIGN(AtomicFile file, AtomicFile::Create(path));
  MSPROBE_TRY(file.Write(text));
  return file.Commit();
}

std::string FreeNanoPath(const std::string& dir, std::string_view prefix) {
  for (int64_t now = UnixNanoseconds();; ++now) {
    std::string path = JoinPath(dir, fmt::format("{}{}.json", prefix, now));
    if (!PathExists(path)) return path;
  }
}

Status WriteAnalysisSummary(const std::string& dir,
                            const std::vector<std::pair<std::string, std::string>>& echo,
                            const std::vector<std::string>& inputs, AnalysisRun& run) {
  const std::string pattern =
      (run.command == "compare" ? "diff_analyze" : run.command) + "_summary_{ts}.json";
  std::string name = pattern;
  name.replace(name.find("{ts}"), 4, LocalTimestamp(FreeTimestamp(dir, {pattern}, run.started)));
  run.summary_path = JoinPath(dir, name);
  return WriteTextFile(run.summary_path, SummaryText(echo, inputs, run));
}

EntryContext::EntryContext(const std::string& rank_dir, LogSink& log) {
  const std::string construct = JoinPath(rank_dir, "construct.json");
  if (PathExists(construct)) {
    auto read = dump::ReadConstruct(construct);
    if (read.ok()) {
      parents_ = std::move(read).value();
    } else {
      log.Warning("parents are not shown: " + read.error().ToString());
    }
  }
  const std::string stack = JoinPath(rank_dir, "stack.json");
  if (PathExists(stack)) {
    auto read = dump::ReadStack(stack);
    if (read.ok()) {
      stacks_ = std::move(read).value();
    } else {
      log.Warning("stacks are not shown: " + read.error().ToString());
    }
  }
}

void EntryContext::WriteParents(json::Writer& w, const std::string& entry) const {
  std::vector<std::string> chain = {entry};
  std::unordered_set<std::string> seen = {entry};
  for (auto it = parents_.find(entry); it != parents_.end() && !it->second.empty();
       it = parents_.find(it->second)) {
    if (!seen.insert(it->second).second) break;  // a file that names a circle
    chain.push_back(it->second);
  }
  std::reverse(chain.begin(), chain.end());
  WriteStrings(w, chain);
}

void EntryContext::WriteStack(json::Writer& w, const std::string& entry) const {
  const std::vector<std::string>* lines = stacks_ ? stacks_->Find(entry) : nullptr;
  if (lines == nullptr) {
    w.StartObject();
    w.EndObject();
  } else {
    WriteStrings(w, *lines);
  }
}

void MessageLog::Log(LogLevel level, std::string_view message) {
  constexpr size_t kMost = 200;
  inner_.Log(level, message);
  if (level < LogLevel::kWarning) return;
  const std::lock_guard lock(mutex_);
  if (messages_.size() < kMost) messages_.emplace_back(message);
}

}  // namespace msprobe::app
