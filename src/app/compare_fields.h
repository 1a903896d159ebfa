// The parts of a comparison's result as plain data (wire.h).
#pragma once

#include <cstdint>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "app/analysis_app.h"
#include "app/compare_app.h"
#include "app/compare_html.h"
#include "app/junit.h"
#include "app/merge_reports.h"
#include "app/wire.h"
#include "base/error.h"
#include "compare/communication.h"
#include "compare/overflow.h"
#include "culprit/finding.h"

// Found by the namespace of the enumeration.
namespace msprobe {
constexpr ErrorCode LastOf(ErrorCode) { return ErrorCode::kInternal; }
constexpr LogLevel LastOf(LogLevel) { return LogLevel::kError; }
namespace compare {
constexpr Mode LastOf(Mode) { return Mode::kMd5; }
constexpr State LastOf(State) { return State::kDebug; }
}  // namespace compare
namespace culprit {
constexpr FindingKind LastOf(FindingKind) { return FindingKind::kOutput; }
constexpr Mode LastOf(Mode) { return Mode::kStatistics; }
constexpr Verdict LastOf(Verdict) { return Verdict::kNotJudged; }
}  // namespace culprit
}  // namespace msprobe

namespace msprobe::app {

template <class Archive>
void Fields(Archive& a, Error& e) {
  a(e.code, e.message, e.hint, e.path, e.offset, e.line, e.column, e.key_path);
}
template <class Archive>
void Fields(Archive& a, RankJob& j) {
  a(j.step, j.rank, j.target_rank, j.golden_rank, j.target_json, j.golden_json, j.beside_dump);
}
template <class Archive>
void Fields(Archive& a, compare::Counts& c) {
  a(c.pass, c.warning, c.error, c.unmatched, c.total, c.yes, c.no, c.none, c.consequences);
}
template <class Archive>
void Fields(Archive& a, compare::FirstBad& b) {
  a(b.entry, b.row, b.reason, b.row_index);
}
template <class Archive>
void Fields(Archive& a, compare::Share& s) {
  a(s.index, s.count);
}
template <class Archive>
void Fields(Archive& a, NotCompared& n) {
  a(n.reason, n.rows, n.entries);
}
template <class Archive>
void Fields(Archive& a, culprit::Finding& f) {
  a(f.kind, f.entry, f.golden_entry, f.leaf, f.rule, f.numbers, f.code, f.count, f.sentence,
    f.place, f.reason_key);
}
template <class Archive>
void Fields(Archive& a, culprit::LossImpact& l) {
  a(l.known, l.sum, l.difference);
}
template <class Archive>
void Fields(Archive& a, culprit::Report& r) {
  a(r.mode, r.verdict, r.reason, r.findings, r.followers, r.consequences, r.notes, r.judged,
    r.replayed, r.not_replayed, r.q, r.discoveries, r.calibrated, r.calibration, r.one_dump,
    r.collectives, r.collectives_by_growth, r.loss, r.evidence, r.front);
}
template <class Archive>
void Fields(Archive& a, report::HtmlPart& p) {
  a(p.label, p.problem, p.rows, p.note, p.counts, p.first, p.first_row, p.strip);
}
// Without the table.
template <class Archive>
void Fields(Archive& a, CompareHtml::Piece& p) {
  a(p.part, p.first_state);
}
// Without the tests.
template <class Archive>
void Fields(Archive& a, JunitReport::Suite& s) {
  a(s.count, s.failures, s.skipped);
}

template <class Archive>
void Fields(Archive& a, compare::CommArguments& c) {
  a(c.src, c.dst, c.group, c.peers);
}
template <class Archive>
void Fields(Archive& a, compare::OverflowEntry& e) {
  a(e.name, e.bad_input, e.bad_output, e.communication, e.comm, e.reason, e.data_info);
}
template <class Archive>
void Fields(Archive& a, compare::OverflowRank& r) {
  a(r.framework, r.entries, r.total, r.torn);
}
template <class Archive>
void Fields(Archive& a, AnalysisRank& r) {
  a(r.step, r.rank, r.path, r.entries, r.bad, r.not_compared, r.sources, r.first_consumer,
    r.consumer_reason, r.report, r.problem);
}
template <class Archive>
void Fields(Archive& a, PickedRow& r) {
  a(r.name, r.cells);
}
template <class Archive>
void Fields(Archive& a, RankFiles& f) {
  a(f.label, f.csv, f.paths);
}
template <class Archive>
void Fields(Archive& a, RankRows& r) {
  a(r.mode, r.has, r.rows, r.seen);
}

struct Message {
  LogLevel level = LogLevel::kInfo;
  std::string text;
};
template <class Archive>
void Fields(Archive& a, Message& m) {
  a(m.level, m.text);
}

// What a worker says, for the log of the one who asked.
class MessageList final : public LogSink {
 public:
  void Log(LogLevel level, std::string_view message) override {
    const std::lock_guard lock(mutex_);
    messages_.push_back({level, std::string(message)});
  }
  std::vector<Message> Take() { return std::move(messages_); }

 private:
  std::mutex mutex_;
  std::vector<Message> messages_;
};

}  // namespace msprobe::app
