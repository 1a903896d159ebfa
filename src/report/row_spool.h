// Rows on their way to a workbook: the number of sheets is known only when all rows are.
#pragma once

#include <cstdint>
#include <cstdio>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "report/table.h"

namespace msprobe::report {

// Keeps rows in memory up to kMemoryBytes and then in an unnamed file of `folder`, in the order
// they came.
class RowSpool {
 public:
  static constexpr size_t kMemoryBytes = 4u << 20;

  explicit RowSpool(std::string folder) : folder_(std::move(folder)) {}

  uint64_t rows() const { return rows_; }
  Status Add(std::span<const Cell> cells, Mark mark);

  // Ends adding and goes to the first row.
  Status Rewind();
  // The next row; texts are valid until the next call. One call for each row that was added.
  Status Next(std::vector<Cell>& cells, Mark& mark);

 private:
  struct CloseFile {
    void operator()(FILE* f) const { fclose(f); }
  };
  Status Spill();
  Status Refill(size_t needed);
  template <class T>
  void Put(T value) {
    buffer_.append(reinterpret_cast<const char*>(&value), sizeof(value));
  }

  std::string folder_;
  std::string buffer_;
  size_t read_ = 0;  // bytes of buffer_ already handed out
  uint64_t rows_ = 0;
  std::unique_ptr<FILE, CloseFile> file_;
};

}  // namespace msprobe::report
