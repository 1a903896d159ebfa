// Rows gathered into columns, as the script of an HTML page wants them.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "report/table.h"

namespace msprobe::report {

struct HtmlColumn {
  enum class Kind : uint8_t {
    kText,      // every row its own
    kCategory,  // texts that repeat: kept once
    kNumber     // doubles and integers; texts stand where there is no number
  };
  std::string key, title;
  Kind kind = Kind::kText;
  bool shown = false;     // in the table; others only in the details
  int width = 0;          // of the shown column, in pixels; 0 = what is left
  std::string help = {};  // one sentence
};

// Compact JSON by columns: {"n":2,"columns":{"name":{"v":["a","b"]},"kind":{"d":["x"],"c":[0,0]}}}.
// Only ASCII, infinities and NaN as the texts "inf", "-inf", "nan", empty cells as null.
class HtmlTable {
 public:
  explicit HtmlTable(std::span<const HtmlColumn> columns);
  // As many cells as columns.
  void Row(std::span<const Cell> cells);
  uint64_t rows() const { return rows_; }
  std::string Json() const;

 private:
  struct Column {
    std::string key;
    HtmlColumn::Kind kind;
    std::string values;  // numbers of the categories, or the values; separated by commas
    std::string texts;   // kCategory: the texts, in order of their numbers
    std::unordered_map<std::string, uint32_t> numbers = {};
    uint32_t last = 0;
    std::string last_text = {};
    bool has_last = false;
  };
  static void AddValue(std::string& out, const Cell& cell);
  static void AddCategory(Column& column, const Cell& cell);

  std::vector<Column> columns_;
  uint64_t rows_ = 0;
};

}  // namespace msprobe::report
