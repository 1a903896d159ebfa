// The result of a work item: a head, then files, behind one another, then a checksum; made in a
// worker and taken apart by the writer piece by piece.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "app/engine.h"
#include "base/result.h"

namespace msprobe::app {

// What a file of a result is for.
enum class BlobKind : uint8_t { kFile, kRows, kTable, kTests };
constexpr BlobKind LastOf(BlobKind) { return BlobKind::kTests; }

struct BlobHead {
  BlobKind kind = BlobKind::kFile;
  std::string name;  // kFile
  uint64_t size = 0;
};
template <class Archive>
void Fields(Archive& a, BlobHead& b) {
  a(b.kind, b.name, b.size);
}

// A file in pieces of kChunkBytes.
Status CopyBlocks(const std::string& path, const std::function<Status(std::string_view)>& take);

class ResultWriter {
 public:
  explicit ResultWriter(const std::function<Status(std::string_view)>& emit) : emit_(emit) {}
  // `head` (with the heads of the blobs inside) first, then every blob.
  Status Head(std::string_view head);
  Status Text(std::string_view bytes);
  Status File(const std::string& path);
  Status Finish();

 private:
  const std::function<Status(std::string_view)>& emit_;
  std::string buffer_;
  uint32_t sum_ = 0;
};

class ResultReader {
 public:
  class Taker {
   public:
    virtual ~Taker() = default;
    // Answers with the heads of the blobs.
    virtual Result<std::vector<BlobHead>> Head(std::string_view head) = 0;
    virtual Status Blob(const BlobHead& blob, std::string_view bytes) = 0;
  };
  explicit ResultReader(Taker& taker) : taker_(taker) {}
  // kMalformed when the bytes are no result.
  Status Add(std::string_view bytes);
  // kTruncated or kMalformed when they are not a whole one.
  Status Finish() const;

 private:
  Status AddHead(std::string_view& bytes);
  Taker& taker_;
  std::string pending_;  // the head, or the checksum, as far as it came
  bool has_head_ = false;
  std::vector<BlobHead> blobs_;
  size_t blob_ = 0;
  uint64_t left_ = 0;
  uint32_t sum_ = 0;
};

}  // namespace msprobe::app
