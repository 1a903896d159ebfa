#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <optional>
#include <unordered_map>

#include "archive/zip.h"
#include "base/file.h"
#include "report/table.h"
#include "report/text_rules.h"
#include "report/xml_events.h"

namespace msprobe::report {
namespace {

using Attributes = std::vector<XmlHandler::Attribute>;

constexpr uint32_t kMaxColumns = 16384, kMaxSheetRows = 1048576;  // of the format itself

// Collects the text of one string item: <t> inside <si> or <is>, without the phonetic runs <rPh>.
class StringItem {
 public:
  void Start(std::string_view name) {
    if (name == "rPh") ++phonetic_;
    if (name == "t") in_text_ = true;
  }
  void End(std::string_view name) {
    if (name == "rPh" && phonetic_ > 0) --phonetic_;
    if (name == "t") in_text_ = false;
  }
  void Text(std::string_view text) {
    if (in_text_ && phonetic_ == 0) text_ += text;
  }
  size_t size() const { return text_.size(); }
  std::string Take() { return UnescapeXlsxText(std::exchange(text_, {})); }

 private:
  std::string text_;
  bool in_text_ = false;
  int phonetic_ = 0;
};

class SharedStrings final : public XmlHandler {
 public:
  explicit SharedStrings(const ReadLimits& limits) : limits_(limits) {}
  Status Start(std::string_view name, const Attributes&) override {
    item_.Start(name);
    return {};
  }
  Status End(std::string_view name) override {
    item_.End(name);
    if (name != "si") return {};
    if (strings_.size() >= limits_.max_cells)
      return Error(ErrorCode::kTooLarge, "too many shared strings");
    strings_.push_back(item_.Take());
    return {};
  }
  Status Text(std::string_view text) override {
    item_.Text(text);
    if (item_.size() > limits_.max_cell_bytes)
      return Error(ErrorCode::kTooLarge, "a shared string is too long");
    return {};
  }
  std::vector<std::string> Take() { return std::move(strings_); }

 private:
  const ReadLimits& limits_;
  StringItem item_;
  std::vector<std::string> strings_;
};

// xl/workbook.xml: names of the sheets and the ids of their relationships, in order.
class SheetList final : public XmlHandler {
 public:
  struct Sheet {
    std::string name, id;
  };
  Status Start(std::string_view name, const Attributes& attributes) override {
    if (name != "sheet") return {};
    if (sheets.size() >= kMaxSheets) return Error(ErrorCode::kTooLarge, "too many sheets");
    sheets.push_back(
        {std::string(Value(attributes, "name")), std::string(Value(attributes, "id"))});
    return {};
  }
  Status End(std::string_view) override { return {}; }
  Status Text(std::string_view) override { return {}; }

  std::vector<Sheet> sheets;

 private:
  static constexpr size_t kMaxSheets = 10000;
};

// xl/_rels/workbook.xml.rels: id → name of the archive's member, for worksheets only.
class Relationships final : public XmlHandler {
 public:
  Status Start(std::string_view name, const Attributes& attributes) override {
    if (name != "Relationship" || !Value(attributes, "Type").ends_with("/worksheet")) return {};
    const std::string_view target = Value(attributes, "Target");
    members[std::string(Value(attributes, "Id"))] =
        target.starts_with('/') ? std::string(target.substr(1)) : fmt::format("xl/{}", target);
    return {};
  }
  Status End(std::string_view) override { return {}; }
  Status Text(std::string_view) override { return {}; }

  std::unordered_map<std::string, std::string> members;
};

// "AB12" → column 27 (0-based); nullopt when it is no such reference.
std::optional<uint32_t> ColumnOf(std::string_view reference) {
  uint32_t column = 0;
  size_t i = 0;
  for (; i < reference.size() && reference[i] >= 'A' && reference[i] <= 'Z'; ++i) {
    column = column * 26 + static_cast<uint32_t>(reference[i] - 'A' + 1);
    if (column > kMaxColumns) return std::nullopt;
  }
  if (i == 0 || i == reference.size()) return std::nullopt;
  return column - 1;
}

std::optional<uint32_t> ParseIndex(std::string_view text) {
  uint32_t value = 0;
  const auto r = std::from_chars(text.data(), text.data() + text.size(), value);
  if (r.ec != std::errc() || r.ptr != text.data() + text.size()) return std::nullopt;
  return value;
}

// What all sheets of a workbook may hold together.
struct Budget {
  uint64_t cells, bytes;
};

class SheetReader final : public XmlHandler {
 public:
  SheetReader(const std::vector<std::string>& shared, const ReadLimits& limits, Budget& budget)
      : shared_(shared), limits_(limits), budget_(budget) {}

  Status Start(std::string_view name, const Attributes& attributes) override {
    if (name == "row") return BeginRow(Value(attributes, "r"));
    if (name == "c") return BeginCell(attributes);
    if (name == "v") in_value_ = true;
    item_.Start(name);
    return {};
  }
  Status End(std::string_view name) override {
    if (name == "v") in_value_ = false;
    item_.End(name);
    if (name == "c") return EndCell();
    if (name == "row") return EndRow();
    return {};
  }
  Status Text(std::string_view text) override {
    if (in_value_) value_ += text;
    item_.Text(text);
    if (std::max(value_.size(), item_.size()) > limits_.max_cell_bytes) {
      return Error(ErrorCode::kTooLarge,
                   fmt::format("a cell of more than {} bytes", limits_.max_cell_bytes));
    }
    return {};
  }
  TextTable Take() { return std::move(table_); }

 private:
  Error Bad(std::string what) const {
    return Error(ErrorCode::kMalformed, fmt::format("row {}: {}", row_, what));
  }

  Status BeginRow(std::string_view reference) {
    uint32_t row = row_ + 1;
    if (!reference.empty()) {
      const auto parsed = ParseIndex(reference);
      if (!parsed || *parsed <= row_ || *parsed > kMaxSheetRows)
        return Bad("the next row has a wrong number");
      row = *parsed;
    }
    // Rows that the file leaves out are empty; those before the first one are not there.
    for (uint32_t r = row_ + 1; has_header_ && r < row; ++r) MSPROBE_TRY(AddRow({}));
    row_ = row;
    cells_.clear();
    return {};
  }

  Status BeginCell(const Attributes& attributes) {
    const std::string_view reference = Value(attributes, "r");
    uint32_t column = static_cast<uint32_t>(cells_.size());
    if (!reference.empty()) {
      const auto parsed = ColumnOf(reference);
      if (!parsed || *parsed < cells_.size()) return Bad("a cell has a wrong reference");
      column = *parsed;
    }
    if (column >= kMaxColumns) return Bad("more than 16384 columns");
    cells_.resize(column);
    type_ = Value(attributes, "t");
    value_.clear();
    item_.Take();
    return {};
  }

  Status EndCell() {
    std::string text;
    if (type_ == "s") {
      const auto index = ParseIndex(value_);
      if (!index || *index >= shared_.size())
        return Bad("a cell refers to a shared string that is not there");
      text = shared_[*index];
    } else if (type_ == "inlineStr") {
      text = item_.Take();
    } else if (type_ == "str") {
      text = UnescapeXlsxText(std::move(value_));
    } else if (type_ == "b") {
      text = value_.empty() ? "" : value_ == "0" ? "False" : "True";
    } else {
      text = std::move(value_);
    }
    if (text.size() > budget_.bytes)
      return Error(ErrorCode::kTooLarge, "the cells hold too much text");
    budget_.bytes -= text.size();
    cells_.push_back(std::move(text));
    return {};
  }

  Status EndRow() {
    if (has_header_) return AddRow(std::move(cells_));
    has_header_ = true;
    while (!cells_.empty() && cells_.back().empty()) cells_.pop_back();
    table_.columns = std::move(cells_);
    return {};
  }

  Status AddRow(std::vector<std::string> cells) {
    const size_t columns = table_.columns.size();
    for (size_t i = columns; i < cells.size(); ++i) {
      if (!cells[i].empty())
        return Bad(fmt::format("a cell right of the {} columns of the header", columns));
    }
    if (table_.rows.size() >= limits_.max_rows || columns > budget_.cells) {
      return Error(ErrorCode::kTooLarge, "too many rows or cells");
    }
    budget_.cells -= columns;
    cells.resize(columns);
    table_.rows.push_back(std::move(cells));
    return {};
  }

  const std::vector<std::string>& shared_;
  const ReadLimits& limits_;
  Budget& budget_;
  TextTable table_;
  bool has_header_ = false;
  uint32_t row_ = 0;  // number of the row that was begun last
  std::vector<std::string> cells_;
  std::string type_, value_;
  bool in_value_ = false;
  StringItem item_;
};

// One workbook, member by member, with one budget for the bytes that are unpacked.
class BookReader {
 public:
  BookReader(const std::string& path, const archive::ZipReader& zip, const ReadLimits& limits)
      : path_(path),
        zip_(zip),
        limits_(limits),
        unpacked_left_(limits.max_bytes),
        budget_{limits.max_cells, limits.max_bytes} {}

  Result<std::vector<TextTable>> Read() {
    SheetList list;
    MSPROBE_TRY(ParseMember("xl/workbook.xml", list));
    Relationships relationships;
    MSPROBE_TRY(ParseMember("xl/_rels/workbook.xml.rels", relationships));
    SharedStrings shared(limits_);
    if (zip_.Find("xl/sharedStrings.xml") != nullptr)
      MSPROBE_TRY(ParseMember("xl/sharedStrings.xml", shared));
    const std::vector<std::string> strings = shared.Take();
    std::vector<TextTable> tables;
    for (const SheetList::Sheet& sheet : list.sheets) {
      const auto member = relationships.members.find(sheet.id);
      if (member == relationships.members.end()) continue;  // a chart, not a table
      SheetReader reader(strings, limits_, budget_);
      MSPROBE_TRY(ParseMember(member->second, reader));
      tables.push_back(reader.Take());
      tables.back().sheet = sheet.name;
    }
    return tables;
  }

 private:
  Status ParseMember(const std::string& name, XmlHandler& handler) {
    const archive::ZipEntry* entry = zip_.Find(name);
    if (entry == nullptr) {
      return Error(ErrorCode::kMalformed, fmt::format("the workbook has no member \"{}\"", name))
          .At(path_);
    }
    auto text = zip_.Read(*entry, unpacked_left_);
    if (!text.ok()) return std::move(text).error().At(path_);
    unpacked_left_ -= text->size();
    Status parsed = ParseXml(*text, handler);
    if (!parsed.ok()) {
      Error error = std::move(parsed).error();
      // Line and column are those of the member, not of the file.
      if (error.line > 0)
        error.message += fmt::format(" (line {}, column {})", error.line, error.column);
      error.line = error.column = 0;
      return std::move(error).At(path_).Key(name);
    }
    return {};
  }

  const std::string& path_;
  const archive::ZipReader& zip_;
  const ReadLimits& limits_;
  uint64_t unpacked_left_;
  Budget budget_;
};

}  // namespace

Result<std::vector<TextTable>> ReadXlsx(const std::string& path, const ReadLimits& limits) {
  MSPROBE_ASSIGN(const InputFile file, InputFile::Open(path));
  if (file.size() > limits.max_bytes) {
    return Error(ErrorCode::kTooLarge, fmt::format("the file has {} bytes", file.size()))
        .At(path)
        .Hint(fmt::format("at most {} are read", limits.max_bytes));
  }
  auto zip = archive::ZipReader::Open(file);
  if (!zip.ok()) return std::move(zip).error().At(path);
  return BookReader(path, *zip, limits).Read();
}

}  // namespace msprobe::report
