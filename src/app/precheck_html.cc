#include "app/precheck_html.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <string_view>
#include <vector>

#include "base/file.h"
#include "base/text.h"
#include "report/html_page.h"
#include "report/table.h"

namespace msprobe::app {
namespace {

using report::Cell;
using report::HtmlColumn;
using report::HtmlPage;
using report::HtmlTone;
using Kind = report::HtmlColumn::Kind;

// Columns of the file, in its order (precheck.md 13); its titles are of either language.
struct Column {
  const char* key;
  const char* title;
  Kind kind;
  int width;  // < 0: in the details only
};
constexpr std::array kColumns = {
    Column{"name", "Name", Kind::kText, 0},
    Column{"bench_dtype", "Reference dtype", Kind::kCategory, -1},
    Column{"dtype", "Dtype", Kind::kCategory, 130},
    Column{"shape", "Shape", Kind::kCategory, 110},
    Column{"cosine", "Cosine", Kind::kNumber, 85},
    Column{"max_abs", "Max abs", Kind::kNumber, 85},
    Column{"hundredth", "share within 0.01", Kind::kNumber, -1},
    Column{"thousandth", "share within 0.001", Kind::kNumber, -1},
    Column{"ten_thousandth", "share within 0.0001", Kind::kNumber, -1},
    Column{"unequal", "share that is not bit-equal", Kind::kNumber, -1},
    Column{"balance", "error balance", Kind::kNumber, -1},
    Column{"rms", "root mean square error", Kind::kNumber, -1},
    Column{"small", "share of wrong small values", Kind::kNumber, -1},
    Column{"max_rel", "largest relative error", Kind::kNumber, -1},
    Column{"mean_rel", "mean relative error", Kind::kNumber, -1},
    Column{"nonfinite", "share of wrong NaN and infinity", Kind::kNumber, -1},
    Column{"rel_share", "share beyond the relative limit", Kind::kNumber, -1},
    Column{"abs_share", "share beyond the absolute limit", Kind::kNumber, -1},
    Column{"max_ulp", "largest error in ULP", Kind::kNumber, -1},
    Column{"mean_ulp", "mean error in ULP", Kind::kNumber, -1},
    Column{"ulp_share", "share beyond the ULP limit", Kind::kNumber, -1},
    Column{"verdict", "Status", Kind::kCategory, 105},
    Column{"message", "Why", Kind::kText, 0},
};
constexpr size_t kName = 0, kStatus = 21, kMessage = 22;

std::string Lower(std::string_view text) {
  std::string out(text);
  for (char& c : out) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  return out;
}

// A csv cell was protected from spreadsheets by an apostrophe.
std::string_view Bare(std::string_view text) {
  return text.starts_with('\'') ? text.substr(1) : text;
}

// "Torch.abs.0.forward.output.0" to the call, its branch and its place.
struct Place {
  std::string call, branch, series;
};
Place PlaceOf(std::string_view name) {
  Place out;
  for (const std::string_view direction : {"forward", "backward"}) {
    const size_t at = name.find(fmt::format(".{}", direction));
    if (at == std::string_view::npos) continue;
    const size_t end = at + 1 + direction.size();
    out.call = name.substr(0, end);
    out.series = direction;
    const std::string_view base = name.substr(0, at);
    const std::string_view api = base.substr(0, base.rfind('.'));
    const size_t dot = api.find('.');
    out.branch = api.substr(0, dot);
    if (dot != std::string_view::npos) out.branch += "\x1f" + std::string(api.substr(dot + 1));
    return out;
  }
  out.call = out.branch = name;
  out.series = "other";
  return out;
}

Cell ValueCell(std::string_view text) {
  while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
  while (!text.empty() && text.back() == ' ') text.remove_suffix(1);
  double value = 0;
  if (text.empty()) return {};
  return ParsePyFloat(text, value) ? Cell::Double(value) : Cell::Text(text);
}

std::vector<HtmlColumn> PageColumns() {
  std::vector<HtmlColumn> out;
  const auto add = [&](const Column& c) {
    out.push_back({.key = c.key,
                   .title = c.title,
                   .kind = c.kind,
                   .shown = c.width >= 0,
                   .width = std::max(c.width, 0)});
  };
  add(kColumns[kStatus]);
  for (size_t i = 0; i < kColumns.size(); ++i) {
    if (i != kStatus) add(kColumns[i]);
  }
  for (const char* key : {"call", "branch", "series"}) {
    out.push_back({.key = key, .title = key, .kind = Kind::kCategory});
  }
  return out;
}

report::HtmlTable PageRows(const report::TextTable& table, const std::vector<HtmlColumn>& columns) {
  report::HtmlTable out(columns);
  std::vector<Cell> cells;
  for (const std::vector<std::string>& row : table.rows) {
    const std::string status = Lower(row[kStatus]);
    const Place place = PlaceOf(Bare(row[kName]));
    cells.clear();
    cells.push_back(Cell::Text(status));
    for (size_t i = 0; i < kColumns.size(); ++i) {
      if (i == kStatus) continue;
      cells.push_back(kColumns[i].kind == Kind::kNumber ? ValueCell(row[i])
                                                        : Cell::Text(Bare(row[i])));
    }
    for (const std::string* text : {&place.call, &place.branch, &place.series}) {
      cells.push_back(Cell::Text(*text));
    }
    out.Row(cells);
  }
  return out;
}

void AddView(const std::vector<HtmlColumn>& columns, HtmlPage& page) {
  report::HtmlView& v = page.view;
  v.rows = "results";
  v.name = "name";
  v.verdict = "verdict";
  v.group = "call";
  v.tree = "branch";
  v.series = "series";
  v.value = "max_abs";
  v.value_title = "Largest absolute error";
  v.value_help = "Per result: the largest difference of an element from the reference.";
  v.message = "message";
  v.columns = columns;
  report::HtmlDetail figures{.title = "Figures", .heads = {}, .lines = {}, .sides = false};
  for (const Column& c : kColumns) {
    if (c.kind != Kind::kText) figures.lines.push_back({c.title, {c.key}});
  }
  v.details = {std::move(figures)};
  v.verdicts = {{"error", HtmlTone::kBad},
                {"warning", HtmlTone::kWarning},
                {"skip", HtmlTone::kMissing},
                {"pass", HtmlTone::kGood}};
}

// Counts, the first error and the sentence about it.
void AddAnswer(const report::TextTable& table, HtmlPage& page) {
  report::HtmlPart part;
  part.rows = table.rows.size();
  for (size_t i = 0; i < table.rows.size(); ++i) {
    const std::string status = Lower(table.rows[i][kStatus]);
    for (report::HtmlVerdict& v : page.view.verdicts) v.count += v.word == status;
    if (part.first_row >= 0 || status != "error") continue;
    part.first_row = static_cast<int64_t>(i);
    part.first = PlaceOf(Bare(table.rows[i][kName])).call;
    page.explanation = table.rows[i][kMessage];
  }
  for (const report::HtmlVerdict& v : page.view.verdicts) part.counts.push_back(v.count);
  const std::vector<report::HtmlVerdict>& v = page.view.verdicts;
  if (v[0].count > 0) {
    page.tone = HtmlTone::kBad;
    page.answer = fmt::format("First API that is wrong by itself: {}", part.first);
  } else if (v[3].count + v[1].count == 0) {
    page.tone = HtmlTone::kMissing;
    page.answer = "No API could be checked.";
  } else {
    page.tone = v[1].count > 0 ? HtmlTone::kWarning : HtmlTone::kGood;
    page.answer = "No API is wrong: every result that was checked is within the limits.";
    if (v[1].count > 0) page.explanation = fmt::format("{} results have a warning.", v[1].count);
  }
  if (v[2].count > 0) {
    page.explanation += fmt::format(
        "{}{} not checked (skip), each with its reason.", page.explanation.empty() ? "" : " ",
        v[2].count == 1 ? "1 result was" : fmt::format("{} results were", v[2].count));
  }
  page.parts.push_back(std::move(part));
}

std::string PagePath(const std::string& details) {
  std::string name(BaseName(details));
  constexpr std::string_view kWord = "_details_";
  if (const size_t at = name.find(kWord); at != std::string::npos) {
    name.replace(at, kWord.size(), "_report_");
  }
  if (name.ends_with(".csv")) name.resize(name.size() - 4);
  return JoinPath(DirName(details), name + ".html");
}

std::set<std::string> DetailsIn(const std::string& folder) {
  std::set<std::string> out;
  std::error_code failed;
  for (std::filesystem::directory_iterator it(folder, failed), end; !failed && it != end;
       it.increment(failed)) {
    const std::string name = it->path().filename().string();
    if (name.starts_with("accuracy_checking_details_") && name.ends_with(".csv")) {
      out.insert(JoinPath(folder, name));
    }
  }
  return out;
}

}  // namespace

NewDetails::NewDetails(std::string folder, const std::string& resumed)
    : folder_(resumed.empty() ? std::move(folder) : DirName(resumed)) {
  constexpr std::string_view kWord = "_result_";
  resumed_ = resumed.empty() ? "" : JoinPath(folder_, BaseName(resumed));
  if (const size_t at = resumed_.rfind(kWord); at != std::string::npos) {
    resumed_.replace(at, kWord.size(), "_details_");
  }
  before_ = DetailsIn(folder_);
}

std::vector<std::string> NewDetails::Find() const {
  std::vector<std::string> out;
  for (const std::string& path : DetailsIn(folder_)) {
    if (path == resumed_ || !before_.contains(path)) out.push_back(path);
  }
  return out;
}

Result<std::string> WritePrecheckPage(const std::string& details) {
  MSPROBE_ASSIGN(const report::TextTable table, report::ReadCsv(details));
  if (table.columns.size() != kColumns.size()) {
    return Error(ErrorCode::kMalformed, fmt::format("has {} columns", table.columns.size()))
        .At(details)
        .Hint(fmt::format("a details file of the pre-check has {}", kColumns.size()));
  }
  const std::string path = PagePath(details);
  MSPROBE_ASSIGN(const std::unique_ptr<report::HtmlReport> report,
                 report::HtmlReport::Create(path));
  const std::vector<HtmlColumn> columns = PageColumns();
  MSPROBE_ASSIGN(const uint32_t block, report->AddTable(PageRows(table, columns)));
  HtmlPage page;
  page.title = "Pre-check of recorded APIs";
  page.facts = {{"Details", details}, {"Made by", "msprobe-native " MSPROBE_VERSION}};
  AddView(columns, page);
  AddAnswer(table, page);
  page.parts.front().block = block;
  MSPROBE_TRY(report->Finish(page));
  return path;
}

}  // namespace msprobe::app
