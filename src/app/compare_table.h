// Rows of a comparison as cells of a report: the column lists of compare.md 6 (G3 for the old face,
// G4 for the new one).
#pragma once

#include <span>
#include <string>
#include <vector>

#include "app/user_metrics.h"
#include "compare/compare.h"
#include "report/table.h"

namespace msprobe::app {

// Column names in report order. Stack: `NPU_Stack_Info` is shown; sketch: the columns of sketches.
std::vector<std::string> CompareColumns(compare::Mode mode, compare::Face face, bool stack,
                                        const UserColumns* user = nullptr, bool sketch = false);
// Of a comparison: sketches are shown where elements are not compared.
bool ShowsSketch(const compare::Comparison& comparison);

// Cells of one comparison. Not thread-safe: the cells of a row live until the next call of Cells().
class CompareTable {
 public:
  // `user`: columns behind the metrics of tensor mode; null: none.
  CompareTable(const compare::Comparison& comparison, compare::Face face,
               const UserColumns* user = nullptr);

  const std::vector<std::string>& columns() const { return columns_; }
  // As many cells as columns. `row` < comparison.rows.size().
  std::span<const report::Cell> Cells(size_t row);
  report::Mark MarkOf(size_t row) const;
  // Writes all rows and finishes the writer; the paths it wrote.
  Result<std::vector<std::string>> WriteTo(report::TableWriter& writer, const CancelToken* cancel);

 private:
  void AddStart(const compare::Row& row);
  void AddTensor(const compare::Row& row);
  void AddUser(size_t index);
  void AddStatistics(const compare::Row& row);
  void AddOldStatistics(const compare::Row& row);
  void AddStats(const compare::Leaf* leaf);
  void AddEnd(const compare::Row& row);
  void AddSketch(const compare::SketchPair& sketch);
  void Text(std::string_view borrowed);
  void Own(std::string text);
  void Number(double value);  // NaN: `Nan`
  void Value(const compare::CellValue& value);
  void StatText(const compare::StatCell& cell);

  const compare::Comparison& comparison_;
  compare::Face face_;
  const UserColumns* user_;
  std::vector<std::string> columns_;
  std::vector<report::Cell> cells_;
  std::vector<std::string>
      scratch_;  // texts of the current row; never resized, so views into it stay
  size_t used_ = 0;
  const std::vector<std::string>* last_stack_ = nullptr;
  std::string last_stack_text_;  // of last_stack_: entries that follow each other share theirs
};

}  // namespace msprobe::app
