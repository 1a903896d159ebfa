// The use case "compare dumps of different parallel sizes": the ranks of each side are joined into
// one, as a layout file says or as fits, and the two are compared.
#pragma once

#include <string>

#include "app/compare_app.h"
#include "base/log.h"
#include "base/result.h"

namespace msprobe::app {

// options.target and options.golden are step folders. The joined dumps stay in
// joined_{time}/target and …/golden of the output folder, beside layout_{time}.yaml, which says how
// every kind of tensor was joined and what of it is a guess, and can be given as `layout_path`
// again. Tensors that cannot be joined have no figures there, and so are unmatched. Errors: those
// of the file, of Compare(), and kMismatch when a mesh has not as many ranks as its folder.
Result<CompareRun> CompareWithLayout(const CompareOptions& options, const std::string& layout_path,
                                     LogSink& log, ProgressSink& progress,
                                     const CancelToken* cancel);

}  // namespace msprobe::app
