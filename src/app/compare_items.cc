#include "app/compare_items.h"

#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <filesystem>

#include "app/compare_fields.h"
#include "app/culprit_app.h"
#include "app/culprit_ranks.h"
#include "app/item_stream.h"
#include "base/file.h"
#include "base/thread_pool.h"
#include "compare/piece_journal.h"

namespace msprobe::app {
namespace {

using compare::Share;

struct CompareItem {
  std::optional<Share> share;  // figures of these tensors only
  RankJob job;
  std::string stamp;
  uint64_t jobs = 1;        // pairs of the whole run
  std::vector<Share> lost;  // tensors to leave alone
  bool alone = false;       // the only pair: its culprit is searched where it is compared
};
template <class Archive>
void Fields(Archive& a, CompareItem& i) {
  a(i.share, i.job, i.stamp, i.jobs, i.lost, i.alone);
}

struct PairHead {
  std::optional<Error> error;
  compare::Mode mode = compare::Mode::kStatistics;
  compare::Counts counts;
  std::optional<compare::FirstBad> first_bad;
  std::vector<NotCompared> not_compared;
  std::vector<std::string> notes, reports;
  std::string advice, mapping;  // names of files
  std::optional<culprit::Report> culprit;
  std::vector<std::pair<std::string, uint64_t>> rows_of_entries;
  std::vector<uint64_t> row_names;
  std::optional<CompareHtml::Piece> html;
  std::optional<JunitReport::Suite> junit;
  std::vector<Message> messages;
  std::vector<BlobHead> blobs;
};
template <class Archive>
void Fields(Archive& a, PairHead& h) {
  a(h.error, h.mode, h.counts, h.first_bad, h.not_compared, h.notes, h.reports, h.advice, h.mapping,
    h.culprit, h.rows_of_entries, h.row_names, h.html, h.junit, h.messages, h.blobs);
}

Error BadPayload() { return {ErrorCode::kMalformed, "no work item of this version"}; }

// ---- in a worker

// One thread: the engine decides how many items run side by side.
compare::Options OneThread(const CompareOptions& options, const CompareItem& item,
                           CorePool& cores) {
  compare::Options out = EngineOptions(options, cores);
  out.share = item.share;
  out.lost = item.lost;
  return out;
}

Status RunShare(const CompareOptions& options, const CompareItem& item,
                const ItemContext& context) {
  const std::string path = JoinPath(context.scratch, "figures");
  auto journal = compare::PieceJournal::Open(path, false);
  compare::Input input;
  input.target_json = item.job.target_json;
  input.golden_json = item.job.golden_json;
  input.scratch = context.scratch;
  input.journal = journal.get();
  CorePool cores(0);
  // What is wrong with the pair is said by the item that writes its report.
  (void)compare::CompareRank(input, OneThread(options, item, cores), NullLog(), NullProgress(),
                             nullptr);
  journal.reset();
  std::vector<std::string> figures;
  if (PathExists(path)) {
    MSPROBE_ASSIGN(figures.emplace_back(), ReadTextFile(path, UINT64_MAX));
  }
  return context.emit(compare::PieceJournal::Joined(figures));
}

// What --json, --junit and the page need of the pair; the rows go to `rows_path`.
Status MakeShared(const CompareOptions& options, const CompareItem& item, const RankOutcome& out,
                  const std::string& rows_path, PairHead& head) {
  if (options.html) {
    MSPROBE_ASSIGN(head.html, CompareHtml::PieceOf(static_cast<size_t>(item.jobs), options, out,
                                                   *out.comparison, nullptr));
  }
  if (!options.junit_path.empty()) {
    head.junit = JunitReport::SuiteOf(out.job, *out.comparison, options.face);
  }
  if (options.json_path.empty()) return {};
  MSPROBE_ASSIGN(const std::unique_ptr<JsonRows> rows, JsonRows::Create(rows_path));
  MSPROBE_TRY(rows->Add(out.job, {*out.comparison, options.face, out.user.get()}, nullptr));
  return rows->Commit();
}

void CopyOutcome(const RankOutcome& out, PairHead& head) {
  head.mode = out.mode;
  head.counts = out.counts;
  head.first_bad = out.first_bad;
  head.not_compared = out.not_compared;
  head.notes = out.notes;
  if (out.culprit) head.culprit = *out.culprit;
  head.rows_of_entries.assign(out.rows_of_entries.begin(), out.rows_of_entries.end());
  head.row_names = out.row_names;
}

Status EmitPair(RankOutcome& out, const std::string& rows_path, PairHead& head,
                const ItemContext& context) {
  std::vector<std::string> paths;  // of blobs that are files; "" = in memory
  const auto add_file = [&](const std::string& path, BlobKind kind) -> Status {
    MSPROBE_ASSIGN(const InputFile file, InputFile::Open(path));
    head.blobs.push_back({kind, std::string(BaseName(path)), file.size()});
    paths.push_back(path);
    return {};
  };
  if (!head.error) {
    for (const std::string& path : out.reports) {
      head.reports.emplace_back(BaseName(path));
      MSPROBE_TRY(add_file(path, BlobKind::kFile));
    }
    for (const auto& [path, name] :
         {std::pair(&out.advice_path, &head.advice), {&out.mapping_path, &head.mapping}}) {
      if (path->empty()) continue;
      *name = BaseName(*path);
      MSPROBE_TRY(add_file(*path, BlobKind::kFile));
    }
    if (PathExists(rows_path)) MSPROBE_TRY(add_file(rows_path, BlobKind::kRows));
    if (head.html) head.blobs.push_back({BlobKind::kTable, "", head.html->table.size()});
    if (head.junit) head.blobs.push_back({BlobKind::kTests, "", head.junit->tests.size()});
  }
  ResultWriter writer(context.emit);
  MSPROBE_TRY(writer.Head(Packed(head)));
  for (const std::string& path : paths) MSPROBE_TRY(writer.File(path));
  if (!head.error && head.html) MSPROBE_TRY(writer.Text(head.html->table));
  if (!head.error && head.junit) MSPROBE_TRY(writer.Text(head.junit->tests));
  return writer.Finish();
}

// ---- where results are written

// The files of a pair, which appear when all of them are there.
class PairTaker final : public ResultReader::Taker {
 public:
  PairTaker(const CompareOptions& options, const SharedOutputs& shared)
      : options_(options), shared_(shared) {}

  Result<std::vector<BlobHead>> Head(std::string_view bytes) override {
    std::optional<PairHead> head = Unpacked<PairHead>(bytes);
    // Whoever reads a finding counts on the place where it stands.
    if (!head || (head->culprit && !head->culprit->findings.empty() && !head->first_bad)) {
      return Error(ErrorCode::kMalformed, "the worker is of another version");
    }
    head_ = std::move(*head);
    return head_.blobs;
  }

  Status Blob(const BlobHead& blob, std::string_view bytes) override {
    switch (blob.kind) {
      case BlobKind::kFile:
      case BlobKind::kRows:
        if (open_ != &blob) {
          const std::string name =
              blob.kind == BlobKind::kRows ? ".msprobe_rows" : std::string(BaseName(blob.name));
          MSPROBE_ASSIGN(AtomicFile file, AtomicFile::Create(JoinPath(options_.output_dir, name)));
          (blob.kind == BlobKind::kRows ? rows_ : files_).push_back(std::move(file));
          open_ = &blob;
        }
        return (blob.kind == BlobKind::kRows ? rows_ : files_).back().Write(bytes);
      case BlobKind::kTable:
        if (head_.html) head_.html->table += bytes;
        return {};
      case BlobKind::kTests:
        if (head_.junit) head_.junit->tests += bytes;
        return {};
    }
    return {};
  }

  // Everything is there and whole.
  Status Commit(size_t index, RankOutcome& out, LogSink& log) {
    for (const Message& m : head_.messages) log.Log(m.level, m.text);
    out.error = std::move(head_.error);
    if (out.error) return {};
    for (AtomicFile& file : files_) {
      const std::string path = file.path();
      MSPROBE_TRY(file.Commit());
      MSPROBE_TRY(FitMode(path, options_.face));
    }
    out.mode = head_.mode;
    out.counts = head_.counts;
    out.first_bad = std::move(head_.first_bad);
    out.not_compared = std::move(head_.not_compared);
    out.notes = std::move(head_.notes);
    const auto place = [&](const std::string& name) {
      return name.empty() ? name : JoinPath(options_.output_dir, BaseName(name));
    };
    for (const std::string& name : head_.reports) out.reports.push_back(place(name));
    out.advice_path = place(head_.advice);
    out.mapping_path = place(head_.mapping);
    if (head_.culprit) out.culprit = std::make_shared<const culprit::Report>(*head_.culprit);
    out.rows_of_entries.insert(head_.rows_of_entries.begin(), head_.rows_of_entries.end());
    out.row_names = std::move(head_.row_names);
    if (shared_.html && head_.html) shared_.html->Add(index, std::move(*head_.html));
    if (shared_.junit && head_.junit) shared_.junit->Add(index, std::move(*head_.junit));
    for (AtomicFile& rows : rows_) MSPROBE_TRY(AppendRows(rows));
    return {};
  }

 private:
  Status AppendRows(AtomicFile& rows) {
    if (!shared_.json) return {};
    MSPROBE_TRY(rows.Flush());
    return CopyBlocks(rows.temporary_path(),
                      [&](std::string_view block) { return shared_.json->Append(block); });
  }

  const CompareOptions& options_;
  const SharedOutputs& shared_;
  PairHead head_;
  const BlobHead* open_ = nullptr;
  std::vector<AtomicFile> files_, rows_;
};

class RunSink final : public ItemSink {
 public:
  struct Context {
    const CompareOptions& options;
    const SharedOutputs& shared;
    CompareRun& run;
    LogSink& log;
    const CancelToken* cancel;
    bool alone;  // the culprit is searched by the items
  };
  // `pair_of`: index of the pair of each item.
  RunSink(const Context& context, std::vector<size_t> pair_of)
      : c_(context), across_(context.run.ranks, false), pair_of_(std::move(pair_of)) {}

  Status Chunk(size_t, std::string_view bytes) override {
    Begin();
    return reader_->Add(bytes);
  }
  Status Done(size_t item) override {
    Begin();
    MSPROBE_TRY(reader_->Finish());
    const size_t pair = pair_of_[item];
    RankOutcome& out = c_.run.ranks[pair];
    out.error.reset();
    RankLog log(c_.log, RankLabel(out.job));
    const Status done = taker_->Commit(pair, out, log);
    if (!done.ok()) out.error = done.error();
    if (!c_.alone) search_.Run(c_.options, out, c_.log, c_.cancel);
    // The error of a lone pair is that of the whole run and is said by the caller.
    if (out.error && !c_.alone) {
      log.Error("not compared: " + out.error->ToString());
    }
    End();
    return {};
  }
  Status Failed(size_t item, const std::string& reason) override {
    c_.run.ranks[pair_of_[item]].error = Error(ErrorCode::kInternal, reason);
    failed_.push_back(pair_of_[item]);
    End();
    return {};
  }
  const std::vector<size_t>& failed() const { return failed_; }

 private:
  void Begin() {
    if (reader_) return;
    taker_.emplace(c_.options, c_.shared);
    reader_.emplace(*taker_);
  }
  void End() {
    reader_.reset();
    taker_.reset();
  }
  const Context& c_;
  StepCollectives across_;
  CulpritSearch search_{&across_};
  std::vector<size_t> pair_of_, failed_;
  std::optional<PairTaker> taker_;
  std::optional<ResultReader> reader_;
};

// Which items fail; what the others give is not kept.
class ProbeSink final : public ItemSink {
 public:
  Status Chunk(size_t, std::string_view) override { return {}; }
  Status Done(size_t) override { return {}; }
  Status Failed(size_t item, const std::string&) override {
    failed.push_back(item);
    return {};
  }
  std::vector<size_t> failed;
};

// ---- the plan

uint64_t TensorBytes(const RankJob& job) {
  uint64_t bytes = 0;
  std::error_code failed;
  const std::string folder = JoinPath(DirName(job.target_json), "dump_tensor_data");
  for (std::filesystem::directory_iterator it(folder, failed), end; !failed && it != end;
       it.increment(failed)) {
    std::error_code ignored;
    const uint64_t size = it->file_size(ignored);
    if (!ignored) bytes += size;
  }
  return bytes;
}

// Blocks that a pair is cut into; more than one only where pairs are too few for the places.
uint32_t BlocksOf(const CompareOptions& options, const RankJob& job, size_t jobs, unsigned slots) {
  const bool plain = options.backend == Backend::kNone && options.postprocess.products.empty();
  const size_t room = 4 * size_t{slots} / jobs;
  if (!plain || room < 2) return 1;
  const uint64_t blocks = TensorBytes(job) / std::max<uint64_t>(options.block_bytes, 1);
  return static_cast<uint32_t>(std::clamp<uint64_t>(blocks, 1, room));
}

// Which tensors a pair dies of: parts of it are run by themselves, and parts of those that fail,
// down to single ones of a quarter of a million.
Result<std::vector<Share>> FindLost(Engine& engine, const CompareItem& pair,
                                    const CancelToken* cancel) {
  constexpr uint32_t kParts = 64;
  std::vector<Share> suspects = {{0, 1}};
  for (int level = 0; level < 3 && !suspects.empty(); ++level) {
    std::vector<Share> shares;
    std::vector<WorkItem> items;
    for (const Share& s : suspects) {
      for (uint32_t k = 0; k < kParts; ++k)
        shares.push_back({s.index * kParts + k, s.count * kParts});
    }
    for (const Share& s : shares) {
      CompareItem item = pair;
      item.share = s;
      items.push_back({Packed(item), {}});
    }
    ProbeSink sink;
    MSPROBE_TRY(engine.Run(items, sink, cancel));
    suspects.clear();
    for (const size_t i : sink.failed) suspects.push_back(shares[i]);
  }
  return suspects;
}

Status Rescue(const RunSink::Context& c, const CompareItem& base,
              const std::vector<size_t>& failed) {
  for (const size_t pair : failed) {
    CompareItem item = base;
    item.job = c.run.ranks[pair].job;
    RankLog log(c.log, RankLabel(item.job));
    log.Warning(c.run.ranks[pair].error->message + "; its tensors are tried in parts");
    MSPROBE_ASSIGN(item.lost, FindLost(*c.options.engine, item, c.cancel));
    bool lost = item.lost.empty();
    if (!lost) {
      RunSink sink(c, {pair});
      const std::vector<WorkItem> items = {{Packed(item), {}}};
      MSPROBE_TRY(c.options.engine->Run(items, sink, c.cancel));
      lost = !sink.failed().empty();
    }
    if (lost && !base.alone) log.Error("not compared: " + c.run.ranks[pair].error->ToString());
  }
  return {};
}

}  // namespace

Status CompareWithEngine(const CompareOptions& options, const std::string& stamp,
                         const SharedOutputs& shared, CompareRun& run, LogSink& log,
                         const CancelToken* cancel) {
  MSPROBE_ASSIGN(const unsigned slots, options.engine->Slots());
  CompareItem item;
  item.stamp = stamp;
  item.jobs = run.ranks.size();
  item.alone = run.ranks.size() == 1;
  std::vector<WorkItem> items;
  std::vector<size_t> pair_of;
  for (size_t i = 0; i < run.ranks.size(); ++i) {
    item.job = run.ranks[i].job;
    WorkItem pair;
    const uint32_t blocks = BlocksOf(options, item.job, run.ranks.size(), slots);
    for (uint32_t k = 0; blocks > 1 && k < blocks; ++k) {
      item.share = Share{k, blocks};
      pair.inputs.push_back(items.size());
      pair_of.push_back(i);
      items.push_back({Packed(item), {}});
    }
    item.share.reset();
    pair.payload = Packed(item);
    pair_of.push_back(i);
    items.push_back(std::move(pair));
  }
  const RunSink::Context context = {options, shared, run, log, cancel, item.alone};
  RunSink sink(context, std::move(pair_of));
  MSPROBE_TRY(options.engine->Run(items, sink, cancel));
  return Rescue(context, item, sink.failed());
}

Status RunCompareItem(CompareOptions options, std::string_view payload,
                      const ItemContext& context) {
  const std::optional<CompareItem> item = Unpacked<CompareItem>(payload);
  if (!item) return BadPayload();
  options.engine = nullptr;
  if (item->share) return RunShare(options, *item, context);
  options.output_dir = context.scratch;
  options.figures = JoinPath(context.scratch, "figures");
  if (!context.inputs.empty()) {
    MSPROBE_ASSIGN(AtomicFile file, AtomicFile::Create(options.figures));
    MSPROBE_TRY(file.Write(compare::PieceJournal::Joined(context.inputs)));
    MSPROBE_TRY(file.Commit());
  }
  RankOutcome out;
  out.job = item->job;
  MessageList log;
  CorePool cores(0);
  const compare::Options engine = OneThread(options, *item, cores);
  PairHead head;
  const std::string rows_path = JoinPath(context.scratch, "rows.jsonl");
  Status done = RunPair({options, engine, item->stamp, log, NullProgress(), nullptr}, out);
  if (done.ok() && item->alone) done = SearchPair(options, out, log);
  if (done.ok()) done = MakeShared(options, *item, out, rows_path, head);
  if (done.ok()) {
    CopyOutcome(out, head);
  } else {
    head.error = done.error();
  }
  out.comparison.reset();
  head.messages = log.Take();
  return EmitPair(out, rows_path, head, context);
}

}  // namespace msprobe::app
