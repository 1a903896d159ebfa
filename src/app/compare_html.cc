#include "app/compare_html.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "app/compare_html_rows.h"
#include "app/compare_text.h"
#include "app/culprit_app.h"
#include "app/culprit_text.h"
#include "app/json_rows.h"
#include "base/time.h"

namespace msprobe::app {
namespace {

using compare::Comparison;
using compare::Mode;
using report::HtmlDetail;
using report::HtmlNote;
using report::HtmlPage;
using report::HtmlPart;
using report::HtmlTone;

constexpr size_t kMostRows = 1'000'000;  // of one file
constexpr size_t kMostOfOne = 200'000;   // of one table
constexpr size_t kFewest = 2'000;        // of one table, however many there are
constexpr size_t kPieces = 160;          // of a rank in the heat map

struct Kept {
  std::vector<bool> rows;
  size_t one_in = 1;  // of the rows that passed
  size_t count = 0;
};

// All rows if they fit; else those that did not pass, the first bad one among them, and a thin
// sample of the others.
Kept Choose(const Comparison& comparison, compare::Face face, size_t limit) {
  Kept out;
  const size_t n = comparison.rows.size();
  out.rows.assign(n, true);
  out.count = n;
  if (n <= limit) return out;
  size_t passed = 0;
  for (const compare::Row& row : comparison.rows) passed += NeutralVerdict(row, face) == "pass";
  const size_t room = limit > n - passed ? limit - (n - passed) : 1;
  out.one_in = (passed + room - 1) / room;
  out.count = 0;
  size_t seen = 0;
  for (size_t i = 0; i < n; ++i) {
    const bool pass = NeutralVerdict(comparison.rows[i], face) == "pass";
    const bool first = comparison.first_bad && comparison.first_bad->row_index == i;
    out.rows[i] = first || (pass ? seen++ % out.one_in == 0 : out.count < limit);
    out.count += out.rows[i];
  }
  return out;
}

std::string KeptNote(const Kept& kept, size_t all) {
  if (kept.count == all) return {};
  return fmt::format(
      "{} of {} rows are in this file: those that did not pass, and one in {} of those that did. "
      "The "
      "table on disk has all.",
      kept.count, all, kept.one_in);
}

// The largest error in equal pieces of the rows that are kept.
std::vector<double> Strip(const Comparison& comparison, const Kept& kept) {
  std::vector<double> out(std::min(kPieces, std::max<size_t>(kept.count, 1)), -1);
  size_t at = 0;
  for (size_t i = 0; i < comparison.rows.size(); ++i) {
    if (!kept.rows[i]) continue;
    const double error = RelativeError(comparison.rows[i], comparison.mode);
    double& piece = out[std::min(at++ * out.size() / kept.count, out.size() - 1)];
    if (!std::isnan(error)) piece = std::max(piece, error);
  }
  return out;
}

HtmlDetail Sides(const std::vector<Mode>& modes) {
  HtmlDetail out{.title = "Both sides", .heads = {"target", "golden"}, .lines = {}, .sides = true};
  const auto add = [&](const char* label, const char* key) {
    out.lines.push_back({label, {fmt::format("t_{}", key), fmt::format("g_{}", key)}});
  };
  out.lines.push_back({"golden name", {"", "other_name"}});
  add("dtype", "dtype");
  add("shape", "shape");
  add("grad", "grad");
  for (const Mode mode : modes) {
    if (mode == Mode::kMd5) add("checksum", "md5");
  }
  for (const char* key : {"max", "min", "mean", "norm"}) add(key, key);
  for (const Mode mode : modes) {
    if (mode == Mode::kTensor) add("file", "file");
  }
  return out;
}

std::vector<HtmlDetail> Details(const std::vector<Mode>& modes) {
  std::vector<HtmlDetail> out;
  for (const Mode mode : modes) {
    if (mode == Mode::kTensor) {
      out.push_back({.title = "How far apart",
                     .heads = {},
                     .lines = {{"relative error", {"error"}},
                               {"cosine", {"cosine"}},
                               {"Euclidean distance", {"euclidean"}},
                               {"largest absolute difference", {"max_abs"}},
                               {"largest relative difference", {"max_rel"}},
                               {"share of elements within 0.001", {"thousandth"}},
                               {"share of elements within 0.005", {"five"}}},
                     .sides = false});
    } else if (mode == Mode::kStatistics) {
      out.push_back({.title = "How far apart",
                     .heads = {},
                     .lines = {{"relative error", {"error"}}},
                     .sides = false});
    }
  }
  const bool only_tensors = modes == std::vector<Mode>{Mode::kTensor};
  if (!only_tensors) {
    out.push_back({.title = "By their sketches",
                   .heads = {"estimate", "± (95 %)"},
                   .lines = {{"relative distance", {"sketch", "sketch_bar"}},
                             {"Euclidean distance", {"sketch_distance", "sketch_distance_bar"}},
                             {"cosine", {"sketch_cosine", "sketch_cosine_bar"}},
                             {"all bits equal", {"bits", ""}}},
                   .sides = false});
  }
  out.insert(out.begin(), Sides(modes));
  return out;
}

std::vector<Mode> ModesOf(const CompareRun& run) {
  std::vector<Mode> out;
  for (const RankOutcome& r : run.ranks) {
    if (!r.error && std::find(out.begin(), out.end(), r.mode) == out.end()) out.push_back(r.mode);
  }
  return out;
}

// Columns of all modes that occur, each once.
std::vector<report::HtmlColumn> AllColumns(const std::vector<Mode>& modes) {
  std::vector<report::HtmlColumn> out;
  for (const Mode mode : modes) {
    for (report::HtmlColumn& c : HtmlColumns(mode)) {
      const bool there =
          std::any_of(out.begin(), out.end(), [&](const auto& o) { return o.key == c.key; });
      if (!there) out.push_back(std::move(c));
    }
  }
  return out;
}

report::HtmlView ViewOf(const CompareRun& run) {
  report::HtmlView v;
  const std::vector<Mode> modes = ModesOf(run);
  v.name = "name";
  v.verdict = "verdict";
  v.group = "entry";
  v.tree = "tree";
  v.series = "series";
  if (modes != std::vector<Mode>{Mode::kMd5}) {
    v.value = "error";
    v.value_title = "Relative error";
    const bool tensors = std::find(modes.begin(), modes.end(), Mode::kTensor) != modes.end();
    v.value_help =
        tensors ? "Per row: norm of the difference of both tensors over the norm of the golden one."
                : "Per row: the largest difference of maximum, minimum and mean over the largest "
                  "golden value, or of the norm over the golden norm.";
  }
  v.cause = "cause";
  v.cause_begins = kBegins;
  v.cause_follows = kPassedOn;
  v.message = "message";
  v.lines = "stack";
  v.lines_title = "Where it was called";
  v.verdicts = {{"error", HtmlTone::kBad, run.counts.error},
                {"warning", HtmlTone::kWarning, run.counts.warning},
                {"unmatched", HtmlTone::kMissing, run.counts.unmatched},
                {"pass", HtmlTone::kGood, run.counts.pass}};
  v.columns = AllColumns(modes);
  v.details = Details(modes);
  v.commands = {"msprobe diff {t_dump} {g_dump} --entry {name}",
                "msprobe diff {t_dump} {g_other} --entry {name} --golden-entry {other_name}",
                "msprobe inspect {t_dump} --entry {entry}"};
  return v;
}

// As a shell takes it.
std::string Quoted(const std::string& text) {
  constexpr std::string_view kPlain =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.,:/@%+=-";
  if (!text.empty() && text.find_first_not_of(kPlain) == std::string::npos) return text;
  std::string out = "'";
  for (const char c : text) out += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return out + "'";
}

// What shows the tensors of a finding; the call where it is about no tensor, or one side's only.
std::string NextCommand(const RankJob& job, const culprit::Finding& f) {
  if (f.entry.empty() || f.golden_entry.empty() || f.leaf.empty()) {
    const bool golden = f.entry.empty();
    return fmt::format("msprobe inspect {} --entry {}",
                       Quoted(golden ? job.golden_json : job.target_json),
                       Quoted(golden ? f.golden_entry : f.entry));
  }
  std::string out = fmt::format("msprobe diff {} {} --entry {}", Quoted(job.target_json),
                                Quoted(job.golden_json), Quoted(f.entry + "." + f.leaf));
  if (f.golden_entry != f.entry) out += " --golden-entry " + Quoted(f.golden_entry + "." + f.leaf);
  return out;
}

HtmlNote Consequences(const culprit::Report& report) {
  constexpr size_t kMost = 1000;
  HtmlNote out;
  out.title = CountOf(report.followers.size(), "consequence", "consequences") +
              ": calls that deviate because of it";
  const size_t shown = std::min(report.followers.size(), kMost);
  for (size_t i = 0; i < shown; ++i) out.lines.push_back({report.followers[i], {}});
  if (shown < report.followers.size()) {
    out.lines.push_back({fmt::format("and {} more", report.followers.size() - shown), {}});
  }
  return out;
}

HtmlNote FurtherFindings(const culprit::Report& report) {
  constexpr size_t kMost = 100;
  HtmlNote out;
  const size_t further = report.findings.size() - 1;
  out.title = CountOf(further, "further finding", "further findings");
  for (size_t i = 1; i <= std::min(further, kMost); ++i) {
    const culprit::Finding& f = report.findings[i];
    out.lines.push_back({fmt::format("{}: {}", KindName(f.kind), f.sentence), {}});
  }
  if (further > kMost) out.lines.push_back({fmt::format("and {} more", further - kMost), {}});
  out.open = true;
  return out;
}

void AddCulprit(const RankOutcome& rank, const std::string& label, HtmlPage& page) {
  const culprit::Report& report = *rank.culprit;
  const culprit::Finding& f = report.findings.front();
  page.tone = HtmlTone::kBad;
  page.answer =
      fmt::format("{}: {}{}", KindTitle(f.kind), f.entry.empty() ? f.golden_entry : f.entry,
                  label.empty() ? "" : ", " + label);
  page.explanation = f.sentence;
  if (const std::string loss = LossText(report); !loss.empty()) page.explanation += " " + loss;
  page.figures = CulpritFigures(f);
  page.figures.emplace(page.figures.begin(), "kind", KindName(f.kind));
  page.certainty = HowSure(report);
  if (report.findings.size() > 1) page.folds.push_back(FurtherFindings(report));
  page.folds.push_back(Consequences(report));
  page.commands = {NextCommand(rank.job, f)};
}

// What a search that found nothing says; empty without a search.
std::string SearchText(const CompareRun& run) {
  const culprit::Report* report = CulpritOf(run);
  if (report == nullptr || !report->findings.empty()) return {};
  if (report->verdict == culprit::Verdict::kNotJudged)
    return " The operator at fault could not be searched: " + report->reason + ".";
  return fmt::format(" No operator is at fault: {} calls were judged, {} of them replayed.",
                     report->judged, report->replayed);
}

void AddAnswer(const CompareRun& run, const std::vector<compare::State>& states, HtmlPage& page) {
  if (!run.first_bad_rank) {
    const bool compared = run.counts.total > run.counts.unmatched;
    page.tone = compared ? HtmlTone::kGood : HtmlTone::kMissing;
    page.answer = compared ? "No bad entry: every row that was compared is within the limits."
                           : "No row could be compared.";
    if (compared && run.counts.unmatched > 0) {
      page.explanation = fmt::format("{} of {} rows could not be compared, see below.",
                                     run.counts.unmatched, run.counts.total);
    }
    page.explanation += SearchText(run);
    return;
  }
  const size_t at = *run.first_bad_rank;
  const RankOutcome& rank = run.ranks[at];
  const bool alone = run.ranks.size() + run.missing.size() == 1;
  const std::string label = alone ? "" : RankLabel(rank.job);
  if (rank.culprit && !rank.culprit->findings.empty()) return AddCulprit(rank, label, page);
  const bool first_row =
      rank.first_bad->reason.find("no wrong output has right inputs") != std::string::npos;
  const bool argument = states[at] == compare::State::kInput && !first_row;
  page.tone = run.counts.error > 0 ? HtmlTone::kBad : HtmlTone::kWarning;
  page.answer = fmt::format("{}: {}{}{}",
                            first_row  ? "First wrong row"
                            : argument ? "First call with another argument"
                                       : "First wrong output from right inputs",
                            rank.first_bad->entry, label.empty() ? "" : ", ", label);
  page.explanation = rank.first_bad->reason + SearchText(run);
  page.commands = {fmt::format("msprobe diff {} {} --entry {}", Quoted(rank.job.target_json),
                               Quoted(rank.job.golden_json), Quoted(rank.first_bad->row))};
}

void AddFacts(const CompareOptions& options, const CompareRun& run, HtmlPage& page) {
  page.facts = {{"Target", options.target}, {"Golden", options.golden}};
  std::string modes;
  for (const Mode mode : ModesOf(run)) {
    modes += (modes.empty() ? "" : ", ") + std::string(ModeName(mode));
  }
  page.facts.emplace_back("Mode", modes);
  page.facts.emplace_back("Rules", RuleSetName(options.rules));
  page.facts.emplace_back("Started", IsoUtc(run.started));
  page.facts.emplace_back("Made by", "msprobe-native " MSPROBE_VERSION);
}

HtmlNote NotComparedNote(const CompareRun& run) {
  HtmlNote out;
  std::vector<NotCompared> all;
  for (const RankOutcome& r : run.ranks) {
    for (const NotCompared& n : r.not_compared) {
      auto it = std::find_if(all.begin(), all.end(),
                             [&](const NotCompared& o) { return o.reason == n.reason; });
      if (it == all.end()) {
        all.push_back(n);
      } else {
        it->rows += n.rows;
      }
    }
  }
  std::sort(all.begin(), all.end(),
            [](const NotCompared& a, const NotCompared& b) { return a.rows > b.rows; });
  for (const NotCompared& n : all) {
    out.lines.push_back(
        {fmt::format("{} {}: {}", n.rows, n.rows == 1 ? "row" : "rows", n.reason), n.entries});
  }
  out.title = fmt::format("Not compared: {} of {} rows", run.counts.unmatched, run.counts.total);
  out.open = true;
  return out;
}

HtmlNote SearchNote(const CompareRun& run) {
  HtmlNote out;
  for (const RankOutcome& r : run.ranks) {
    if (!r.culprit) continue;
    const std::string label = RankLabel(r.job);
    std::string line = label.empty() ? "" : label + ": ";
    line += fmt::format("by {}, {} calls judged, {} replayed", ModeName(r.culprit->mode),
                        r.culprit->judged, r.culprit->replayed);
    for (const std::string& note : r.culprit->notes) line += "; " + note;
    std::vector<std::string> reasons;
    for (const auto& [reason, count] : r.culprit->not_replayed) {
      reasons.push_back(fmt::format("{} not replayed: {}", count, reason));
    }
    out.lines.push_back({std::move(line), std::move(reasons)});
  }
  out.title = "How the operator at fault was searched";
  return out;
}

void AddNotes(const CompareOptions& options, const CompareRun& run, HtmlPage& page) {
  if (HtmlNote note = NotComparedNote(run); !note.lines.empty()) {
    page.notes.push_back(std::move(note));
  }
  HtmlNote messages;
  for (const std::string& m : run.messages) messages.lines.push_back({m, {}});
  for (const RankOutcome& r : run.ranks) {
    const std::string label = RankLabel(r.job);
    for (const std::string& n : r.notes) {
      messages.lines.push_back({label.empty() ? n : label + ": " + n, {}});
    }
  }
  if (!messages.lines.empty()) {
    messages.title = fmt::format("Messages ({})", messages.lines.size());
    page.notes.push_back(std::move(messages));
  }
  if (HtmlNote search = SearchNote(run); !search.lines.empty()) {
    page.notes.push_back(std::move(search));
  }
  HtmlNote how;
  how.title = "How it was compared";
  for (const auto& [key, value] : options.echo) how.lines.push_back({"--" + key + " " + value, {}});
  for (const RankOutcome& r : run.ranks) {
    for (const std::string& path : r.reports) how.lines.push_back({"table: " + path, {}});
    if (how.lines.size() > 20) break;
  }
  how.lines.push_back({"summary: " + run.summary_path, {}});
  page.notes.push_back(std::move(how));
}

// Where the search says that errors begin, and the row that stands for it.
void AddBegins(const RankOutcome& rank, HtmlPart& part) {
  if (!rank.culprit || rank.culprit->findings.empty() || !rank.first_bad) return;
  constexpr size_t kMost = 1000;
  for (const culprit::Finding& f : rank.culprit->findings) {
    if (part.begins.size() == kMost) break;
    part.begins.emplace_back(f.entry.empty() ? f.golden_entry : f.entry, f.sentence);
  }
  part.first = rank.first_bad->entry;
  part.first_name = rank.first_bad->row;
  // For the map of ranks; the page looks the row up by its name once it has the table.
  uint64_t all = 0;
  for (const uint64_t count : part.counts) all += count;
  const double along = static_cast<double>(rank.first_bad->row_index) / static_cast<double>(all);
  if (all > 0 && part.rows > 0) {
    part.first_row =
        static_cast<int64_t>(std::min(along, 1.0) * static_cast<double>(part.rows - 1));
  }
}

HtmlPart Outside(std::string label, std::string problem) {
  HtmlPart out;
  out.label = std::move(label);
  out.problem = std::move(problem);
  return out;
}

}  // namespace

bool WritesHtml() { return report::HtmlAvailable(); }

CompareHtml::CompareHtml(std::string path, size_t jobs, std::unique_ptr<report::HtmlReport> report)
    : path_(std::move(path)),
      report_(std::move(report)),
      parts_(jobs),
      first_state_(jobs, compare::State::kOutput) {}

Result<std::unique_ptr<CompareHtml>> CompareHtml::Create(const std::string& path, size_t jobs) {
  MSPROBE_ASSIGN(std::unique_ptr<report::HtmlReport> report, report::HtmlReport::Create(path));
  return std::unique_ptr<CompareHtml>(new CompareHtml(path, jobs, std::move(report)));
}

Result<CompareHtml::Piece> CompareHtml::PieceOf(size_t jobs, const CompareOptions& options,
                                                const RankOutcome& rank,
                                                const Comparison& comparison,
                                                const CancelToken* cancel) {
  const size_t limit = std::clamp(kMostRows / std::max<size_t>(jobs, 1), kFewest, kMostOfOne);
  const Kept kept = Choose(comparison, options.face, limit);
  Piece out;
  HtmlPart& part = out.part;
  {
    const report::HtmlTable table = HtmlRows(rank.job, comparison, options.face, kept.rows, cancel);
    if (cancel != nullptr && cancel->cancelled()) {
      return Error(ErrorCode::kCancelled, "interrupted while the page was made");
    }
    MSPROBE_ASSIGN(out.table, report::HtmlReport::Encode(table));
    part.rows = table.rows();
  }
  part.label = RankLabel(rank.job);
  part.note = KeptNote(kept, comparison.rows.size());
  const compare::Counts& c = comparison.counts;
  part.counts = {c.error, c.warning, c.unmatched, c.pass};
  if (jobs > 1) part.strip = Strip(comparison, kept);
  if (!comparison.first_bad) return out;
  const size_t at = comparison.first_bad->row_index;
  part.first = comparison.first_bad->entry;
  part.first_row =
      std::count(kept.rows.begin(), kept.rows.begin() + static_cast<ptrdiff_t>(at), true);
  if (const compare::Leaf* leaf = comparison.rows[at].target) out.first_state = leaf->state;
  return out;
}

void CompareHtml::Add(size_t index, Piece piece) {
  const Result<uint32_t> block = report_->AddEncoded(piece.table);
  if (!block.ok()) {
    const std::lock_guard lock(mutex_);
    if (!failure_) failure_ = block.error();
    return;
  }
  piece.part.block = *block;
  parts_[index] = std::move(piece.part);
  first_state_[index] = piece.first_state;
}

Status CompareHtml::Finish(const CompareOptions& options, const CompareRun& run) {
  if (failure_) return *failure_;
  HtmlPage page;
  page.title = "Comparison of two dumps";
  AddAnswer(run, first_state_, page);
  AddFacts(options, run, page);
  AddNotes(options, run, page);
  page.view = ViewOf(run);
  page.parts = std::move(parts_);
  for (size_t i = 0; i < page.parts.size(); ++i) {
    const RankOutcome& r = run.ranks[i];
    AddBegins(r, page.parts[i]);
    if (r.error) page.parts[i] = Outside(RankLabel(r.job), "failed: " + r.error->ToString());
  }
  for (const MissingPart& m : run.missing) {
    std::string label = m.step;
    if (!m.rank.empty()) label += (label.empty() ? "" : " ") + m.rank;
    page.parts.push_back(Outside(std::move(label), m.reason));
  }
  return report_->Finish(page);
}

}  // namespace msprobe::app
