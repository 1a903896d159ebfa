#include "bindings/user_metrics.h"

#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "bindings/errors.h"

namespace msprobe::bindings {
namespace {

namespace nb = nanobind;

nb::tuple TensorTuple(const app::UserTensor& tensor) {
  const std::string_view dtype = ShortName(tensor.dtype);
  return nb::make_tuple(nb::str(dtype.data(), dtype.size()), nb::cast(tensor.shape),
                        nb::bytes(tensor.bytes.data(), tensor.bytes.size()));
}

// The list of functions dies with the last metric, on any thread.
std::shared_ptr<nb::object> Kept(nb::object value) {
  return {new nb::object(std::move(value)), [](nb::object* p) {
            const nb::gil_scoped_acquire acquire;
            delete p;
          }};
}

std::vector<app::UserCell> Evaluate(const nb::object& functions, const app::UserTensor& target,
                                    const app::UserTensor& golden) {
  std::vector<app::UserCell> out;
  try {
    const nb::object numpy = nb::module_::import_("numpy");
    const nb::object evaluate = nb::module_::import_("msprobe._user_metrics").attr("evaluate");
    const nb::object cells = evaluate(numpy, functions, TensorTuple(target), TensorTuple(golden));
    for (const nb::handle cell : cells) {
      out.push_back({nb::cast<double>(cell[0]), nb::cast<std::string>(cell[1]),
                     nb::cast<std::string>(cell[2])});
    }
  } catch (const std::exception& e) {  // a text that is no UTF-8, no memory
    out.assign(nb::len(functions), {0, "error: Python", e.what()});
  }
  return out;
}

}  // namespace

std::shared_ptr<app::UserMetrics> LoadUserMetrics(const nb::object& source) {
  nb::module_::import_("numpy");  // without it no metric can run: said now
  const nb::object functions = nb::module_::import_("msprobe._user_metrics").attr("load")(source);
  auto out = std::make_shared<app::UserMetrics>();
  for (const nb::handle item : functions) {
    out->columns.push_back(nb::cast<std::string>(item[0]));
  }
  if (Status names = app::CheckUserColumns(out->columns); !names.ok()) {
    RaiseError(names.error(), "ConfigError");
  }
  out->call = [kept = Kept(functions)](const app::UserTensor& target,
                                       const app::UserTensor& golden) {
    const nb::gil_scoped_acquire acquire;
    return Evaluate(*kept, target, golden);
  };
  return out;
}

Result<std::shared_ptr<app::UserMetrics>> MetricsOfFolder(const std::string& folder) {
  const nb::gil_scoped_acquire acquire;
  try {
    return LoadUserMetrics(
        nb::module_::import_("os").attr("fsdecode")(nb::bytes(folder.data(), folder.size())));
  } catch (nb::python_error& e) {
    return Error(ErrorCode::kConfig, nb::cast<std::string>(nb::str(e.value())));
  } catch (const std::exception& e) {
    return Error(ErrorCode::kConfig, e.what()).At("--metrics");
  }
}

}  // namespace msprobe::bindings
