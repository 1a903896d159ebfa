// Rows of a comparison as columns of an HTML table.
#pragma once

#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "app/compare_app.h"
#include "compare/compare.h"
#include "report/html_page.h"

namespace msprobe::app {

// Where an error stands: in a call whose inputs agree, or behind one.
inline constexpr std::string_view kBegins = "begins here";
inline constexpr std::string_view kPassedOn = "passed on";
inline constexpr std::string_view kAround = "around it";  // a module that holds such a call

// Columns of a mode; the page's view has those of all modes that occur.
std::vector<report::HtmlColumn> HtmlColumns(compare::Mode mode);

// How far a row is off, >= 0: the relative L2 error of its elements; of recorded statistics the
// largest difference of maximum, minimum and mean over the largest absolute golden value, or of the
// norm over the golden norm. Infinity where a value is NaN or infinite on one side only, or the
// golden value is zero and the other is not. NaN: there is no figure.
double RelativeError(const compare::Row& row, compare::Mode mode);

// Branches of the module tree, outermost first, joined with '\x1f'.
class ModuleTree {
 public:
  // `construct`: child to parent, "" for none (construct.json); may be empty.
  ModuleTree(const std::vector<std::string_view>& entries,
             std::unordered_map<std::string, std::string> construct);
  std::string PathOf(std::string_view entry) const;

 private:
  std::string ModulePath(std::string_view base) const;
  std::unordered_map<std::string, std::string> construct_;
  std::unordered_map<std::string, std::string> class_of_;  // module path to class
};

// A cause per row: kBegins, kPassedOn, kAround or empty.
std::vector<std::string_view> CausesOf(const compare::Comparison& comparison, compare::Face face,
                                       const ModuleTree& tree);

// Makes the rows of one comparison. `keep(i)` is asked for each.
report::HtmlTable HtmlRows(const RankJob& job, const compare::Comparison& comparison,
                           compare::Face face, const std::vector<bool>& keep,
                           const CancelToken* cancel);

}  // namespace msprobe::app
