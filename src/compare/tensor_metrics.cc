#include "compare/tensor_metrics.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <limits>
#include <numeric>

#include "base/file.h"
#include "base/thread_pool.h"
#include "compare/pair_reader.h"

namespace msprobe::compare {
namespace {

constexpr uint64_t kDefaultMemory = 4ull << 30;
// Larger pairs are cut into such pieces; fixed, so that sums do not depend on the number of
// threads.
constexpr int64_t kPieceElements = 4 << 20;
constexpr uint64_t kWholeAtOnce =
    32ull << 20;  // larger tensors that must be read whole are taken one at a time

struct PairPaths {
  std::string target, golden;
};

// What a row still needs after its gates were passed.
enum class Rest : uint8_t { kNothing, kPieces, kWhole };

bool Unreadable(Row& row, std::string reason) {
  row.gate = Gate::kUnreadable;
  row.unreadable = std::move(reason);
  return false;
}

// dtypes as they are compared: bf16 and fp8 become float32 (compare.md 7.1).
DType Converted(DType t) { return t == DType::kBF16 || IsFloat8(t) ? DType::kF32 : t; }

// A file must hold what the record says (decisions.md 29).
bool FitsRecord(Row& row, const Leaf& leaf, const formats::StoredTensor& tensor) {
  const std::optional<DType> recorded = DTypeFromTorchName(leaf.dtype);
  if (recorded && *recorded != tensor.dtype) {
    return Unreadable(row, fmt::format("{}: the file holds {}, the record says {}", leaf.data_name,
                                       TorchName(tensor.dtype), leaf.dtype));
  }
  const std::string shape = ShapeText(tensor.shape);
  if (leaf.shape != "None" && leaf.shape != shape) {
    return Unreadable(row, fmt::format("{}: the file holds shape {}, the record says {}",
                                       leaf.data_name, shape, leaf.shape));
  }
  return true;
}

// The file that stands in for the recorded one; null when none does.
const std::string* StandIn(const std::shared_ptr<const FileMap>& files, const Leaf& leaf) {
  if (!files) return nullptr;
  const auto it = files->find(std::string(leaf.data_name));
  return it == files->end() ? nullptr : &it->second;
}

Result<std::string> FileOf(const std::string& folder, const std::shared_ptr<const FileMap>& files,
                           const Leaf& leaf) {
  if (const std::string* instead = StandIn(files, leaf)) return *instead;
  Result<std::string> path = ResolveInside(folder, leaf.data_name);
  if (!path.ok()) path.error().path = std::string(leaf.data_name);
  return path;
}

// The file's own name and the reason, without the folder: cells are read on other machines.
std::string Reason(const Leaf& leaf, const Error& error) {
  return fmt::format("{}: {}", leaf.data_name, error.message);
}

class TensorComparer {
 public:
  TensorComparer(std::vector<Row>& rows, const TensorFolders& folders, uint64_t memory_limit)
      : rows_(rows),
        folders_(folders),
        memory_limit_(memory_limit ? memory_limit : kDefaultMemory) {}

  Status Run(unsigned workers, ProgressSink& progress, const CancelToken* cancel);

 private:
  // Gates 1 to 3: what the records alone say.
  static bool HasFiles(Row& row);
  bool Open(Row& row, const PairPaths& paths, std::vector<TensorSource>& pair);
  // Gates 5 to 9.
  bool Comparable(Row& row, const TensorSource& target, const TensorSource& golden);
  // All gates of a row, and its metrics too when it is small.
  Rest First(size_t index);
  void Whole(size_t index);
  Status Pieces(const std::vector<size_t>& large, unsigned workers, const CancelToken* cancel);
  static void Finish(Row& row, const TensorSource& target, const TensorSource& golden,
                     const PairResult& result);
  static void FinishOneElement(Row& row, const TensorSource& target, const TensorSource& golden);

  std::vector<Row>& rows_;
  const TensorFolders& folders_;
  uint64_t memory_limit_;
  std::vector<PairPaths> paths_;
  std::vector<int64_t> elements_;
};

bool TensorComparer::HasFiles(Row& row) {
  if (!row.target || !row.golden || row.gate == Gate::kDTypes) return false;
  if (row.target->data_name.empty()) {
    row.gate = Gate::kNoTargetFile;
  } else if (row.golden->data_name.empty()) {
    row.gate = Gate::kNoGoldenFile;
  } else {
    return true;
  }
  return false;
}

bool TensorComparer::Open(Row& row, const PairPaths& paths, std::vector<TensorSource>& pair) {
  for (const auto& [path, leaf] :
       {std::pair(&paths.target, row.target), {&paths.golden, row.golden}}) {
    Result<TensorSource> source = TensorSource::Open(*path);
    if (!source.ok()) return Unreadable(row, Reason(*leaf, source.error()));
    pair.push_back(std::move(source).value());
  }
  return true;
}

bool TensorComparer::Comparable(Row& row, const TensorSource& target, const TensorSource& golden) {
  const formats::StoredTensor& t = target.tensor();
  const formats::StoredTensor& g = golden.tensor();
  if (t.num_elements == 0) {
    row.gate = Gate::kEmpty;
    return false;
  }
  if (Squeezed(t.shape) != Squeezed(g.shape)) {
    row.gate = Gate::kShapes;
    return false;
  }
  // A file that stands in may have another shape or type than the record.
  const bool target_fits =
      StandIn(folders_.target_files, *row.target) || FitsRecord(row, *row.target, t);
  if (!target_fits) return false;
  if (!StandIn(folders_.golden_files, *row.golden) && !FitsRecord(row, *row.golden, g)) {
    return false;
  }
  if (IsComplex(t.dtype) != IsComplex(g.dtype)) {
    row.gate = Gate::kNotFloat;
    row.unreadable = fmt::format("{} against {}", TorchName(t.dtype), TorchName(g.dtype));
    return false;
  }
  row.dtype_differs = Converted(t.dtype) != Converted(g.dtype);
  const uint64_t whole =
      (target.streams() ? 0 : target.bytes()) + (golden.streams() ? 0 : golden.bytes());
  if (whole > memory_limit_) {
    return Unreadable(
        row, fmt::format("{}: a layout that must be read whole needs {} bytes, the limit is {}",
                         row.target->data_name, whole, memory_limit_));
  }
  return true;
}

void TensorComparer::FinishOneElement(Row& row, const TensorSource& target,
                                      const TensorSource& golden) {
  std::vector<std::byte> a_buffer, b_buffer;
  const auto a = target.Read(0, 1, a_buffer);
  const auto b = golden.Read(0, 1, b_buffer);
  if (!a.ok() || !b.ok()) return;
  const auto part = [&](const std::byte* data, const TensorSource& of, bool imaginary) {
    return ElementAt(data, of.tensor().dtype, 0, imaginary);
  };
  const double x = part(*a, target, false), y = part(*b, golden, false);
  const double xi = part(*a, target, true), yi = part(*b, golden, true);
  row.metrics.max_abs = std::hypot(x - y, xi - yi);
  row.metrics.max_rel = std::hypot(x - y, xi - yi) / std::hypot(y, yi);
}

void TensorComparer::Finish(Row& row, const TensorSource& target, const TensorSource& golden,
                            const PairResult& result) {
  const bool one_element = target.tensor().num_elements == 1;
  row.gate = one_element ? Gate::kZeroDim : Gate::kCompared;
  row.class_differs = result.positions_differ || result.opposite > 0;
  if (result.positions_differ && !one_element) {
    row.gate = Gate::kNonFinitePositions;
    return;
  }
  kernels::PairErrors errors = result.errors;
  // Opposite infinities stand at the same positions: as upstream, they count as equal everywhere
  // but in the largest error (D6).
  errors.class_mismatch = 0;
  errors.below_thousandth += result.opposite;
  errors.below_five_thousandths += result.opposite;
  row.metrics = metrics::MetricsOf(errors);
  if (result.opposite > 0) row.metrics.max_abs = std::numeric_limits<double>::infinity();
  if (row.class_differs && one_element) FinishOneElement(row, target, golden);
  const double base = errors.b_sumsq > 0 ? std::sqrt(errors.diff_sumsq / errors.b_sumsq)
                                         : (errors.diff_sumsq > 0 ? HUGE_VAL : 0);
  row.relative_l2 = std::isnan(base) ? -1 : base;
}

Rest TensorComparer::First(size_t index) {
  Row& row = rows_[index];
  PairPaths& paths = paths_[index];
  for (const auto& [folder, files, leaf, path] :
       {std::tuple(&folders_.target, &folders_.target_files, row.target, &paths.target),
        {&folders_.golden, &folders_.golden_files, row.golden, &paths.golden}}) {
    Result<std::string> found = FileOf(*folder, *files, *leaf);
    if (!found.ok()) {
      Unreadable(row, Reason(*leaf, found.error()));
      return Rest::kNothing;
    }
    *path = std::move(found).value();
  }
  std::vector<TensorSource> pair;
  if (!Open(row, paths, pair) || !Comparable(row, pair[0], pair[1])) return Rest::kNothing;
  elements_[index] = pair[0].tensor().num_elements;
  for (TensorSource& source : pair) {
    if (source.streams()) continue;
    if (source.bytes() > kWholeAtOnce) return Rest::kWhole;
    if (Status s = source.Load(); !s.ok()) {
      Unreadable(row, Reason(&source == &pair[0] ? *row.target : *row.golden, s.error()));
      return Rest::kNothing;
    }
  }
  const bool both_stream = pair[0].streams() && pair[1].streams();
  if (both_stream && elements_[index] > kPieceElements) return Rest::kPieces;
  const Result<PairResult> result = ComparePiece(pair[0], pair[1], 0, elements_[index]);
  if (!result.ok()) {
    Unreadable(row, result.error().ToString());
  } else {
    Finish(row, pair[0], pair[1], *result);
  }
  return Rest::kNothing;
}

void TensorComparer::Whole(size_t index) {
  Row& row = rows_[index];
  std::vector<TensorSource> pair;
  if (!Open(row, paths_[index], pair)) return;
  for (TensorSource& source : pair) {
    if (source.streams()) continue;
    if (Status s = source.Load(); !s.ok()) {
      Unreadable(row, Reason(&source == &pair[0] ? *row.target : *row.golden, s.error()));
      return;
    }
  }
  const Result<PairResult> result = ComparePiece(pair[0], pair[1], 0, elements_[index]);
  if (!result.ok()) {
    Unreadable(row, result.error().ToString());
  } else {
    Finish(row, pair[0], pair[1], *result);
  }
}

Status TensorComparer::Pieces(const std::vector<size_t>& large, unsigned workers,
                              const CancelToken* cancel) {
  struct Piece {
    size_t row;
    int64_t first, count;
  };
  // Files are opened again per piece: that costs little beside megabytes, and no descriptor is held
  // for long.
  std::vector<Piece> pieces;
  for (const size_t row : large) {
    const int64_t step = kPieceElements;
    for (int64_t first = 0; first < elements_[row]; first += step) {
      pieces.push_back({row, first, std::min(step, elements_[row] - first)});
    }
  }
  std::vector<std::optional<Result<PairResult>>> results(pieces.size());
  ParallelFor(
      pieces.size(), workers,
      [&](size_t i) {
        const Piece& piece = pieces[i];
        Result<TensorSource> t = TensorSource::Open(paths_[piece.row].target);
        Result<TensorSource> g = TensorSource::Open(paths_[piece.row].golden);
        if (!t.ok() || !g.ok()) {
          results[i] = Result<PairResult>(t.ok() ? g.error() : t.error());
        } else if (t->tensor().num_elements != elements_[piece.row] ||
                   g->tensor().num_elements != elements_[piece.row]) {
          results[i] = Result<PairResult>(
              Error(ErrorCode::kTruncated, "the file changed while it was read"));
        } else {
          results[i] = ComparePiece(*t, *g, piece.first, piece.count);
        }
      },
      cancel);
  if (cancel && cancel->cancelled()) return Error(ErrorCode::kCancelled, "interrupted");
  for (size_t i = 0; i < pieces.size();) {
    Row& row = rows_[pieces[i].row];
    PairResult sum;
    std::string failure;
    const size_t begin = i;
    for (; i < pieces.size() && pieces[i].row == pieces[begin].row; ++i) {
      const Result<PairResult>& part = *results[i];
      if (!part.ok()) {
        failure = part.error().ToString();
        continue;
      }
      sum.positions_differ |= part->positions_differ;
      sum.opposite += part->opposite;
      if (i == begin) {
        sum.errors = part->errors;
      } else {
        sum.errors.Merge(part->errors);
      }
    }
    std::vector<TensorSource> pair;
    if (!failure.empty()) {
      Unreadable(row, failure);
    } else if (Open(row, paths_[pieces[begin].row], pair)) {
      Finish(row, pair[0], pair[1], sum);
    }
  }
  return {};
}

// An estimate from the record, for the order of work only.
uint64_t RecordedBytes(const Leaf& leaf) {
  const std::optional<DType> dtype = DTypeFromTorchName(leaf.dtype);
  uint64_t bytes = dtype ? ItemSize(*dtype) : 1, number = 0;
  bool digits = false;
  for (const char c : leaf.shape) {
    if (c >= '0' && c <= '9') {
      number = std::min<uint64_t>(number * 10 + static_cast<uint64_t>(c - '0'), 1u << 31);
      digits = true;
    } else if (digits) {
      bytes = std::min<uint64_t>(bytes, 1ull << 32) * number;
      number = 0;
      digits = false;
    }
  }
  return bytes;
}

Status TensorComparer::Run(unsigned workers, ProgressSink& progress, const CancelToken* cancel) {
  paths_.resize(rows_.size());
  elements_.resize(rows_.size());
  std::vector<std::pair<uint64_t, size_t>> work;
  for (size_t i = 0; i < rows_.size(); ++i) {
    if (HasFiles(rows_[i])) work.emplace_back(RecordedBytes(*rows_[i].target), i);
  }
  std::stable_sort(work.begin(), work.end(),
                   [](const auto& a, const auto& b) { return a.first > b.first; });
  std::vector<Rest> rest(work.size(), Rest::kNothing);
  std::atomic<uint64_t> done{0};
  ParallelFor(
      work.size(), workers,
      [&](size_t i) {
        rest[i] = First(work[i].second);
        progress.Update("compare", ++done, work.size());
      },
      cancel);
  if (cancel && cancel->cancelled()) return Error(ErrorCode::kCancelled, "interrupted");
  std::vector<size_t> large;
  for (size_t i = 0; i < work.size(); ++i) {
    if (rest[i] == Rest::kPieces) large.push_back(work[i].second);
    if (rest[i] == Rest::kWhole) Whole(work[i].second);
    if (cancel && cancel->cancelled()) return Error(ErrorCode::kCancelled, "interrupted");
  }
  return Pieces(large, workers, cancel);
}

}  // namespace

Status CompareTensors(std::vector<Row>& rows, const TensorFolders& folders, unsigned workers,
                      uint64_t memory_limit, ProgressSink& progress, const CancelToken* cancel) {
  return TensorComparer(rows, folders, memory_limit).Run(workers, progress, cancel);
}

}  // namespace msprobe::compare
