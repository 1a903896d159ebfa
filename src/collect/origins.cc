#include "collect/origins.h"

#include <algorithm>

#include "json/json.h"
#include "tensor/view.h"

namespace msprobe::collect {
namespace {

void AppendInts(std::string& out, std::span<const int64_t> values) {
  out += '[';
  for (size_t k = 0; k < values.size(); ++k) {
    if (k > 0) out += ", ";
    json::AppendInt(out, values[k]);
  }
  out += ']';
}

// Row-major and gapless; strides of dimensions of length 1 say nothing.
bool Contiguous(std::span<const int64_t> shape, std::span<const int64_t> strides) {
  int64_t expected = 1;
  for (size_t k = shape.size(); k-- > 0;) {
    if (shape[k] != 1 && strides[k] != expected) return false;
    expected *= shape[k];
  }
  return true;
}

}  // namespace

bool Origins::Fill(Record& record, const Piece& piece) {
  const size_t rank = piece.shape.size();
  if (piece.memory.storage == 0 || piece.memory.address == nullptr || rank > kMaxRank) return false;
  record.version = piece.memory.version;
  record.address = piece.memory.address;
  record.rank = static_cast<uint8_t>(rank);
  record.dtype = piece.dtype;
  record.elements = 1;
  for (size_t k = 0; k < rank; ++k) {
    record.shape[k] = piece.shape[k];
    record.elements *= piece.shape[k];
  }
  if (piece.memory.strides.size() == rank) {
    std::copy(piece.memory.strides.begin(), piece.memory.strides.end(), record.strides.begin());
  } else {
    int64_t stride = 1;
    for (size_t k = rank; k-- > 0; stride *= piece.shape[k]) record.strides[k] = stride;
  }
  record.contiguous = Contiguous({record.shape.data(), rank}, {record.strides.data(), rank});
  return record.elements > 0;
}

bool Origins::SamePiece(const Record& a, const Record& b) {
  if (a.address != b.address || a.rank != b.rank || a.dtype != b.dtype) return false;
  for (size_t k = 0; k < a.rank; ++k) {
    if (a.shape[k] != b.shape[k] || (a.shape[k] != 1 && a.strides[k] != b.strides[k])) return false;
  }
  return true;
}

void Origins::Note(const Piece& piece, const Producer& producer) {
  Record record;
  if (!Fill(record, piece)) return;
  record.leaf = producer.leaf;
  record.step = producer.step;
  if (producer.statistics != nullptr) {
    record.statistics = std::make_shared<const metrics::TensorStats>(*producer.statistics);
  }
  const std::lock_guard lock(mutex_);
  if (last_entry_ == nullptr || *last_entry_ != producer.entry) {
    last_entry_ = std::make_shared<const std::string>(producer.entry);
  }
  record.entry = last_entry_;
  std::vector<Record>& of_storage = records_[piece.memory.storage];
  const auto known = std::find_if(of_storage.begin(), of_storage.end(),
                                  [&](const Record& r) { return SamePiece(r, record); });
  if (known != of_storage.end()) {
    const bool unchanged = known->version == record.version && known->step == record.step;
    // One tensor in two places of an entry has the first as its place.
    if (unchanged && (producer.module || known->entry == record.entry)) return;
    of_storage.erase(known);
  }
  if (of_storage.size() >= kMaxPieces) of_storage.erase(of_storage.begin() + 1);
  of_storage.push_back(std::move(record));
}

void Origins::AppendView(std::string& out, const Record& base, const Record& piece) {
  const auto bytes =
      static_cast<const std::byte*>(piece.address) - static_cast<const std::byte*>(base.address);
  const std::span<const int64_t> strides(piece.strides.data(), piece.rank);
  const auto item_size = static_cast<std::ptrdiff_t>(ItemSize(piece.dtype));
  if (base.dtype != piece.dtype || bytes % item_size != 0) {
    out += ", \"view\": {}";  // other elements: their places cannot be told
    return;
  }
  out += ", \"view\": {\"offset\": ";
  json::AppendInt(out, bytes / item_size);
  out += ", \"strides\": ";
  AppendInts(out, strides);
  if (!base.contiguous) {
    out += ", \"base_strides\": ";
    AppendInts(out, {base.strides.data(), base.rank});
  }
  out += '}';
}

bool Origins::AppendFrom(std::string& out, const Piece& piece, int64_t step) const {
  Record wanted;
  if (!Fill(wanted, piece)) return false;
  const std::lock_guard lock(mutex_);
  const auto it = records_.find(piece.memory.storage);
  if (it == records_.end() || it->second.empty()) return false;
  const Record* found = nullptr;
  bool same = false;
  for (const Record& r : it->second) {
    const bool matches = SamePiece(r, wanted);
    if (same && !matches) continue;
    if (matches || found == nullptr || r.elements >= found->elements) found = &r;
    same = same || matches;
  }
  out += "\"from\": {\"entry\": ";
  json::AppendString(out, *found->entry);
  out += ", \"leaf\": ";
  json::AppendString(out, found->leaf);
  if (found->step != step) {
    out += ", \"step\": ";
    json::AppendInt(out, found->step);
  }
  if (!same) AppendView(out, *found, wanted);
  if (wanted.version > found->version) {
    out += ", \"writes\": ";
    json::AppendInt(out, wanted.version - found->version);
  }
  out += '}';
  return true;
}

std::optional<metrics::TensorStats> Origins::Statistics(const Piece& piece) const {
  Record wanted;
  if (!Fill(wanted, piece)) return std::nullopt;
  const std::lock_guard lock(mutex_);
  const auto it = records_.find(piece.memory.storage);
  if (it == records_.end()) return std::nullopt;
  for (const Record& r : it->second) {
    if (SamePiece(r, wanted) && r.version == wanted.version && r.statistics != nullptr) {
      return *r.statistics;
    }
  }
  return std::nullopt;
}

void Origins::Forget(std::span<const uint64_t> storages) {
  const std::lock_guard lock(mutex_);
  for (const uint64_t storage : storages) records_.erase(storage);
}

size_t Origins::size() const {
  const std::lock_guard lock(mutex_);
  return records_.size();
}

}  // namespace msprobe::collect
