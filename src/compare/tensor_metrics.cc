#include "compare/tensor_metrics.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <functional>
#include <limits>
#include <numeric>
#include <optional>
#include <span>

#include "base/file.h"
#include "base/thread_pool.h"
#include "compare/evidence.h"
#include "compare/match.h"
#include "compare/pair_reader.h"
#include "compare/piece_journal.h"
#include "metrics/rounding.h"

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
enum class Rest : uint8_t { kNotReached, kNothing, kPieces, kWhole };

bool Unreadable(Row& row, std::string reason) {
  row.gate = Gate::kUnreadable;
  row.unreadable.Edit() = std::move(reason);
  return false;
}

// dtypes as they are compared: bf16 and fp8 become float32 (compare.md 7.1).
DType Converted(DType t) { return t == DType::kBF16 || IsFloat8(t) ? DType::kF32 : t; }

// A file must hold what the record says (decisions.md 29).
bool FitsRecord(Row& row, const Leaf& leaf, const formats::StoredTensor& tensor) {
  const std::optional<DType> recorded = RecordedDType(leaf.dtype);
  if (recorded && *recorded != tensor.dtype) {
    return Unreadable(row, fmt::format("{}: the file holds {}, the record says {}", leaf.data_name,
                                       TorchName(tensor.dtype), leaf.dtype));
  }
  const std::string shape = ShapeText(tensor.shape);
  if (leaf.shape != "None" && leaf.shape != shape && !leaf.packed) {
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
  TensorComparer(std::vector<Row>& rows, const TensorFolders& folders, const Options& options)
      : rows_(rows),
        folders_(folders),
        memory_limit_(options.memory_limit ? options.memory_limit : kDefaultMemory),
        default_rules_(options.rules == RuleSet::kDefault),
        share_(options.share),
        lost_(options.lost),
        workers_(options.workers),
        cores_(options.cores) {}

  Status Run(ProgressSink& progress, const CancelToken* cancel);

 private:
  // Gates 1 to 3: what the records alone say.
  static bool HasFiles(Row& row);
  bool Open(Row& row, const PairPaths& paths, std::vector<TensorSource>& pair);
  // Gates 5 to 9.
  bool Comparable(Row& row, const TensorSource& target, const TensorSource& golden);
  // All gates of a row, and its metrics too when it is small.
  Rest First(size_t index);
  void Whole(size_t index);
  // Bytes of the target, by record, and row.
  using Work = std::vector<std::pair<uint64_t, size_t>>;
  void Choose(Work& work);
  bool WantsEvidence() const { return default_rules_ && !share_; }
  struct Piece {
    size_t row;
    int64_t first, count;
    std::optional<Result<PairResult>> result;
  };
  void Compare(Piece& piece) const;
  // ComparePiece, or what an earlier run found.
  Result<PairResult> Piecewise(const PairPaths& paths, const TensorSource& target,
                               const TensorSource& golden, int64_t first, int64_t count) const;
  void Each(size_t n, const std::function<void(size_t)>& fn, const CancelToken* cancel) const;
  void Join(std::span<const Piece> pieces);
  void Pieces(const std::vector<size_t>& large, const CancelToken* cancel);
  static void Finish(Row& row, const TensorSource& target, const TensorSource& golden,
                     const PairResult& result, bool default_rules);
  static void AddEvidence(Row& row, const TensorSource& target, const TensorSource& golden,
                          const kernels::PairErrors& errors);
  static void FinishOneElement(Row& row, const TensorSource& target, const TensorSource& golden);

  std::vector<Row>& rows_;
  const TensorFolders& folders_;
  uint64_t memory_limit_;
  bool default_rules_;
  const std::optional<Share>& share_;
  const std::vector<Share>& lost_;
  unsigned workers_;
  CorePool* cores_;
  std::vector<PairPaths> paths_;
  std::vector<int64_t> elements_;
};

bool TensorComparer::HasFiles(Row& row) {
  if (!row.target || !row.golden || row.gate != Gate::kCompared) return false;
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
  if (default_rules_ && g.num_elements == 0) {
    row.gate = Gate::kEmptyGolden;
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
    row.unreadable.Edit() = fmt::format("{} against {}", TorchName(t.dtype), TorchName(g.dtype));
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
  row.metrics.Edit().max_abs = std::hypot(x - y, xi - yi);
  row.metrics.Edit().max_rel = std::hypot(x - y, xi - yi) / std::hypot(y, yi);
}

void TensorComparer::Finish(Row& row, const TensorSource& target, const TensorSource& golden,
                            const PairResult& result, bool default_rules) {
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
  row.metrics.Edit() = metrics::MetricsOf(errors);
  if (result.opposite > 0) row.metrics.Edit().max_abs = std::numeric_limits<double>::infinity();
  if (row.class_differs && one_element) FinishOneElement(row, target, golden);
  const double base = errors.b_sumsq > 0 ? std::sqrt(errors.diff_sumsq / errors.b_sumsq)
                                         : (errors.diff_sumsq > 0 ? HUGE_VAL : 0);
  row.relative_l2 = std::isnan(base) ? -1 : base;
  if (default_rules) AddEvidence(row, target, golden, errors);
}

// The place of the largest error, and where rounding could hide there, the place of the largest
// error for its value.
void TensorComparer::AddEvidence(Row& row, const TensorSource& target, const TensorSource& golden,
                                 const kernels::PairErrors& errors) {
  Evidence e = TensorEvidence(errors, target.tensor().dtype, golden.tensor().dtype);
  if (e.differs && errors.max_abs > 0) {
    const auto index = static_cast<int64_t>(errors.max_abs_index);
    const Result<PairPoint> at = PointAt(target, golden, index);
    if (!at.ok()) return;
    e.point[e.points++] = {at->error, at->value};
    const DType coarser = UnitRoundoff(target.tensor().dtype) > UnitRoundoff(golden.tensor().dtype)
                              ? target.tensor().dtype
                              : golden.tensor().dtype;
    const double enough = metrics::LargestNoise(coarser);
    if (!e.exact && e.rms > 0 && e.DeviationAt(e.rms) <= enough &&
        errors.max_abs > metrics::NoiseLevel(coarser) * e.rms) {
      const Result<PairPoint> worst = FindWorst(target, golden, e.rms, enough);
      if (!worst.ok()) return;
      e.point[e.points++] = {worst->error, worst->value};
    }
  }
  row.evidence = e;
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
  const Result<PairResult> result = Piecewise(paths, pair[0], pair[1], 0, elements_[index]);
  if (!result.ok()) {
    Unreadable(row, result.error().ToString());
  } else {
    Finish(row, pair[0], pair[1], *result, WantsEvidence());
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
  const Result<PairResult> result = Piecewise(paths_[index], pair[0], pair[1], 0, elements_[index]);
  if (!result.ok()) {
    Unreadable(row, result.error().ToString());
  } else {
    Finish(row, pair[0], pair[1], *result, WantsEvidence());
  }
}

void TensorComparer::Pieces(const std::vector<size_t>& large, const CancelToken* cancel) {
  // Files are opened again per piece: that costs little beside megabytes, and no descriptor is held
  // for long.
  std::vector<Piece> pieces;
  for (const size_t row : large) {
    const int64_t step = kPieceElements;
    for (int64_t first = 0; first < elements_[row]; first += step) {
      pieces.push_back({row, first, std::min(step, elements_[row] - first), {}});
    }
  }
  Each(pieces.size(), [&](size_t i) { Compare(pieces[i]); }, cancel);
  std::vector<std::span<const Piece>> tensors;
  for (size_t begin = 0, end = 0; begin < pieces.size(); begin = end) {
    while (end < pieces.size() && pieces[end].row == pieces[begin].row) ++end;
    tensors.push_back(std::span(pieces).subspan(begin, end - begin));
  }
  // Side by side too: where a tensor differs, its worst element is looked up in another pass.
  Each(tensors.size(), [&](size_t i) { Join(tensors[i]); }, nullptr);
}

Result<PairResult> TensorComparer::Piecewise(const PairPaths& paths, const TensorSource& target,
                                             const TensorSource& golden, int64_t first,
                                             int64_t count) const {
  std::optional<PieceJournal::Key> key;
  if (folders_.journal != nullptr) {
    key = PieceJournal::KeyOf(paths.target, paths.golden, first, count);
    if (key) {
      if (const std::optional<PairResult> known = folders_.journal->Find(*key)) return *known;
    }
  }
  Result<PairResult> result = ComparePiece(target, golden, first, count);
  if (key && result.ok()) folders_.journal->Add(*key, *result);
  return result;
}

void TensorComparer::Each(size_t n, const std::function<void(size_t)>& fn,
                          const CancelToken* cancel) const {
  if (cores_ != nullptr) {
    ParallelFor(n, *cores_, fn, cancel);
  } else {
    ParallelFor(n, workers_, fn, cancel);
  }
}

void TensorComparer::Compare(Piece& piece) const {
  Result<TensorSource> t = TensorSource::Open(paths_[piece.row].target);
  Result<TensorSource> g = TensorSource::Open(paths_[piece.row].golden);
  if (!t.ok() || !g.ok()) {
    piece.result = Result<PairResult>(t.ok() ? g.error() : t.error());
  } else if (t->tensor().num_elements != elements_[piece.row] ||
             g->tensor().num_elements != elements_[piece.row]) {
    piece.result =
        Result<PairResult>(Error(ErrorCode::kTruncated, "the file changed while it was read"));
  } else {
    piece.result = Piecewise(paths_[piece.row], *t, *g, piece.first, piece.count);
  }
}

// The pieces of one row, in order.
void TensorComparer::Join(std::span<const Piece> pieces) {
  Row& row = rows_[pieces.front().row];
  PairResult sum;
  std::string failure;
  for (const Piece& piece : pieces) {
    if (!piece.result) {
      row.gate = Gate::kNotReached;
      return;
    }
    const Result<PairResult>& part = *piece.result;
    if (!part.ok()) {
      failure = part.error().ToString();
      continue;
    }
    sum.positions_differ |= part->positions_differ;
    sum.opposite += part->opposite;
    if (&piece == pieces.data()) {
      sum.errors = part->errors;
    } else {
      sum.errors.Merge(part->errors);
    }
  }
  std::vector<TensorSource> pair;
  if (!failure.empty()) {
    Unreadable(row, failure);
  } else if (Open(row, paths_[pieces.front().row], pair)) {
    Finish(row, pair[0], pair[1], sum, WantsEvidence());
  }
}

// An estimate from the record, for the order of work only.
uint64_t RecordedBytes(const Leaf& leaf) {
  const std::optional<DType> dtype = RecordedDType(leaf.dtype);
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

// Leaves the rows of the share, and none of those that are lost.
void TensorComparer::Choose(Work& work) {
  if (!share_ && lost_.empty()) return;
  double total = 0, before = 0;
  for (const auto& [bytes, row] : work) total += static_cast<double>(bytes) + 1;
  Work left;
  for (const auto& [bytes, row] : work) {
    const double place = before / total;
    before += static_cast<double>(bytes) + 1;
    const auto in = [&](const Share& s) {
      return static_cast<uint32_t>(place * s.count) == s.index;
    };
    if (std::any_of(lost_.begin(), lost_.end(), in)) {
      Unreadable(rows_[row], fmt::format("{}: the worker that compared this tensor died each time",
                                         rows_[row].target->data_name));
    } else if (!share_ || in(*share_)) {
      left.emplace_back(bytes, row);
    }
  }
  work = std::move(left);
}

Status TensorComparer::Run(ProgressSink& progress, const CancelToken* cancel) {
  paths_.resize(rows_.size());
  elements_.resize(rows_.size());
  Work work;
  for (size_t i = 0; i < rows_.size(); ++i) {
    if (HasFiles(rows_[i])) work.emplace_back(RecordedBytes(*rows_[i].target), i);
  }
  Choose(work);
  std::stable_sort(work.begin(), work.end(),
                   [](const auto& a, const auto& b) { return a.first > b.first; });
  std::vector<Rest> rest(work.size(), Rest::kNotReached);
  std::atomic<uint64_t> done{0};
  Each(
      work.size(),
      [&](size_t i) {
        rest[i] = First(work[i].second);
        progress.Update("compare", ++done, work.size());
      },
      cancel);
  std::vector<size_t> large;
  for (size_t i = 0; i < work.size(); ++i) {
    Row& row = rows_[work[i].second];
    if (rest[i] == Rest::kPieces) large.push_back(work[i].second);
    if (rest[i] == Rest::kNotReached) row.gate = Gate::kNotReached;
    if (rest[i] != Rest::kWhole) continue;
    if (cancel && cancel->cancelled()) {
      row.gate = Gate::kNotReached;
    } else {
      Whole(work[i].second);
    }
  }
  Pieces(large, cancel);
  const bool cancelled = cancel && cancel->cancelled();
  if (cancelled && !work.empty() && std::all_of(work.begin(), work.end(), [&](const auto& w) {
        return rows_[w.second].gate == Gate::kNotReached;
      })) {
    return Error(ErrorCode::kCancelled, "interrupted");
  }
  return {};
}

}  // namespace

Status CompareTensors(std::vector<Row>& rows, const TensorFolders& folders, const Options& options,
                      ProgressSink& progress, const CancelToken* cancel) {
  return TensorComparer(rows, folders, options).Run(progress, cancel);
}

}  // namespace msprobe::compare
