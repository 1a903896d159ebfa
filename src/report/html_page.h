// One self-contained HTML file: an answer on top, counts, notes, and tables that the page's own
// script shows as plot, tree and rows. Knows nothing of tensors or comparison: what a column means
// is data.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/file.h"
#include "base/result.h"
#include "report/html_table.h"

namespace msprobe::report {

enum class HtmlTone : uint8_t { kNone, kGood, kWarning, kBad, kMissing };

// A word that a row's verdict column holds, from worst to best in HtmlView::verdicts.
struct HtmlVerdict {
  std::string word;
  HtmlTone tone = HtmlTone::kNone;
  uint64_t count = 0;  // rows of the whole page
};

// A fold of the page: a heading and lines, each with more text that is hidden at first.
struct HtmlNote {
  struct Line {
    std::string text;
    std::vector<std::string> more;
  };
  std::string title;
  std::vector<Line> lines;
  bool open = false;
};

// A block of a row's details: rows of a label and cells, under heads; cells are keys of columns.
struct HtmlDetail {
  struct Line {
    std::string label;
    std::vector<std::string> keys;  // "" = empty cell
  };
  std::string title;
  std::vector<std::string> heads;  // without the label's; empty = one unnamed column
  std::vector<Line> lines;
  bool sides = false;  // two heads that should agree: lines that differ stand out
};

// What the columns of all tables of a page mean. Keys of columns; "" = there is none.
struct HtmlView {
  std::string rows = "rows";                // what a row is called, in plural
  std::string name, verdict, group;         // group: rows of one call stand together
  std::string tree;                         // path of the tree's nodes, joined with '\x1f'
  std::string series;                       // category that gives a point its colour and shape
  std::string value, value_title;           // number on the log axis, and what it is
  std::string value_help;                   // how it is made, one sentence
  std::string cause;                        // category: "begins here", "passed on" or ""
  std::string cause_begins, cause_follows;  // these words
  std::string message;                      // why the verdict is what it is
  std::string lines;                        // lines of text joined with '\n', e.g. a stack
  std::string lines_title;
  std::vector<HtmlVerdict> verdicts;
  std::vector<HtmlColumn> columns;
  std::vector<HtmlDetail> details;
  // Commands for a row with {key} for cells (quoted for a shell); left out when such a cell is
  // empty.
  std::vector<std::string> commands;
};

// One table of the page: a rank, or the only one.
struct HtmlPart {
  std::string label;
  std::string problem;           // why there is no table; "" = there is one
  uint32_t block = 0;            // of AddTable
  uint64_t rows = 0;             // in the page
  std::string note;              // "1 in 5 of the rows that passed is shown"
  std::vector<uint64_t> counts;  // one for each of HtmlView::verdicts
  std::string first;             // the first bad place, a name
  int64_t first_row = -1;        // its row in the table
  // Where errors begin by what is known beside the rows, in order: a group of rows, and why in a
  // sentence. Rows behind the first of them that are not good then follow from it, whatever
  // HtmlView::cause says, and the row of the name `first_name` is the first bad one.
  std::vector<std::pair<std::string, std::string>> begins = {};
  std::string first_name = {};
  // Largest value of the rows in equal pieces of the table; < 0: none, infinite: no number.
  std::vector<double> strip;
};

struct HtmlPage {
  std::string title;
  HtmlTone tone = HtmlTone::kNone;
  std::string answer;                                        // one sentence
  std::string explanation;                                   // one or two more
  std::vector<std::pair<std::string, std::string>> figures;  // behind the answer: what, how much
  std::string certainty;                                     // how sure it is; "" = not said
  std::vector<HtmlNote> folds;                               // what else belongs to the answer
  std::vector<std::string> commands;
  std::vector<std::pair<std::string, std::string>> facts;
  std::vector<HtmlNote> notes;
  HtmlView view;
  std::vector<HtmlPart> parts;
  std::string part_name = "rank";  // what a part is called
};

// False in a build without MSPROBE_HTML; Create then fails with kUnsupported.
bool HtmlAvailable();

// Writes a page: tables first, in any order, then everything else. Tables wait compressed in an
// unnamed file of the target folder, so memory does not grow with their number. The file appears
// under its name when Finish() succeeds, whole. All texts are escaped, whatever they hold.
class HtmlReport {
 public:
  // Errors: those of AtomicFile; kUnsupported.
  static Result<std::unique_ptr<HtmlReport>> Create(const std::string& path);
  ~HtmlReport();
  HtmlReport(const HtmlReport&) = delete;
  HtmlReport& operator=(const HtmlReport&) = delete;

  // The number of the table in the page. From any thread.
  Result<uint32_t> AddTable(const HtmlTable& table);
  // The same in two steps: a table as text, made anywhere, and its place in the page.
  static Result<std::string> Encode(const HtmlTable& table);
  Result<uint32_t> AddEncoded(std::string_view table);
  Status Finish(const HtmlPage& page);

 private:
  explicit HtmlReport(AtomicFile file) : file_(std::move(file)) {}
  Status CopyTables();

  AtomicFile file_;
  std::mutex mutex_;
  int spool_ = -1;
  std::vector<uint64_t> sizes_;  // of the encoded tables, in order
};

}  // namespace msprobe::report
