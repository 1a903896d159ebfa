#include "report/html_table.h"

#include <cassert>
#include <charconv>
#include <cmath>

#include "json/json.h"

namespace msprobe::report {
namespace {

template <class T>
void AppendNumber(std::string& out, T value) {
  char text[32];
  const auto [end, code] = std::to_chars(text, text + sizeof(text), value);
  assert(code == std::errc());
  out.append(text, end);
}

void AppendJsonDouble(std::string& out, double value) {
  if (std::isnan(value)) {
    out += "\"nan\"";
  } else if (std::isinf(value)) {
    out += value > 0 ? "\"inf\"" : "\"-inf\"";
  } else {
    AppendNumber(out, value);
  }
}

// Integers that a double of the page's script would round are texts.
template <class T>
void AppendInteger(std::string& out, T value) {
  constexpr T kExact = T{1} << 53;
  bool exact = value <= kExact;
  if constexpr (std::is_signed_v<T>) exact = exact && value >= -kExact;
  if (!exact) out += '"';
  AppendNumber(out, value);
  if (!exact) out += '"';
}

}  // namespace

HtmlTable::HtmlTable(std::span<const HtmlColumn> columns) {
  for (const HtmlColumn& c : columns) columns_.push_back({c.key, c.kind, {}, {}});
}

void HtmlTable::AddValue(std::string& out, const Cell& cell) {
  switch (cell.kind) {
    case Cell::Kind::kEmpty:
      out += "null";
      return;
    case Cell::Kind::kText:
      json::AppendString(out, cell.text);
      return;
    case Cell::Kind::kDouble:
      return AppendJsonDouble(out, cell.d);
    case Cell::Kind::kInt:
      return AppendInteger(out, cell.i);
    case Cell::Kind::kUint:
      return AppendInteger(out, cell.u);
    case Cell::Kind::kBool:
      out += cell.b ? "\"True\"" : "\"False\"";
      return;
  }
}

void HtmlTable::AddCategory(Column& column, const Cell& cell) {
  const std::string_view text = cell.kind == Cell::Kind::kText ? cell.text : std::string_view();
  if (!column.has_last || text != column.last_text) {
    column.last_text = text;
    const auto [it, added] =
        column.numbers.try_emplace(column.last_text, static_cast<uint32_t>(column.numbers.size()));
    if (added) {
      if (!column.texts.empty()) column.texts += ',';
      json::AppendString(column.texts, text);
    }
    column.last = it->second;
    column.has_last = true;
  }
  AppendNumber(column.values, column.last);
}

void HtmlTable::Row(std::span<const Cell> cells) {
  assert(cells.size() == columns_.size());
  for (size_t i = 0; i < cells.size(); ++i) {
    Column& column = columns_[i];
    if (rows_ > 0) column.values += ',';
    if (column.kind == HtmlColumn::Kind::kCategory) {
      AddCategory(column, cells[i]);
    } else {
      AddValue(column.values, cells[i]);
    }
  }
  ++rows_;
}

std::string HtmlTable::Json() const {
  size_t size = 64;
  for (const Column& c : columns_) size += c.values.size() + c.texts.size() + c.key.size() + 32;
  std::string out;
  out.reserve(size);
  out += "{\"n\":";
  AppendNumber(out, rows_);
  out += ",\"columns\":{";
  for (const Column& c : columns_) {
    if (out.back() != '{') out += ',';
    json::AppendString(out, c.key);
    if (c.kind == HtmlColumn::Kind::kCategory) {
      out.append(":{\"d\":[").append(c.texts).append("],\"c\":[").append(c.values).append("]}");
    } else {
      out.append(":{\"v\":[").append(c.values).append("]}");
    }
  }
  return out += "}}";
}

}  // namespace msprobe::report
