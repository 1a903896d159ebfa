#include "app/ranks_app.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <optional>

#include "app/analysis_report.h"
#include "app/output_folder.h"
#include "base/file.h"
#include "base/text.h"
#include "base/thread_pool.h"
#include "base/time.h"
#include "culprit/collectives.h"
#include "dump/reader.h"
#include "json/json.h"

namespace msprobe::app {
namespace {

constexpr int64_t kFormatVersion = 1;
constexpr size_t kMostShown = 8;

struct ReadRank {
  dump::RankDir dir;
  std::optional<Result<compare::RankLeaves>> leaves;
};

void JudgeCollectives(const std::vector<ReadRank>& ranks, RanksRun& run) {
  std::vector<culprit::RankDump> dumps;
  for (const ReadRank& r : ranks) {
    if (r.leaves->ok()) dumps.push_back({r.dir.number, JoinPath(r.dir.path, "dump.json")});
  }
  const std::vector<culprit::CollectiveScores> scores = culprit::JudgeCollectives(dumps, true);
  std::map<std::string, uint64_t> reasons;
  for (size_t i = 0; i < scores.size(); ++i) {
    for (const auto& [entry, score] : scores[i]) {
      ++(score.judged() ? run.judged : run.not_judged);
      if (!score.judged()) ++reasons[score.reason];
      if (!score.over()) continue;
      run.collectives.push_back({dumps[i].rank, entry, score.leaf, score.deviation, score.limit});
    }
  }
  std::sort(run.collectives.begin(), run.collectives.end(), [](const auto& a, const auto& b) {
    return std::tie(a.entry, a.rank) < std::tie(b.entry, b.rank);
  });
  run.why_not_judged.assign(reasons.begin(), reasons.end());
  std::stable_sort(run.why_not_judged.begin(), run.why_not_judged.end(),
                   [](const auto& a, const auto& b) { return a.second > b.second; });
}

void WriteStrings(json::Writer& w, std::string_view key, const std::vector<std::string>& list) {
  w.Key(key).StartArray();
  for (const std::string& s : list) w.String(s);
  w.EndArray();
}

void WriteFindings(json::Writer& w, const RanksRun& run) {
  w.Key("replicas").StartArray();
  for (const std::vector<int64_t>& group : run.replicas.groups) {
    w.StartArray();
    for (const int64_t rank : group) w.Int(rank);
    w.EndArray();
  }
  w.EndArray();
  w.Key("odd").StartArray();
  for (const compare::OddOne& o : run.replicas.odd) {
    w.StartObject();
    w.Key("kind").String(compare::OddKindName(o.kind));
    w.Key("rank");
    if (o.rank < 0) {
      w.Null();
    } else {
      w.Int(o.rank);
    }
    w.Key("entry").String(o.entry);
    w.Key("leaf").String(o.leaf);
    w.Key("reason").String(o.reason);
    w.Key("places").Uint(o.count);
    w.EndObject();
  }
  w.EndArray();
  w.Key("collectives").StartArray();
  for (const BadCollective& c : run.collectives) {
    w.StartObject();
    w.Key("rank").Int(c.rank);
    w.Key("entry").String(c.entry);
    w.Key("leaf").String(c.leaf);
    w.Key("deviation").Double(c.deviation);
    w.Key("limit").Double(c.limit);
    w.EndObject();
  }
  w.EndArray();
}

Status WriteSummary(const RanksOptions& options, RanksRun& run, int64_t started, double seconds) {
  std::string text;
  json::Writer w(text, 1);
  w.StartObject();
  w.Key("format_version").Int(kFormatVersion);
  w.Key("tool_version").String(MSPROBE_VERSION);
  w.Key("command").String("ranks");
  w.Key("options").StartObject();
  for (const auto& [name, value] : options.echo) w.Key(name).String(value);
  w.EndObject();
  WriteStrings(w, "inputs", {options.input_dir});
  w.Key("started").String(IsoUtc(started));
  w.Key("seconds").Double(seconds);
  w.Key("counts").StartObject();
  w.Key("ranks").Uint(run.ranks.size());
  w.Key("left_out").Uint(run.left_out.size());
  w.Key("leaves").Uint(run.replicas.leaves);
  w.Key("odd").Uint(run.replicas.odd.size());
  w.Key("collectives_judged").Uint(run.judged);
  w.Key("collectives_not_judged").Uint(run.not_judged);
  w.Key("collectives_wrong").Uint(run.collectives.size());
  w.EndObject();
  WriteStrings(w, "ranks", run.ranks);
  WriteStrings(w, "left_out", run.left_out);
  WriteFindings(w, run);
  w.Key("not_judged").StartObject();
  for (const auto& [reason, count] : run.why_not_judged) w.Key(reason).Uint(count);
  w.EndObject();
  WriteStrings(w, "messages", run.messages);
  w.EndObject();
  const int64_t stamp = FreeTimestamp(options.output_dir, {"ranks_summary_{ts}.json"}, started);
  run.summary_path =
      JoinPath(options.output_dir, fmt::format("ranks_summary_{}.json", LocalTimestamp(stamp)));
  return WriteTextFile(run.summary_path, text + "\n");
}

std::string RankList(const std::vector<int64_t>& ranks) {
  std::string out;
  for (size_t i = 0; i < ranks.size() && i < 2 * kMostShown; ++i) {
    out += fmt::format("{}{}", i == 0 ? "" : " ", ranks[i]);
  }
  return ranks.size() > 2 * kMostShown ? fmt::format("{} … ({} ranks)", out, ranks.size()) : out;
}

}  // namespace

Result<RanksRun> ReadAcrossRanks(const RanksOptions& options, LogSink& outer_log,
                                 ProgressSink& progress, const CancelToken* cancel) {
  RanksRun run;
  const int64_t started = UnixSeconds();
  const double begin = MonotonicSeconds();
  MessageLog log(outer_log);
  MSPROBE_ASSIGN(std::vector<dump::RankDir> dirs, dump::ListRanks(options.input_dir));
  std::erase_if(dirs, [](const auto& d) { return d.kind == dump::RankDir::Kind::kProcess; });
  if (dirs.size() < 2) {
    return Error(dirs.empty() ? ErrorCode::kNotFound : ErrorCode::kNothingToDo,
                 dirs.empty() ? "no rank folder inside" : "one rank only")
        .At(options.input_dir)
        .Hint("give the step folder of a dump with at least two rank<n> folders");
  }
  MSPROBE_ASSIGN(const OutputFolder folder, OutputFolder::Make(options.output_dir));
  std::vector<ReadRank> ranks(dirs.size());
  std::atomic<uint64_t> done{0};
  ParallelFor(
      dirs.size(), options.workers,
      [&](size_t i) {
        ranks[i].dir = dirs[i];
        ranks[i].leaves =
            compare::ReadRankLeaves(JoinPath(dirs[i].path, "dump.json"), dirs[i].number);
        progress.Update("read", ++done, dirs.size());
      },
      cancel);
  if (cancel != nullptr && cancel->cancelled()) return Error(ErrorCode::kCancelled, "interrupted");
  std::vector<compare::RankLeaves> leaves;
  for (const ReadRank& r : ranks) {
    if (!r.leaves->ok()) {
      run.left_out.push_back(r.dir.name + ": " + r.leaves->error().ToString());
      log.Warning(fmt::format("{} is left out", run.left_out.back()));
      run.partial = true;
      continue;
    }
    run.ranks.push_back(r.dir.name);
    leaves.push_back(r.leaves->value());
    if (leaves.back().torn) log.Warning(r.dir.name + ": dump.json ends early");
  }
  if (leaves.size() < 2) {
    return Error(ErrorCode::kNothingToDo, "fewer than two ranks can be read").At(options.input_dir);
  }
  run.replicas = compare::FindOddRanks(leaves, options.groups);
  JudgeCollectives(ranks, run);
  run.messages = log.Take();
  MSPROBE_TRY(WriteSummary(options, run, started, MonotonicSeconds() - begin));
  return run;
}

std::string RanksAnswer(const RanksRun& run) {
  std::string out;
  for (const std::vector<int64_t>& group : run.replicas.groups) {
    out += "Replicas: " + RankList(group) + "\n";
  }
  if (run.replicas.groups.empty()) out += "No two ranks are replicas of one another.\n";
  size_t shown = 0;
  for (const compare::OddOne& o : run.replicas.odd) {
    if (++shown > kMostShown) break;
    const std::string who =
        o.rank < 0 ? "The two replicas differ" : fmt::format("Odd one: rank {}", o.rank);
    out += fmt::format("{} ({}): {} {}: {}", who, compare::OddKindName(o.kind),
                       VisibleText(o.entry), VisibleText(o.leaf), VisibleText(o.reason));
    out += o.count > 1 ? fmt::format("; and at {} more places\n", o.count - 1) : "\n";
  }
  if (run.replicas.odd.size() > kMostShown) {
    out += fmt::format("and {} more, see the summary\n", run.replicas.odd.size() - kMostShown);
  }
  if (run.replicas.odd.empty() && !run.replicas.groups.empty())
    out += "No replica is unlike the others.\n";
  shown = 0;
  for (const BadCollective& c : run.collectives) {
    if (++shown > kMostShown) break;
    out += fmt::format(
        "Collective: rank {} received in {} {} what the inputs of all ranks do not give: off by "
        "{:.3g} of it, limit {:.3g}\n",
        c.rank, VisibleText(c.entry), VisibleText(c.leaf), c.deviation, c.limit);
  }
  out += fmt::format("Collectives: {} judged, {} wrong, {} not judged", run.judged,
                     run.collectives.size(), run.not_judged);
  out += run.why_not_judged.empty()
             ? "\n"
             : fmt::format(" ({})\n", VisibleText(run.why_not_judged.front().first));
  return out + "Summary: " + VisibleText(run.summary_path) + "\n";
}

std::string RanksClosingLine(const RanksRun& run) {
  return fmt::format("ranks {}, left out {}, odd {}, collectives wrong {}, path {}",
                     run.ranks.size(), run.left_out.size(), run.replicas.odd.size(),
                     run.collectives.size(), VisibleText(run.summary_path));
}

}  // namespace msprobe::app
