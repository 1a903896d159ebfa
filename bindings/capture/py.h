// Small owners for CPython objects. Everything here needs the global lock.
#pragma once

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <utility>

namespace msprobe::capture {

// One strong reference, or none.
class Ref {
 public:
  Ref() = default;
  static Ref Steal(PyObject* object) { return Ref(object); }
  static Ref Borrow(PyObject* object) {
    Py_XINCREF(object);
    return Ref(object);
  }
  Ref(const Ref& other) : object_(other.object_) { Py_XINCREF(object_); }
  Ref(Ref&& other) noexcept : object_(std::exchange(other.object_, nullptr)) {}
  Ref& operator=(Ref other) noexcept {
    std::swap(object_, other.object_);
    return *this;
  }
  ~Ref() { Py_XDECREF(object_); }

  PyObject* get() const { return object_; }
  PyObject* release() { return std::exchange(object_, nullptr); }
  explicit operator bool() const { return object_ != nullptr; }

 private:
  explicit Ref(PyObject* object) : object_(object) {}
  PyObject* object_ = nullptr;
};

// Sets the exception of the user's program aside while code of ours runs, and puts it back
// untouched.
class PendingError {
 public:
#if PY_VERSION_HEX >= 0x030C0000
  PendingError() : value_(PyErr_GetRaisedException()) {}
  ~PendingError() { PyErr_SetRaisedException(value_); }
#else
  PendingError() { PyErr_Fetch(&type_, &value_, &traceback_); }
  ~PendingError() { PyErr_Restore(type_, value_, traceback_); }
#endif
  PendingError(const PendingError&) = delete;
  PendingError& operator=(const PendingError&) = delete;

 private:
#if PY_VERSION_HEX < 0x030C0000
  PyObject *type_ = nullptr, *traceback_ = nullptr;
#endif
  PyObject* value_ = nullptr;
};

// Drops an error that code of ours ran into. What is no Exception (KeyboardInterrupt, SystemExit,
// what a signal handler of the user raised) is not ours to swallow: it is raised again in the main
// thread at its next bytecode.
void ClearError();

// A vectorcall type of ours: name, size of the object, offset of its vectorcallfunc.
inline void MakeCallable(PyTypeObject& type, const char* name, Py_ssize_t size, Py_ssize_t offset,
                         unsigned long flags, destructor dealloc) {
  Py_SET_REFCNT(reinterpret_cast<PyObject*>(&type), 1);  // static: zeroed, never freed
  type.tp_name = name;
  type.tp_basicsize = size;
  type.tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_VECTORCALL | flags;
  type.tp_call = PyVectorcall_Call;
  type.tp_vectorcall_offset = offset;
  type.tp_dealloc = dealloc;
}

}  // namespace msprobe::capture
