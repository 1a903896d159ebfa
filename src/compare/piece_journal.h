// Figures of tensor pairs that are done, kept on disk while a comparison runs, so that an
// interrupted or killed one can go on where it was (`--resume`).
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>

#include "base/result.h"
#include "compare/pair_reader.h"

namespace msprobe::compare {

// Thread-safe. Trouble with the disk ends the journal, never the comparison.
class PieceJournal {
 public:
  // What was compared: two files as they were (path, inode, size, time of change) and the elements.
  using Key = std::array<uint64_t, 2>;
  // nullopt for files that cannot be looked at.
  static std::optional<Key> KeyOf(const std::string& target, const std::string& golden,
                                  int64_t first, int64_t count);

  // The journal of one pair of dumps, to be kept at `path`. `resume`: what an earlier run left
  // there counts, up to the first damaged record, if the same version of this tool wrote it; else
  // it is replaced. The file is made when the first records are written out: every 86 pieces or
  // every second. nullptr while another process writes it.
  static std::unique_ptr<PieceJournal> Open(const std::string& path, bool resume);
  ~PieceJournal();
  PieceJournal(const PieceJournal&) = delete;
  PieceJournal& operator=(const PieceJournal&) = delete;

  // The bytes of one journal that holds what those of several hold; empty texts are passed over.
  static std::string Joined(std::span<const std::string> journals);

  size_t known() const { return known_; }  // pieces of an earlier run
  std::optional<PairResult> Find(const Key& key) const;
  void Add(const Key& key, const PairResult& result);
  // The comparison is complete: the file goes.
  void Remove();

 private:
  explicit PieceJournal(std::string path) : path_(std::move(path)) {}
  bool OpenFile(bool make);
  void Read();
  void Flush();

  mutable std::mutex mutex_;
  std::string path_, buffer_;
  int fd_ = -1;
  bool broken_ = false;
  double flushed_ = 0;
  size_t known_ = 0;
  std::map<Key, PairResult> pieces_;  // of the earlier run
};

}  // namespace msprobe::compare
