// The one place where an Error of the core becomes a Python exception of msprobe.errors.
#pragma once

#include <nanobind/nanobind.h>

#include "base/error.h"

namespace msprobe::bindings {

// Raises msprobe.errors.<kind>(code, message, path); `kind` is one of ConfigError, DumpError,
// CompareError, PrecheckError, MsprobeError. kCancelled becomes KeyboardInterrupt. The message is
// the whole text of the error, place and hint included. Needs the GIL.
[[noreturn]] inline void RaiseError(const Error& error, const char* kind) {
  namespace nb = nanobind;
  if (error.code == ErrorCode::kCancelled) {
    PyErr_SetString(PyExc_KeyboardInterrupt, error.ToString().c_str());
    throw nb::python_error();
  }
  const std::string_view code = ErrorCodeName(error.code);
  const nb::object type = nb::module_::import_("msprobe.errors").attr(kind);
  const std::string text = error.ToString();
  const nb::object path = error.path.empty()
                              ? nb::object(nb::none())
                              : nb::object(nb::str(error.path.c_str(), error.path.size()));
  const nb::object value =
      type(nb::str(code.data(), code.size()), nb::str(text.c_str(), text.size()), path);
  PyErr_SetObject(type.ptr(), value.ptr());
  throw nb::python_error();
}

}  // namespace msprobe::bindings
