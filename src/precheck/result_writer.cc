#include "precheck/result_writer.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <unordered_set>
#include <utility>

#include "base/file.h"
#include "base/time.h"
#include "report/table.h"

namespace msprobe::precheck {
namespace {

constexpr uint64_t kMaxBytes = 1ull << 30;
constexpr std::string_view kResult = "accuracy_checking_result_";
constexpr std::string_view kDetails = "accuracy_checking_details_";
constexpr std::string_view kBaseline = "accuracy_checking_details_baseline_";

Result<int> OpenToAppend(const std::string& path) {
  const int fd = ::open(path.c_str(), O_WRONLY | O_APPEND | O_CLOEXEC);
  if (fd < 0) return ErrnoError(errno, "open", path);
  return fd;
}

msprobe::Status WriteWhole(const std::string& path, std::string_view text) {
  MSPROBE_ASSIGN(AtomicFile file, AtomicFile::Create(path));
  MSPROBE_TRY(file.Write(text));
  return file.Commit();
}

// Text of cells as they stand in a file; a guarding apostrophe is there already.
std::string RecordText(std::span<const std::string> cells) {
  const std::vector<std::string_view> views(cells.begin(), cells.end());
  std::string out;
  AppendCsvRecord(out, views);
  return out;
}

// A record whose end is missing was being written when its run died. Our records end in CR LF and
// hold none.
msprobe::Status DropTornTail(const std::string& path) {
  MSPROBE_ASSIGN(const std::string text, ReadTextFile(path, kMaxBytes));
  if (text.empty() || text.ends_with("\r\n")) return {};
  const size_t end = text.rfind("\r\n");
  if (end == std::string::npos) {  // edited by somebody: other line ends
    if (text.ends_with('\n')) return {};
    return WriteWhole(path, text + "\n");
  }
  return WriteWhole(path, std::string_view(text).substr(0, end + 2));
}

std::string_view Unguarded(std::string_view cell) {
  if (cell.starts_with('\'') && report::LooksExecutable(cell.substr(1))) cell.remove_prefix(1);
  return cell;
}

// "Torch.add.0" of "Torch.add.0.forward.output.1"; the whole text when it has another form.
std::string_view ApiOf(std::string_view row) {
  for (const std::string_view direction : {".forward.output.", ".backward.output."}) {
    const size_t k = row.rfind(direction);
    if (k != std::string_view::npos) return row.substr(0, k);
  }
  return row;
}

using ApiSet = std::unordered_set<std::string_view>;

// The APIs that have rows; views into the table.
ApiSet ApisOf(const report::TextTable& details) {
  ApiSet out;
  for (const auto& row : details.rows) out.insert(ApiOf(Unguarded(row[0])));
  return out;
}

Result<report::TextTable> ReadDetailsFile(const std::string& path) {
  MSPROBE_TRY(DropTornTail(path));
  MSPROBE_ASSIGN(report::TextTable table, report::ReadCsv(path));
  if (table.columns.size() != DetailsHeader(false).size())
    return Error(ErrorCode::kMalformed, "has no header of a details file").At(path);
  return table;
}

bool IsSkip(const std::string& cell) {
  Status status;
  return StatusFromText(cell, status) && status == Status::kSkip;
}

// Writes back a table without the rows for which `drop` holds; nothing is touched when there are
// none.
template <class Drop>
msprobe::Status Rewrite(const std::string& path, const report::TextTable& table, Drop drop) {
  if (std::none_of(table.rows.begin(), table.rows.end(), drop)) return {};
  std::string text(kByteOrderMark);
  text += RecordText(table.columns);
  for (const auto& row : table.rows) {
    if (!drop(row)) text += RecordText(row);
  }
  return WriteWhole(path, text);
}

}  // namespace

ResultWriter::ResultWriter(ResultWriter&& other) noexcept { *this = std::move(other); }

ResultWriter& ResultWriter::operator=(ResultWriter&& other) noexcept {
  std::swap(result_fd_, other.result_fd_);
  std::swap(details_fd_, other.details_fd_);
  std::swap(baseline_fd_, other.baseline_fd_);
  options_ = other.options_;
  result_path_ = std::move(other.result_path_);
  details_path_ = std::move(other.details_path_);
  baseline_path_ = std::move(other.baseline_path_);
  stamp_ = std::move(other.stamp_);
  done_ = std::move(other.done_);
  return *this;
}

ResultWriter::~ResultWriter() {
  for (const int fd : {result_fd_, details_fd_, baseline_fd_})
    if (fd >= 0) ::close(fd);
}

std::string ResultWriter::PathOf(const std::string& dir, std::string_view kind) const {
  return JoinPath(dir, fmt::format("{}{}.csv", kind, stamp_));
}

msprobe::Status ResultWriter::OpenAll() {
  MSPROBE_ASSIGN(result_fd_, OpenToAppend(result_path_));
  MSPROBE_ASSIGN(details_fd_, OpenToAppend(details_path_));
  if (!baseline_path_.empty()) {
    MSPROBE_ASSIGN(baseline_fd_, OpenToAppend(baseline_path_));
  }
  return {};
}

Result<ResultWriter> ResultWriter::Create(const std::string& dir, int64_t unix_seconds,
                                          const WriterOptions& options) {
  ResultWriter out;
  out.options_ = options;
  out.stamp_ = LocalTimestamp(
      FreeTimestamp(dir,
                    {"accuracy_checking_result_{ts}.csv", "accuracy_checking_details_{ts}.csv",
                     "accuracy_checking_details_baseline_{ts}.csv",
                     "accuracy_checking_summary_{ts}.json", "accuracy_checking_meta_{ts}.json"},
                    unix_seconds));
  out.result_path_ = out.PathOf(dir, kResult);
  out.details_path_ = out.PathOf(dir, kDetails);
  std::string head(kByteOrderMark);
  AppendCsvRecord(head, DetailsHeader(options.english));
  MSPROBE_TRY(WriteWhole(out.details_path_, head));
  if (options.baseline) {
    out.baseline_path_ = out.PathOf(dir, kBaseline);
    MSPROBE_TRY(WriteWhole(out.baseline_path_, head));
  }
  head = kByteOrderMark;
  AppendCsvRecord(head, ResultHeader());
  MSPROBE_TRY(WriteWhole(out.result_path_, head));
  MSPROBE_TRY(out.OpenAll());
  return out;
}

Result<ResultWriter> ResultWriter::Resume(const std::string& result_csv, bool retry_skips,
                                          const WriterOptions& options) {
  ResultWriter out;
  out.options_ = options;
  out.result_path_ = result_csv;
  const std::string_view name = BaseName(result_csv);
  if (!name.starts_with(kResult) || name.size() != kResult.size() + 18)
    return Error(ErrorCode::kInvalidArgument, "is not a result file of the pre-check")
        .At(result_csv);
  out.stamp_ = name.substr(kResult.size(), 14);
  out.details_path_ = out.PathOf(DirName(result_csv), kDetails);
  MSPROBE_TRY(DropTornTail(out.result_path_));
  report::ReadLimits limits;
  limits.allow_short_rows = true;
  MSPROBE_ASSIGN(const report::TextTable results, report::ReadCsv(out.result_path_, limits));
  if (results.columns.size() < 3)
    return Error(ErrorCode::kMalformed, "has no header of a result file").At(out.result_path_);
  MSPROBE_ASSIGN(const report::TextTable details, ReadDetailsFile(out.details_path_));
  report::TextTable baseline;
  if (options.baseline) {
    out.baseline_path_ = out.PathOf(DirName(result_csv), kBaseline);
    if (!PathExists(out.baseline_path_)) {
      std::string head(kByteOrderMark);
      AppendCsvRecord(head, DetailsHeader(options.english));
      MSPROBE_TRY(WriteWhole(out.baseline_path_, head));
    }
    MSPROBE_ASSIGN(baseline, ReadDetailsFile(out.baseline_path_));
  }

  const ApiSet with_details = ApisOf(details);
  const ApiSet with_baseline = ApisOf(baseline);
  const auto drop_result = [&](const std::vector<std::string>& row) {
    if (row.size() < 3 || !with_details.contains(Unguarded(row[0]))) return true;
    if (options.baseline && !with_baseline.contains(Unguarded(row[0]))) return true;
    return retry_skips && IsSkip(row[1]) && IsSkip(row[2]);
  };
  ApiSet finished;
  for (const auto& row : results.rows) {
    if (drop_result(row)) continue;
    if (finished.insert(Unguarded(row[0])).second) out.done_.emplace_back(Unguarded(row[0]));
  }
  const auto is_unfinished = [&](const std::vector<std::string>& row) {
    return !finished.contains(ApiOf(Unguarded(row[0])));
  };
  MSPROBE_TRY(Rewrite(out.result_path_, results, drop_result));
  MSPROBE_TRY(Rewrite(out.details_path_, details, is_unfinished));
  if (options.baseline) MSPROBE_TRY(Rewrite(out.baseline_path_, baseline, is_unfinished));
  MSPROBE_TRY(out.OpenAll());
  return out;
}

msprobe::Status ResultWriter::Append(const ApiResult& api) {
  const auto write_rows = [&](int fd, const std::vector<DetailsRow>& rows) {
    std::string text;
    for (DetailsRow row : rows) {
      std::erase(row.message, '\r');  // CR LF ends a record, see DropTornTail
      AppendDetailsRow(text, row, options_.standard, options_.format);
    }
    return WriteAll(fd, text);
  };
  if (baseline_fd_ >= 0) MSPROBE_TRY(write_rows(baseline_fd_, api.baseline_rows));
  MSPROBE_TRY(write_rows(details_fd_, api.rows));
  std::string text;
  const std::array<std::string_view, 4> cells = {
      api.name, StatusText(api.forward, options_.standard),
      StatusText(api.backward, options_.standard), api.message};
  const bool skipped = api.forward == Status::kSkip || api.backward == Status::kSkip;
  AppendCsvRecord(text, std::span(cells).first(skipped ? 4 : 3));
  return WriteAll(result_fd_, text);
}

}  // namespace msprobe::precheck
