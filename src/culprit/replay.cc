#include "culprit/replay.h"

#include <algorithm>
#include <cmath>

#include "json/json.h"

namespace msprobe::culprit {
namespace {

double NumberAt(const json::Value& v, std::string_view key) {
  const json::Value* n = v.Find(key);
  return n != nullptr && n->is_number() ? n->as_double() : kUnknown;
}

std::string TextAt(const json::Value& v, std::string_view key) {
  const json::Value* t = v.Find(key);
  return t != nullptr && t->is_string() ? std::string(t->as_string()) : std::string();
}

void WriteParameter(json::Writer& w, const ParameterJob& p) {
  w.StartObject();
  w.Key("key").String(p.key);
  w.Key("data_name").String(p.data_name);
  w.Key("dtype").String(p.dtype);
  w.Key("shape").StartArray();
  for (const int64_t n : p.shape) w.Int(n);
  w.EndArray();
  w.Key("uses").StartArray();
  for (const ParameterJob::Use& use : p.uses) {
    w.StartArray();
    w.String(use.base);
    w.String(use.input);
    w.EndArray();
  }
  w.EndArray();
  w.EndObject();
}

}  // namespace

double EntryScore::Worst() const {
  const LeafScore* worst = WorstLeaf();
  return worst == nullptr ? 0 : worst->score;
}

const LeafScore* EntryScore::WorstLeaf() const {
  const auto it =
      std::max_element(leaves.begin(), leaves.end(),
                       [](const LeafScore& a, const LeafScore& b) { return a.score < b.score; });
  return it == leaves.end() ? nullptr : &*it;
}

std::string JobsJson(const ReplayJobs& jobs) {
  std::string out;
  json::Writer w(out);
  w.StartObject();
  w.Key("dump").String(jobs.dump);
  w.Key("other").String(jobs.other);
  w.Key("limit").Double(jobs.limit);
  w.Key("calls").StartArray();
  for (const ReplayCall& c : jobs.calls) {
    w.StartArray();
    w.String(c.base);
    w.String(c.other);
    w.Bool(c.forward);
    w.Bool(c.backward);
    w.EndArray();
  }
  w.EndArray();
  w.Key("parameters").StartArray();
  for (const ParameterJob& p : jobs.parameters) WriteParameter(w, p);
  w.EndArray();
  w.EndObject();
  return out;
}

Result<ReplayScores> Replayed(const ReplayFn& replay, const ReplayJobs& jobs) {
  MSPROBE_ASSIGN(const std::string answer, replay(JobsJson(jobs)));
  return ReadScores(answer);
}

Result<ReplayScores> ReadScores(const std::string& text) {
  MSPROBE_ASSIGN(const json::Document document, json::ParseDocument(text));
  const json::Value& root = document.root();
  if (!root.is_object()) return Error(ErrorCode::kMalformed, "the replay gave no object");
  ReplayScores out;
  for (const json::Value::Member* m = root.members_begin(); m != root.members_end(); ++m) {
    EntryScore entry;
    entry.reason = TextAt(m->value, "reason");
    const json::Value* leaves = m->value.Find("leaves");
    for (size_t i = 0; leaves != nullptr && leaves->is_array() && i < leaves->size(); ++i) {
      const json::Value& v = (*leaves)[i];
      LeafScore s;
      s.leaf = TextAt(v, "leaf");
      s.score = NumberAt(v, "score");
      s.rms = NumberAt(v, "rms");
      s.introduced = NumberAt(v, "introduced");
      s.norm = NumberAt(v, "norm");
      s.inherited = NumberAt(v, "inherited");
      s.amplification = NumberAt(v, "amplification");
      s.impact = NumberAt(v, "impact");
      if (std::isnan(s.score)) s.score = 0;
      entry.leaves.push_back(std::move(s));
    }
    out.entries.emplace(std::string(m->key), std::move(entry));
  }
  return out;
}

}  // namespace msprobe::culprit
