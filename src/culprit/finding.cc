#include "culprit/finding.h"

namespace msprobe::culprit {

std::string_view KindName(FindingKind kind) {
  static constexpr std::string_view kNames[] = {"argument", "structure", "introduced", "accumulate",
                                                "state",    "glue",      "wired",      "output"};
  return kNames[static_cast<size_t>(kind)];
}

std::string_view ModeName(Mode mode) {
  static constexpr std::string_view kNames[] = {"tensor", "sketch", "statistics"};
  return kNames[static_cast<size_t>(mode)];
}

std::string_view VerdictName(Verdict verdict) {
  static constexpr std::string_view kNames[] = {"found", "none", "not_judged"};
  return kNames[static_cast<size_t>(verdict)];
}

namespace {

void WriteFinding(json::Writer& w, const Finding& f) {
  w.StartObject();
  w.Key("kind").String(KindName(f.kind));
  w.Key("entry").String(f.entry);
  w.Key("golden_entry");
  if (f.golden_entry.empty()) {
    w.Null();
  } else {
    w.String(f.golden_entry);
  }
  w.Key("leaf").String(f.leaf);
  w.Key("rule").Int(f.rule);
  w.Key("numbers").StartObject();
  for (const auto& [name, value] : f.numbers) w.Key(name).Double(value);
  w.EndObject();
  w.Key("code");
  if (f.code.empty()) {
    w.Null();
  } else {
    w.String(f.code);
  }
  w.Key("count").Uint(f.count);
  w.Key("sentence").String(f.sentence);
  w.EndObject();
}

}  // namespace

void WriteReport(json::Writer& w, const Report& r) {
  w.StartObject();
  w.Key("mode").String(ModeName(r.mode));
  w.Key("verdict").String(VerdictName(r.verdict));
  if (r.one_dump) w.Key("one_dump").Bool(true);
  w.Key("reason").String(r.reason);
  w.Key("findings").StartArray();
  for (const Finding& f : r.findings) WriteFinding(w, f);
  w.EndArray();
  w.Key("consequences").Uint(r.consequences);
  w.Key("judged").Uint(r.judged);
  w.Key("replayed").Uint(r.replayed);
  w.Key("not_replayed").StartObject();
  for (const auto& [reason, count] : r.not_replayed) w.Key(reason).Uint(count);
  w.EndObject();
  w.Key("discoveries").StartObject();
  w.Key("q").Double(r.q);
  w.Key("count").Uint(r.discoveries);
  w.Key("calibrated").String(r.calibration);
  w.EndObject();
  if (r.collectives > 0 || !r.collectives_by_growth.empty()) {
    w.Key("collectives").StartObject();
    w.Key("from_all_ranks").Uint(r.collectives);
    w.Key("by_growth").StartObject();
    for (const auto& [reason, count] : r.collectives_by_growth) w.Key(reason).Uint(count);
    w.EndObject();
    w.EndObject();
  }
  if (r.loss.known) {
    w.Key("loss_impact").StartObject();
    w.Key("sum").Double(r.loss.sum);
    w.Key("difference").Double(r.loss.difference);
    w.Key("unexplained").Double(r.loss.difference - r.loss.sum);
    w.EndObject();
  }
  w.Key("notes").StartArray();
  for (const std::string& n : r.notes) w.String(n);
  w.EndArray();
  w.EndObject();
}

}  // namespace msprobe::culprit
