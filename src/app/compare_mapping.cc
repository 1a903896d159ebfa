#include "app/compare_mapping.h"

#include <fmt/format.h>

#include "base/file.h"
#include "base/text.h"

namespace msprobe::app {
namespace {

// A text in double quotes of YAML.
std::string YamlText(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    constexpr unsigned char kFirstPrintable = 0x20, kDelete = 0x7f;
    if (c == '"' || c == '\\') out += '\\';
    if (byte < kFirstPrintable || byte == kDelete) {
      out += fmt::format("\\x{:02x}", byte);
    } else {
      out += c;
    }
  }
  return out + '"';
}

}  // namespace

Status WriteMapping(const compare::Comparison& comparison, const std::string& path) {
  MSPROBE_ASSIGN(AtomicFile file, AtomicFile::Create(path));
  std::string text;
  for (const compare::Row& row : comparison.rows) {
    if (row.target == nullptr) continue;
    const std::string_view golden = row.golden == nullptr ? "N/A" : row.golden->name;
    if (!IsValidUtf8(row.target->name) || !IsValidUtf8(golden)) continue;
    text += YamlText(row.target->name) + ": " + YamlText(golden) + '\n';
    constexpr size_t kPiece = 1 << 20;
    if (text.size() < kPiece) continue;
    MSPROBE_TRY(file.Write(text));
    text.clear();
  }
  MSPROBE_TRY(file.Write(text));
  return file.Commit();
}

}  // namespace msprobe::app
