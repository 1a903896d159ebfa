#include "bindings/capture/stack.h"

#include <frameobject.h>

#include <algorithm>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "bindings/capture/describe.h"
#include "bindings/capture/state.h"

namespace msprobe::capture {
namespace {

struct Frame {
  PyCodeObject* code;  // owned by the frame, which is alive while we look
  int offset;
};

std::unordered_set<PyObject*>& trampolines() {
  static auto* const set = new std::unordered_set<PyObject*>;
  return *set;
}

uint64_t Mix(uint64_t hash, uint64_t value) {
  hash = (hash ^ value) * 0x9E3779B97F4A7C15ull;
  return hash ^ (hash >> 29);
}

// Walks outward. `scratch` is reused so that the common case allocates nothing.
uint64_t Walk(std::vector<Frame>& frames) {
  frames.clear();
  uint64_t hash = 0x243F6A8885A308D3ull;
  Ref frame = Ref::Steal(reinterpret_cast<PyObject*>(PyThreadState_GetFrame(PyThreadState_Get())));
  while (frame) {
    auto* const f = reinterpret_cast<PyFrameObject*>(frame.get());
    PyCodeObject* const code = PyFrame_GetCode(f);
    const int offset = PyFrame_GetLasti(f);
    Py_DECREF(code);  // the frame keeps it
    frames.push_back({code, offset});
    hash = Mix(Mix(hash, reinterpret_cast<uintptr_t>(code)), static_cast<uint64_t>(offset));
    frame = Ref::Steal(reinterpret_cast<PyObject*>(PyFrame_GetBack(f)));
  }
  return hash;
}

// One line of dump.md 14.1, or empty when there is no source.
std::string Render(const Frame& frame) {
  const Utf8 path(frame.code->co_filename), name(frame.code->co_name);
  const int line = PyCode_Addr2Line(frame.code, frame.offset);
  const Ref source = Ref::Steal(
      PyObject_CallFunction(torch_objects().getline, "Oi", frame.code->co_filename, line));
  if (!source || !PyUnicode_Check(source.get())) {
    ClearError();
    return {};
  }
  const Utf8 whole(source.get());
  std::string_view text = whole.view();
  constexpr std::string_view kBlank = " \t\r\n\f\v";
  const size_t first = text.find_first_not_of(kBlank);
  if (first == std::string_view::npos) return {};
  text = text.substr(first, text.find_last_not_of(kBlank) - first + 1);
  std::string out = "File ";
  out.append(path.view()).append(", line ").append(std::to_string(line));
  out.append(", in ").append(name.view()).append(", \n ").append(text);
  return out;
}

std::vector<std::string> RenderAll(const std::vector<Frame>& frames, PyObject* callee) {
  const std::string& own = torch_objects().package_dir;
  PyCodeObject* const callee_code =
      callee != nullptr && PyFunction_Check(callee)
          ? reinterpret_cast<PyCodeObject*>(PyFunction_GET_CODE(callee))
          : nullptr;
  std::vector<std::string> lines;
  bool leading = true;
  for (const Frame& frame : frames) {
    auto* const code = reinterpret_cast<PyObject*>(frame.code);
    const Utf8 path(frame.code->co_filename);
    const bool ours = path.view().starts_with(own) || trampolines().contains(code);
    if (leading &&
        (ours || frame.code == callee_code || path.view().ends_with("torch/overrides.py"))) {
      continue;
    }
    leading = false;
    // Between a transparent function and its caller torch's dispatch shows; without us it would
    // not.
    if (ours || path.view().ends_with("torch/overrides.py")) continue;
    if (std::string line = Render(frame); !line.empty()) lines.push_back(std::move(line));
  }
  if (lines.empty()) lines.emplace_back("The call stack retrieval failed.");
  return lines;
}

}  // namespace

void AddTrampolineCode(PyObject* code) {
  Py_INCREF(code);
  trampolines().insert(code);
}

collect::StackId CurrentStack(PyObject* callee) {
  const Session& s = session();
  if (!s.stacks) return collect::kNoStack;
  static auto* const frames = new std::vector<Frame>;
  static auto* const rendered = new std::unordered_map<uint64_t, std::vector<std::string>>;
  const uint64_t key =
      Mix(Walk(*frames),
          callee != nullptr && PyFunction_Check(callee) ? reinterpret_cast<uintptr_t>(callee) : 0);
  if (const auto known = s.collector->FindStack(key)) return *known;
  auto it = rendered->find(key);
  if (it == rendered->end()) {
    const std::vector<Frame> copy = *frames;  // rendering runs Python code
    // Held for good, so that no other code object gets the same address and with it the same key.
    for (const Frame& frame : copy) Py_INCREF(frame.code);
    it = rendered->emplace(key, RenderAll(copy, callee)).first;
  }
  return s.collector->AddStack(key, it->second);
}

}  // namespace msprobe::capture
