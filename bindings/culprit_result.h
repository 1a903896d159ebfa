// The search for the operator at fault, as a comparison in Python hands it out.
#pragma once

#include <memory>

#include "culprit/finding.h"

namespace msprobe::bindings {

// Classes Culprit and CulpritSearch.
struct PyCulprit {
  std::shared_ptr<const culprit::Report> report;
  size_t at;  // in its findings
  const culprit::Finding& finding() const { return report->findings[at]; }
};

struct PySearch {
  std::shared_ptr<const culprit::Report> report;
};

}  // namespace msprobe::bindings
