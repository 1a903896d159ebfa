// What we write is read back the same by our own readers (tests/python does it with those of
// others).
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "base/file.h"
#include "compare/piece_journal.h"
#include "dump/writer.h"
#include "formats/tensor_file.h"
#include "fuzz/target.h"
#include "json/json.h"
#include "report/table.h"

namespace msprobe::fuzz {
namespace {

// Cells are cut at 0xFF, rows at 0xFE: neither occurs in UTF-8.
std::vector<std::vector<std::string>> Rows(Bytes input) {
  std::vector<std::vector<std::string>> rows{{""}};
  for (const std::byte b : input) {
    if (b == std::byte{0xFE}) {
      rows.push_back({""});
    } else if (b == std::byte{0xFF}) {
      rows.back().emplace_back();
    } else {
      rows.back().back().push_back(static_cast<char>(b));
    }
  }
  return rows;
}

const std::vector<std::string> kColumns = {"name", "value", "text"};

// Rows of "row" and the first two cells of each.
void Write(report::TableWriter& writer, const std::vector<std::vector<std::string>>& rows) {
  Check(writer.Begin(kColumns).ok(), "a table cannot be begun");
  for (const auto& row : rows) {
    std::vector<report::Cell> cells(kColumns.size());
    cells[0] = report::Cell::Text("row");
    for (size_t i = 0; i < std::min<size_t>(row.size(), 2); ++i) {
      cells[i + 1] = report::Cell::Text(row[i]);
    }
    Check(writer.Row(cells, report::Mark::kNone).ok(), "a row was refused");
  }
  Check(writer.Finish().ok(), "a table cannot be finished");
}

void WriteTable(Bytes input) {
  const std::vector<std::string>& columns = kColumns;
  const std::string path = AsFile("written.csv", {});
  const auto rows = Rows(input);
  Write(*report::NewCsvWriter(path), rows);
  const uint64_t written = rows.size();
  const auto table = report::ReadCsv(path);
  Check(table.ok(), "csv that was written cannot be read");
  Check(table->columns == columns, "csv columns changed");
  Check(table->rows.size() == written, "csv rows were lost or came");
  for (const auto& row : table->rows) {
    Check(row.size() == columns.size(), "csv cells were lost or came");
    for (const auto& cell : row) {
      Check(!report::LooksExecutable(cell) || cell.starts_with('\''),
            "csv cell that a spreadsheet could run");
    }
  }
}

// Any dtype and shape, as .pt and, where NumPy has the type, as .npy.
void WriteTensor(Bytes input) {
  if (input.size() < 4) return;
  const auto dtype = static_cast<DType>(static_cast<uint8_t>(input[0]) % kNumDTypes);
  const std::vector<int64_t> shape = {static_cast<uint8_t>(input[1]) % 9,
                                      static_cast<uint8_t>(input[2]) % 9};
  std::vector<std::byte> data(static_cast<size_t>(shape[0] * shape[1]) * ItemSize(dtype));
  for (size_t i = 0; i < data.size(); ++i) data[i] = input[3 + i % (input.size() - 3)];

  const auto read_back = [&](const std::string& path) {
    const auto file = formats::TensorFile::Open(path);
    Check(file.ok(), "a tensor that was written cannot be opened");
    const auto tensor = formats::SingleTensor(*file);
    Check(tensor.ok() && tensor->dtype == dtype, "a tensor's dtype changed");
    Check(std::equal(shape.begin(), shape.end(), tensor->shape.begin(), tensor->shape.end()),
          "a tensor's shape changed");
    std::vector<std::byte> back(data.size());
    Check(file->ReadAll(*tensor, back.data()).ok() && back == data, "a tensor's elements changed");
  };
  const std::string pt = AsFile("written.pt", {});
  Check(formats::WritePt(pt, dtype, shape, false, data).ok(), ".pt cannot be written");
  read_back(pt);
  const std::string npy = AsFile("written.npy", {});
  if (formats::WriteNpy(npy, dtype, shape, data).ok()) read_back(npy);
}

// Text that no format has to escape and no sheet has to shorten.
bool IsPlain(std::string_view text) {
  return text.size() < 1000 &&
         std::all_of(
             text.begin(), text.end(),
             [](char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == ' '; });
}

void WriteXlsx(Bytes input) {
  const std::string path = AsFile("written.xlsx", {});
  const auto rows = Rows(input);
  Write(*report::NewXlsxWriter(path), rows);
  const auto book = report::ReadXlsx(path);
  Check(book.ok() && book->size() == 1, "a workbook that was written cannot be read");
  const report::TextTable& table = book->front();
  Check(table.columns == kColumns, "columns of a workbook changed");
  Check(table.rows.size() == rows.size(), "rows of a workbook were lost or came");
  for (size_t i = 0; i < rows.size(); ++i) {
    Check(table.rows[i].size() == kColumns.size() && table.rows[i][0] == "row",
          "cells of a workbook were lost or came");
    for (size_t k = 0; k < std::min<size_t>(rows[i].size(), 2); ++k) {
      Check(!IsPlain(rows[i][k]) || table.rows[i][k + 1] == rows[i][k],
            "a text of a workbook changed");
    }
  }
}

std::string Quoted(std::string_view text) {
  std::string out;
  json::AppendString(out, text);
  return out;
}

// A dump file that grows: a row is a key and a value, a row of one cell is a flush. It is whole
// after every flush.
void WriteDump(Bytes input) {
  const std::string path = AsFile("written.json", {});
  auto file = dump::GrowingObject::Create(path, "{\n \"data\": {", "}\n}", 2);
  Check(file.ok(), "a dump file cannot be made");
  std::vector<std::pair<std::string, std::string>> members;
  const auto is_whole = [&] {
    const auto document = json::ParseDocumentFile(path);
    Check(document.ok(), "a dump file is no JSON after a flush");
    const json::Value* const data = document->root().Find("data");
    Check(data != nullptr && data->size() == members.size(), "members were lost or came");
    const json::Value::Member* member = data->members_begin();
    for (const auto& [key, value] : members) {
      Check(Quoted(member->key) == Quoted(key), "a key changed");
      Check(member->value.is_string() && Quoted(member->value.as_string()) == Quoted(value),
            "a value changed");
      ++member;
    }
  };
  for (const auto& row : Rows(input)) {
    if (row.size() == 1) {
      Check(file->Flush().ok(), "a dump file cannot be flushed");
      is_whole();
      continue;
    }
    // Texts that are no UTF-8 are written as Python would have decoded them.
    members.emplace_back(row[0], row[1]);
    file->Append(row[0], Quoted(row[1]));
  }
  Check(file->Close("}\n}").ok(), "a dump file cannot be closed");
  is_whole();
}

// Results of pieces for --resume; what is read from a file that was cut anywhere is what was added.
void WritePieces(Bytes input) {
  using compare::PairResult, compare::PieceJournal;
  constexpr size_t kBytes = sizeof(PieceJournal::Key);
  if (input.size() < kBytes) return;
  const auto key_at = [&](size_t i) {
    PieceJournal::Key key;
    std::memcpy(&key, input.data() + i, kBytes);
    return key;
  };
  const auto result_of = [](const PieceJournal::Key& key) {
    PairResult result;
    result.errors.count = key[0];
    result.opposite = key[1];
    return result;
  };
  const std::string path = AsFile("written.pieces", {});
  unlink(path.c_str());
  size_t size = 0;
  for (size_t i = 0; i + kBytes <= input.size(); i += kBytes) {
    const auto journal = PieceJournal::Open(path, true);
    Check(journal != nullptr, "a journal of pieces cannot be opened");
    const PieceJournal::Key key = key_at(i);
    for (size_t k = 0; k < i; k += kBytes) {
      const auto found = journal->Find(key_at(k));
      Check(!found || (found->errors.count == key_at(k)[0] && found->opposite == key_at(k)[1]),
            "a piece changed");
    }
    journal->Add(key, result_of(key));
    ++size;
  }
  const auto text = ReadTextFile(path, uint64_t{1} << 30);
  Check(text.ok(), "a journal of pieces cannot be read");
  const size_t cut = key_at(0)[0] % (text->size() + 1);
  Check(truncate(path.c_str(), static_cast<off_t>(cut)) == 0, "a journal cannot be cut");
  const auto journal = PieceJournal::Open(path, true);
  Check(journal != nullptr && journal->known() <= size, "pieces came that were not added");
  for (size_t i = 0; i + kBytes <= input.size(); i += kBytes) {
    const auto found = journal->Find(key_at(i));
    Check(!found || (found->errors.count == key_at(i)[0] && found->opposite == key_at(i)[1]),
          "a piece changed when the journal was cut");
    Check(found || cut < text->size(), "a piece was lost");
  }
}

constexpr Target kTargets[] = {{"write_table", WriteTable},
                               {"write_tensor", WriteTensor},
                               {"write_xlsx", WriteXlsx},
                               {"write_dump", WriteDump},
                               {"write_pieces", WritePieces}};

}  // namespace

std::span<const Target> WriterTargets() { return kTargets; }

}  // namespace msprobe::fuzz
