#include "app/layout_app.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>
#include <optional>
#include <set>
#include <unordered_set>

#include "app/inspect_app.h"
#include "app/layout_leaf.h"
#include "app/layout_names.h"
#include "app/layout_ways.h"
#include "app/output_folder.h"
#include "base/file.h"
#include "base/text.h"
#include "base/time.h"
#include "config/layout_config.h"
#include "dump/reader.h"
#include "formats/tensor_file.h"
#include "json/json.h"

namespace msprobe::app {
namespace {

using config::Held;
using json::Value;

constexpr double kFits = 0.01;  // distance of a guess that is said to fit

// One side: its ranks in the order of the mesh.
struct Side {
  const config::Mesh* mesh = nullptr;
  std::vector<std::string> folders;
  std::vector<json::Document> documents;
  std::vector<const Value*> data;         // the member `data` of each
  std::string out;                        // folder of the joined dump
  std::unordered_set<std::string> files;  // names that are taken
};

using Ranks = std::vector<const Value*>;  // the same place of all ranks; null where one lacks it

bool IsTensor(const Value* v) {
  return v != nullptr && v->is_object() && v->Find("dtype") != nullptr &&
         v->Find("shape") != nullptr;
}

std::optional<double> Number(const Value& leaf, const char* key) {
  const Value* v = leaf.Find(key);
  if (v == nullptr || !v->is_number()) return std::nullopt;
  return v->as_double();
}

std::optional<Recorded> RecordedOf(const Value* leaf) {
  if (!IsTensor(leaf)) return std::nullopt;
  const Value& shape = *leaf->Find("shape");
  if (!shape.is_array()) return std::nullopt;
  Recorded out;
  for (const Value& n : shape) {
    if (!n.is_int() || n.as_int() < 0) return std::nullopt;
    out.shape.push_back(n.as_int());
  }
  out.max = Number(*leaf, "Max");
  out.min = Number(*leaf, "Min");
  out.mean = Number(*leaf, "Mean");
  out.norm = Number(*leaf, "Norm");
  return out;
}

std::optional<std::vector<Recorded>> RecordedOf(const Ranks& ranks) {
  std::vector<Recorded> out;
  for (const Value* leaf : ranks) {
    std::optional<Recorded> r = RecordedOf(leaf);
    if (!r) return std::nullopt;
    out.push_back(std::move(*r));
  }
  return out;
}

// What is done with one tensor.
struct Decision {
  std::vector<Held> target, golden;  // empty: it cannot be joined
  bool guessed = false, checked = false;
  double distance = 0;
  size_t others = 0;  // ways that fit as well
};

class Joiner {
 public:
  Joiner(const config::Layout& layout, Side& target, Side& golden, LogSink& log)
      : layout_(layout), target_(target), golden_(golden), log_(log) {}

  Status Run(const CancelToken* cancel);
  Status WriteLayout(const std::string& path) const;

 private:
  using Leaves = std::map<std::string, Ranks>;
  static void Collect(const Ranks& ranks, const std::string& path, Leaves& out);
  static std::string Part(const std::string& path, std::string_view key);
  std::vector<Held> RuleOf(const std::string& name, const config::Mesh& mesh) const;
  Decision Decide(const std::string& name, const Ranks* target, const Ranks* golden) const;
  size_t AmongEqual(const std::string& name, const std::vector<Choice>& fits, const Ranks& target,
                    const Ranks& golden, Decision& out) const;
  Status Write(json::Writer& w, Side& side, const Ranks& ranks, const std::string& path,
               bool is_target);
  Status WriteTensor(json::Writer& w, Side& side, const Ranks& ranks, const std::vector<Held>& held,
                     const std::string& path);
  void WriteUnjoined(json::Writer& w, const Side& side, const Value& first,
                     const std::string& path);
  Result<std::string> JoinFiles(Side& side, const Ranks& ranks, const std::vector<Held>& held);
  Status Entry(const std::string& name);
  static Ranks At(const Side& side, const std::string& entry);
  void Count(const std::string& name, const Decision& d);
  void CountUnjoined(const std::string& name);
  void Said();

  const config::Layout& layout_;
  Side& target_;
  Side& golden_;
  LogSink& log_;
  std::map<std::string, Decision> decisions_;  // of the entry at hand
  std::set<std::string> unjoined_here_;        // its leaves that the target could not join
  std::string target_text_, golden_text_;
  std::optional<json::Writer> target_json_, golden_json_;
  // Kinds of tensors: names with numbers of calls as *. What was decided first, and how often.
  std::map<std::string, std::pair<Decision, uint64_t>> kinds_;
  uint64_t guesses_ = 0, unfit_ = 0, unjoined_ = 0;
  std::string first_unjoined_;
};

std::string Joiner::Part(const std::string& path, std::string_view key) {
  if (path.find('\n') == std::string::npos) return path + "\n" + std::string(key);
  return path + "." + std::string(key);
}

void Joiner::Collect(const Ranks& ranks, const std::string& path, Leaves& out) {
  const Value* first = ranks.front();
  if (first == nullptr) return;
  if (IsTensor(first)) {
    out[path] = ranks;
  } else if (first->is_array()) {
    for (size_t i = 0; i < first->size(); ++i) {
      Ranks inner;
      for (const Value* v : ranks) {
        inner.push_back(v != nullptr && v->is_array() && i < v->size() ? &(*v)[i] : nullptr);
      }
      Collect(inner, Part(path, fmt::format("{}", i)), out);
    }
  } else if (first->is_object()) {
    for (const auto* m = first->members_begin(); m != first->members_end(); ++m) {
      Ranks inner;
      for (const Value* v : ranks) inner.push_back(v != nullptr ? v->Find(m->key) : nullptr);
      Collect(inner, Part(path, m->key), out);
    }
  }
}

std::vector<Held> Joiner::RuleOf(const std::string& name, const config::Mesh& mesh) const {
  for (const config::LayoutRule& rule : layout_.rules) {
    if (!MatchesPattern(name, rule.name)) continue;
    std::vector<Held> out;
    for (const auto& [dimension, size] : mesh) {
      const auto it = std::find_if(rule.held.begin(), rule.held.end(),
                                   [&d = dimension](const auto& h) { return h.first == d; });
      out.push_back(it == rule.held.end() ? Held{Held::How::kSame, 0} : it->second);
    }
    return out;
  }
  return std::vector<Held>(mesh.size(), Held{Held::How::kGuess, 0});
}

// The tensor file of one rank's part.
Result<std::string> FileOf(const Side& side, const Ranks& ranks, size_t rank) {
  const Value* name = ranks[rank]->Find("data_name");
  if (name == nullptr || !name->is_string()) {
    return Error(ErrorCode::kNotFound, "no tensor file is recorded");
  }
  return ResolveInside(JoinPath(side.folders[rank], "dump_tensor_data"), name->as_string());
}

Result<std::vector<Elements>> ReadParts(const Side& side, const Ranks& ranks) {
  std::vector<Elements> out;
  for (size_t r = 0; r < ranks.size(); ++r) {
    MSPROBE_ASSIGN(const std::string file, FileOf(side, ranks, r));
    MSPROBE_ASSIGN(out.emplace_back(), ReadElements(file));
  }
  return out;
}

Result<Elements> FoldElements(std::vector<Elements> parts, const config::Mesh& mesh,
                              const std::vector<Held>& held) {
  return Fold(std::move(parts), mesh, held, [](std::vector<Elements> group, const Held& h) {
    return JoinElements(std::move(group), h);
  });
}

// Figures do not tell one order of elements from another: of the ways that they leave, that which
// was taken for the tensors of this kind before, else the one whose elements are nearest.
size_t Joiner::AmongEqual(const std::string& name, const std::vector<Choice>& fits,
                          const Ranks& target, const Ranks& golden, Decision& out) const {
  constexpr size_t kMostTried = 16;
  if (const auto kind = kinds_.find(KindOf(name)); kind != kinds_.end()) {
    const Decision& before = kind->second.first;
    for (size_t i = 0; i < fits.size(); ++i) {
      if (fits[i].target->held != before.target || fits[i].golden->held != before.golden) continue;
      out.others = before.others;
      return i;
    }
  }
  const auto parts_t = ReadParts(target_, target), parts_g = ReadParts(golden_, golden);
  if (!parts_t.ok() || !parts_g.ok()) return 0;
  size_t chosen = 0;
  double best = HUGE_VAL;
  for (size_t i = 0; i < std::min(fits.size(), kMostTried); ++i) {
    const auto t = FoldElements(*parts_t, *target_.mesh, fits[i].target->held);
    const auto g = FoldElements(*parts_g, *golden_.mesh, fits[i].golden->held);
    if (!t.ok() || !g.ok()) continue;
    const double distance = ElementDistance(*t, *g);
    out.others = distance < best ? 0 : out.others + (distance == best ? 1 : 0);
    if (!(distance < best)) continue;
    best = distance;
    chosen = i;
  }
  return chosen;
}

Decision Joiner::Decide(const std::string& name, const Ranks* target, const Ranks* golden) const {
  Decision out;
  std::vector<Way> ways[2];
  const Ranks* ranks[2] = {target, golden};
  const config::Mesh* meshes[2] = {target_.mesh, golden_.mesh};
  for (size_t s = 0; s < 2; ++s) {
    if (ranks[s] == nullptr) continue;
    const auto parts = RecordedOf(*ranks[s]);
    const std::vector<Held> rule = RuleOf(name, *meshes[s]);
    for (size_t d = 0; d < rule.size(); ++d) {
      out.guessed |= rule[d].how == Held::How::kGuess && (*meshes[s])[d].second > 1;
    }
    if (parts) ways[s] = WaysOf(*parts, *meshes[s], rule);
  }
  // Elements can tell ways apart of which figures leave open which it is, sums above all.
  const auto has_file = [](const Ranks* r) {
    return r != nullptr && r->front()->Find("data_name") != nullptr;
  };
  const double room = has_file(target) && has_file(golden) ? 0.05 : 1e-3;
  const std::vector<Choice> fits = BestPairs({ways[0], *meshes[0]}, {ways[1], *meshes[1]}, room);
  if (!fits.empty()) {
    size_t chosen = 0;
    out.others = fits.size() - 1;
    if (out.guessed && fits.size() > 1) chosen = AmongEqual(name, fits, *target, *golden, out);
    out.target = fits[chosen].target->held;
    out.golden = fits[chosen].golden->held;
    out.distance = fits[chosen].distance;
    out.checked = true;
    return out;
  }
  // Nothing fits the other side, or there is none: the first way of each.
  if (!ways[0].empty()) out.target = ways[0].front().held;
  if (!ways[1].empty()) out.golden = ways[1].front().held;
  out.distance = 1;
  return out;
}

Result<std::string> Joiner::JoinFiles(Side& side, const Ranks& ranks,
                                      const std::vector<Held>& held) {
  const std::string folder = JoinPath(side.out, "dump_tensor_data");
  MSPROBE_TRY(CreateDirectories(folder));
  const bool same = std::all_of(held.begin(), held.end(),
                                [](const Held& h) { return h.how == Held::How::kSame; });
  MSPROBE_ASSIGN(const std::string first, FileOf(side, ranks, 0));
  // Rows are called after the files of their tensors.
  std::filesystem::path name = BaseName(first);
  if (!same) name.replace_extension(".pt");
  if (!side.files.insert(name.string()).second) {
    name =
        fmt::format("{}.{}{}", name.stem().string(), side.files.size(), name.extension().string());
    side.files.insert(name.string());
  }
  const std::string path = JoinPath(folder, name.string());
  if (same) {
    std::error_code failed;
    std::filesystem::create_hard_link(first, path, failed);
    if (failed) std::filesystem::copy_file(first, path, failed);
    if (failed) return Error(ErrorCode::kIo, failed.message()).At(path);
    return name.string();
  }
  MSPROBE_ASSIGN(std::vector<Elements> parts, ReadParts(side, ranks));
  MSPROBE_ASSIGN(const Elements whole, FoldElements(std::move(parts), *side.mesh, held));
  MSPROBE_TRY(formats::WritePt(path, whole.dtype, whole.shape, false, whole.bytes));
  return name.string();
}

// One side has a tensor and the other none, so that the row is told as not compared: two nulls
// would be alike.
void Joiner::WriteUnjoined(json::Writer& w, const Side& side, const Value& first,
                           const std::string& path) {
  if (&side == &target_) unjoined_here_.insert(path);
  if (&side == &target_ || !unjoined_here_.contains(path)) {
    w.Null();
    return;
  }
  w.StartObject();
  for (const char* key : {"type", "dtype", "shape"}) {
    if (const Value* v = first.Find(key)) w.Key(key).Copy(*v);
  }
  w.EndObject();
}

Status Joiner::WriteTensor(json::Writer& w, Side& side, const Ranks& ranks,
                           const std::vector<Held>& held, const std::string& path) {
  const Value& first = *ranks.front();
  const auto parts = RecordedOf(ranks);
  std::optional<Recorded> whole;
  if (parts && !held.empty()) whole = FoldRecorded(*parts, *side.mesh, held);
  const Value* recorded_name = first.Find("data_name");
  std::string file;
  if (whole && recorded_name != nullptr && recorded_name->is_string()) {
    Result<std::string> joined = JoinFiles(side, ranks, held);
    if (joined.ok()) {
      file = *joined;
    } else {
      log_.Warning("a tensor could not be joined: " + joined.error().ToString());
      whole.reset();
    }
  }
  if (!whole) {
    if (!held.empty() && !unjoined_here_.contains(path)) CountUnjoined(RowName(path));
    WriteUnjoined(w, side, first, path);
    return {};
  }
  WriteJoined(w, first, *whole, file, held);
  return {};
}

Status Joiner::Write(json::Writer& w, Side& side, const Ranks& ranks, const std::string& path,
                     bool is_target) {
  const Value* first = ranks.front();
  if (IsTensor(first)) {
    const auto it = decisions_.find(path);
    const std::vector<Held> none;
    return WriteTensor(w, side, ranks,
                       it == decisions_.end() ? none
                       : is_target            ? it->second.target
                                              : it->second.golden,
                       path);
  }
  if (first->is_array()) {
    w.StartArray();
    for (size_t i = 0; i < first->size(); ++i) {
      Ranks inner;
      for (const Value* v : ranks) {
        inner.push_back(v != nullptr && v->is_array() && i < v->size() ? &(*v)[i] : nullptr);
      }
      MSPROBE_TRY(Write(w, side, inner, Part(path, fmt::format("{}", i)), is_target));
    }
    w.EndArray();
  } else if (first->is_object()) {
    w.StartObject();
    for (const auto* m = first->members_begin(); m != first->members_end(); ++m) {
      Ranks inner;
      for (const Value* v : ranks) inner.push_back(v != nullptr ? v->Find(m->key) : nullptr);
      inner.front() = &m->value;
      w.Key(m->key);
      MSPROBE_TRY(Write(w, side, inner, Part(path, m->key), is_target));
    }
    w.EndObject();
  } else {
    w.Copy(*first);
  }
  return {};
}

Ranks Joiner::At(const Side& side, const std::string& entry) {
  Ranks out;
  for (const Value* data : side.data) out.push_back(data->Find(entry));
  return out;
}

void Joiner::CountUnjoined(const std::string& name) {
  if (unjoined_++ == 0) first_unjoined_ = name;
}

void Joiner::Count(const std::string& name, const Decision& d) {
  if (d.target.empty() && d.golden.empty()) {
    CountUnjoined(name);
    return;
  }
  if (!d.guessed) return;
  ++guesses_;
  if (!d.checked || d.distance > kFits) ++unfit_;
  auto& [kept, count] = kinds_[KindOf(name)];
  if (count++ == 0 || d.distance > kept.distance) kept = d;
}

Status Joiner::Entry(const std::string& name) {
  const Ranks t = At(target_, name), g = At(golden_, name);
  Leaves of_target, of_golden;
  Collect(t, name, of_target);
  Collect(g, name, of_golden);
  decisions_.clear();
  unjoined_here_.clear();
  std::set<std::string> paths;
  for (const auto& [path, ranks] : of_target) paths.insert(path);
  for (const auto& [path, ranks] : of_golden) paths.insert(path);
  for (const std::string& path : paths) {
    const auto a = of_target.find(path), b = of_golden.find(path);
    const std::string row = RowName(path);
    Decision d = Decide(row, a == of_target.end() ? nullptr : &a->second,
                        b == of_golden.end() ? nullptr : &b->second);
    Count(row, d);
    decisions_.emplace(path, std::move(d));
  }
  if (t.front() != nullptr) {
    target_json_->Key(name);
    MSPROBE_TRY(Write(*target_json_, target_, t, name, true));
  }
  if (g.front() != nullptr) {
    golden_json_->Key(name);
    MSPROBE_TRY(Write(*golden_json_, golden_, g, name, false));
  }
  return {};
}

// The head of a dump without its data.
void WriteHead(json::Writer& w, const Value& root) {
  w.StartObject();
  for (const auto* m = root.members_begin(); m != root.members_end(); ++m) {
    if (m->key == "data" || m->key == "msprobe" || m->key == "dump_data_dir") continue;
    w.Key(m->key).Copy(m->value);
  }
  w.Key("dump_data_dir").Null();
  w.Key("data").StartObject();
}

Status WriteWhole(const Side& side, std::string& text, json::Writer& w) {
  w.EndObject();
  w.EndObject();
  MSPROBE_ASSIGN(AtomicFile file, AtomicFile::Create(JoinPath(side.out, "dump.json")));
  MSPROBE_TRY(file.Write(text));
  MSPROBE_TRY(file.Commit());
  // Beside it what the first rank has.
  for (const char* name : {"stack.json", "construct.json"}) {
    std::error_code ignored;
    std::filesystem::copy_file(JoinPath(side.folders.front(), name), JoinPath(side.out, name),
                               ignored);
  }
  return {};
}

void Joiner::Said() {
  if (guesses_ > 0) {
    log_.Warning(
        fmt::format("guess: how the ranks hold {} tensors was not in the layout file; what fits "
                    "best was taken, "
                    "and {} of these fit badly",
                    guesses_, unfit_));
  }
  if (unjoined_ > 0) {
    log_.Warning(fmt::format("{} tensors cannot be joined and are not compared, first {}",
                             unjoined_, first_unjoined_));
  }
}

Status Joiner::Run(const CancelToken* cancel) {
  target_json_.emplace(target_text_);
  golden_json_.emplace(golden_text_);
  WriteHead(*target_json_, target_.documents.front().root());
  WriteHead(*golden_json_, golden_.documents.front().root());
  const Value &first = *target_.data.front(), &other = *golden_.data.front();
  for (const auto* m = first.members_begin(); m != first.members_end(); ++m) {
    if (cancel != nullptr && cancel->cancelled()) {
      return Error(ErrorCode::kCancelled, "interrupted");
    }
    MSPROBE_TRY(Entry(std::string(m->key)));
  }
  for (const auto* m = other.members_begin(); m != other.members_end(); ++m) {
    if (first.Find(m->key) == nullptr) MSPROBE_TRY(Entry(std::string(m->key)));
  }
  MSPROBE_TRY(WriteWhole(target_, target_text_, *target_json_));
  MSPROBE_TRY(WriteWhole(golden_, golden_text_, *golden_json_));
  Said();
  return {};
}

std::string MeshText(const config::Mesh& mesh) {
  std::string out;
  for (const auto& [name, size] : mesh) {
    out += fmt::format("{}{}: {}", out.empty() ? "" : ", ", name, size);
  }
  return "{" + out + "}";
}

Status Joiner::WriteLayout(const std::string& path) const {
  std::string text = fmt::format("target: {}\ngolden: {}\ntensors:\n", MeshText(layout_.target),
                                 MeshText(layout_.golden));
  for (const config::LayoutRule& rule : layout_.rules) {
    text += "- {name: '" + rule.name + "'";
    for (const auto& [dimension, held] : rule.held) {
      text += fmt::format(", {}: {}", dimension, config::HeldText(held));
    }
    text += "}\n";
  }
  for (const auto& [kind, found] : kinds_) {
    const auto& [d, count] = found;
    const bool use_target = !d.target.empty();
    const config::Mesh& mesh = use_target ? *target_.mesh : *golden_.mesh;
    const std::vector<Held>& held = use_target ? d.target : d.golden;
    text += "- {name: '" + kind + "'";
    for (size_t k = 0; k < mesh.size(); ++k) {
      // A dimension of one rank says nothing; the other side may know.
      const bool one = mesh[k].second == 1 && !d.golden.empty();
      const auto other = std::find_if(golden_.mesh->begin(), golden_.mesh->end(),
                                      [&](const auto& g) { return g.first == mesh[k].first; });
      const Held& told =
          one ? d.golden[static_cast<size_t>(other - golden_.mesh->begin())] : held[k];
      text += fmt::format(", {}: {}", mesh[k].first, config::HeldText(told));
    }
    text += fmt::format("}}  # guess, {} tensors, {}\n", count,
                        !d.checked           ? "not checked: the other side has none that fits"
                        : d.distance > kFits ? fmt::format("fits badly: {:.3g} apart", d.distance)
                        : d.others > 0       ? fmt::format("fits, as {} other ways do", d.others)
                                             : "fits");
  }
  MSPROBE_ASSIGN(AtomicFile file, AtomicFile::Create(path));
  MSPROBE_TRY(file.Write(text));
  return file.Commit();
}

Status ReadSide(const std::string& folder, const config::Mesh& mesh, Side& side) {
  side.mesh = &mesh;
  int64_t ranks = 1;
  for (const auto& [name, size] : mesh) ranks *= size;
  MSPROBE_ASSIGN(std::vector<dump::RankDir> dirs, dump::ListRanks(folder));
  std::erase_if(dirs, [](const auto& d) { return d.kind == dump::RankDir::Kind::kProcess; });
  if (static_cast<int64_t>(dirs.size()) != ranks) {
    return Error(ErrorCode::kMismatch,
                 fmt::format("{} ranks, the layout says {}", dirs.size(), ranks))
        .At(folder)
        .Hint("give step folders, and the sizes that the job had");
  }
  for (const dump::RankDir& d : dirs) {
    const std::string path = JoinPath(d.path, "dump.json");
    MSPROBE_ASSIGN(side.documents.emplace_back(), json::ParseDocumentFile(path));
    const Value* data = side.documents.back().root().Find("data");
    if (data == nullptr || !data->is_object()) {
      return Error(ErrorCode::kMalformed, "missing, or not an object").At(path).Key("data");
    }
    side.folders.push_back(d.path);
    side.data.push_back(data);
  }
  return CreateDirectories(side.out);
}

}  // namespace

Result<CompareRun> CompareWithLayout(const CompareOptions& options, const std::string& layout_path,
                                     LogSink& log, ProgressSink& progress,
                                     const CancelToken* cancel) {
  MSPROBE_ASSIGN(const config::Layout layout, config::ReadLayout(layout_path));
  MSPROBE_ASSIGN(const OutputFolder folder, OutputFolder::Make(options.output_dir));
  const std::string stamp = LocalTimestamp(
      FreeTimestamp(options.output_dir, {"joined_{ts}", "layout_{ts}.yaml"}, UnixSeconds()));
  const std::string joined = JoinPath(options.output_dir, "joined_" + stamp);
  CompareOptions inner = options;
  {
    Side target, golden;
    target.out = JoinPath(joined, "target");
    golden.out = JoinPath(joined, "golden");
    MSPROBE_TRY(ReadSide(options.target, layout.target, target));
    MSPROBE_TRY(ReadSide(options.golden, layout.golden, golden));
    Joiner joiner(layout, target, golden, log);
    MSPROBE_TRY(joiner.Run(cancel));
    const std::string path = JoinPath(options.output_dir, "layout_" + stamp + ".yaml");
    MSPROBE_TRY(joiner.WriteLayout(path));
    log.Warning(fmt::format("{} ranks of {} against {} of {}, joined in {}; how is in {}",
                            target.folders.size(), options.target, golden.folders.size(),
                            options.golden, joined, path));
    inner.target = JoinPath(target.out, "dump.json");
    inner.golden = JoinPath(golden.out, "dump.json");
  }
  return Compare(inner, log, progress, cancel);
}

}  // namespace msprobe::app
