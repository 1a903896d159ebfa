// What we write is read back the same by our own readers (tests/python does it with those of
// others).
#include <algorithm>
#include <string>
#include <vector>

#include "formats/tensor_file.h"
#include "fuzz/target.h"
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

void WriteTable(Bytes input) {
  const std::vector<std::string> columns = {"name", "value", "text"};
  const std::string path = AsFile("written.csv", {});
  const auto writer = report::NewCsvWriter(path);
  Check(writer->Begin(columns).ok(), "csv cannot be begun");
  uint64_t written = 0;
  for (const auto& row : Rows(input)) {
    std::vector<report::Cell> cells(columns.size());
    cells[0] = report::Cell::Text("row");
    for (size_t i = 0; i < std::min<size_t>(row.size(), 2); ++i) {
      cells[i + 1] = report::Cell::Text(row[i]);
    }
    Check(writer->Row(cells, report::Mark::kNone).ok(), "csv row refused");
    ++written;
  }
  Check(writer->Finish().ok(), "csv cannot be finished");
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

constexpr Target kTargets[] = {{"write_table", WriteTable}, {"write_tensor", WriteTensor}};

}  // namespace

std::span<const Target> WriterTargets() { return kTargets; }

}  // namespace msprobe::fuzz
