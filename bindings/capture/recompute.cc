#include "bindings/capture/recompute.h"

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "bindings/capture/state.h"
#include "json/json.h"

namespace msprobe::capture {
namespace {

constexpr const char* kCapsule = "msprobe.capture.region";

struct Region {
  uint64_t generation = 0;  // numbers start anew with each step: older names say nothing
  int runs = 0;
  std::vector<std::string> names;  // of the first run, in the order of their ends
};

struct Running {
  Ref capsule;  // holds `region`
  Region* region = nullptr;
  bool first = false;
  size_t next = 0;
};

std::vector<Running>& running() {
  thread_local std::vector<Running> list;
  return list;
}

// "Functional.linear.3.forward" -> "Functional.linear": what a recomputation shares.
std::string_view WithoutNumber(std::string_view name) {
  for (int i = 0; i < 2; ++i) name = name.substr(0, name.rfind('.'));
  return name;
}

}  // namespace

PyObject* NewRegion() {
  auto* const region = new Region;
  PyObject* const capsule = PyCapsule_New(region, kCapsule, [](PyObject* self) {
    delete static_cast<Region*>(PyCapsule_GetPointer(self, kCapsule));
  });
  if (capsule == nullptr) delete region;
  return capsule;
}

bool EnterRegion(PyObject* capsule) {
  auto* const region = static_cast<Region*>(PyCapsule_GetPointer(capsule, kCapsule));
  if (region == nullptr) return false;
  const uint64_t generation = session().generation;
  const bool first = region->runs++ == 0;
  if (first) region->generation = generation;
  if (region->generation != generation) region->names.clear();
  running().push_back({Ref::Borrow(capsule), region, first, 0});
  return true;
}

void LeaveRegion() {
  if (!running().empty()) running().pop_back();
}

void NoteRecompute(collect::EntryBuilder& builder) {
  auto& list = running();
  // The key that releases 1.x and 8.x wrote with every forward entry.
  if (session().evidence) {
    const bool again =
        std::any_of(list.begin(), list.end(), [](const Running& r) { return !r.first; });
    builder.Extra("is_recompute", again ? "true" : "false");
  }
  if (list.empty()) return;
  const std::string& name = builder.name();
  const std::string* repeated = nullptr;
  for (Running& r : list) {
    if (r.first) {
      r.region->names.push_back(name);
      continue;
    }
    // A call that was filtered the first time has no name here: look for the next one of its kind.
    for (size_t i = r.next; i < r.region->names.size(); ++i) {
      if (WithoutNumber(r.region->names[i]) != WithoutNumber(name)) continue;
      r.next = i + 1;
      repeated = &r.region->names[i];
      break;
    }
  }
  if (repeated == nullptr) return;
  std::string text;
  json::AppendString(text, *repeated);
  builder.Extra("recompute_of", text);
}

}  // namespace msprobe::capture
