// accuracy_checking_report_{ts}.html: the details file of a pre-check as a page to look at.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "base/result.h"

namespace msprobe::app {

// Writes the page beside `details` (accuracy_checking_details_{ts}.csv), with the same time stamp;
// its path. A page of that name is replaced: it is of the same run, which went on. Titles may be of
// either language. Errors: those of reading the csv; kMalformed for another number of columns;
// those of HtmlReport.
Result<std::string> WritePrecheckPage(const std::string& details);

// Finds the details files that a run of the pre-check leaves in a folder.
class NewDetails {
 public:
  // Before the run. `resumed`: accuracy_checking_result_{ts}.csv that the run goes on with, or "".
  NewDetails(std::string folder, const std::string& resumed);
  // After it: paths, sorted. Empty when there is none.
  std::vector<std::string> Find() const;

 private:
  std::string folder_, resumed_;
  std::set<std::string> before_;
};

}  // namespace msprobe::app
