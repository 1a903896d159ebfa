// What is fuzzed: each target takes any bytes and must come back. Targets that compare two roads
// end the process when the roads part.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "base/bytes.h"

namespace msprobe::fuzz {

struct Target {
  std::string_view name;  // of its folder in fuzz/corpus as well
  void (*run)(Bytes input);
};

std::span<const Target> Targets();
const Target* FindTarget(std::string_view name);  // nullptr when there is none

// The parts of Targets(), one per file.
std::span<const Target> ReaderTargets();
std::span<const Target> SearchTargets();
std::span<const Target> KernelTargets();
std::span<const Target> WriterTargets();

// The input as a file of a folder that is this process's own; the path stays the same from call to
// call.
std::string AsFile(std::string_view name, Bytes input);

// Ends the process with a message when `held` is false: the fuzzer keeps the input.
void Check(bool held, std::string_view what);

}  // namespace msprobe::fuzz
