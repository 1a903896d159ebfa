#include <fmt/format.h>

#include <optional>

#include "app/difference_part.h"
#include "base/file.h"

namespace msprobe::app {
namespace {

using Part = DifferencePart;
using PartHead = DifferenceHead;

class PartTaker final : public ResultReader::Taker {
 public:
  PartTaker(Part& part, JsonLines& lines) : part_(part), lines_(lines) {}
  Result<std::vector<BlobHead>> Head(std::string_view bytes) override {
    part_.remote = Unpacked<PartHead>(bytes);
    if (!part_.remote) return Error(ErrorCode::kMalformed, "the worker is of another version");
    return part_.remote->blobs;
  }
  Status Blob(const BlobHead& blob, std::string_view bytes) override {
    const bool rows = blob.kind == BlobKind::kRows;
    std::optional<AtomicFile>& file = rows ? rows_ : file_;
    if (!file) {
      MSPROBE_ASSIGN(file, AtomicFile::Create(part_.report + (rows ? ".rows" : "")));
    }
    return file->Write(bytes);
  }
  // The rows of a result that does not come whole are nowhere.
  Status Commit() {
    if (file_) MSPROBE_TRY(file_->Commit());
    if (!rows_) return {};
    MSPROBE_TRY(rows_->Flush());
    return CopyBlocks(rows_->temporary_path(),
                      [&](std::string_view block) { return lines_.Write(block); });
  }

 private:
  Part& part_;
  JsonLines& lines_;
  std::optional<AtomicFile> file_, rows_;
};

class PartSink final : public ItemSink {
 public:
  PartSink(std::vector<Part>& parts, JsonLines& lines, LogSink& log)
      : parts_(parts), lines_(lines), log_(log) {}
  Status Chunk(size_t item, std::string_view bytes) override {
    Begin(item);
    return reader_->Add(bytes);
  }
  Status Done(size_t item) override {
    Begin(item);
    MSPROBE_TRY(reader_->Finish());
    Part& part = parts_[item];
    for (const Message& m : part.remote->messages) log_.Log(m.level, m.text);
    part.error = part.remote->error;
    if (!part.error) MSPROBE_TRY(taker_->Commit());
    End(part);
    return {};
  }
  Status Failed(size_t item, const std::string& reason) override {
    parts_[item].remote.reset();
    parts_[item].error = Error(ErrorCode::kInternal, reason);
    End(parts_[item]);
    return {};
  }

 private:
  void Begin(size_t item) {
    if (reader_) return;
    taker_.emplace(parts_[item], lines_);
    reader_.emplace(*taker_);
  }
  void End(const Part& part) {
    reader_.reset();
    taker_.reset();
    if (!part.error || parts_.size() == 1) return;
    log_.Error(fmt::format("{}: not compared: {}", RankLabel(part.job), part.error->ToString()));
  }
  std::vector<Part>& parts_;
  JsonLines& lines_;
  LogSink& log_;
  std::optional<PartTaker> taker_;
  std::optional<ResultReader> reader_;
};

}  // namespace

Status FindDifferencesWithEngine(const CompareOptions& options, std::vector<Part>& parts,
                                 JsonLines& lines, LogSink& log, const CancelToken* cancel) {
  std::vector<WorkItem> items;
  for (Part& part : parts) items.push_back({Packed(part.job), {}});
  PartSink sink(parts, lines, log);
  return options.engine->Run(items, sink, cancel);
}

}  // namespace msprobe::app
