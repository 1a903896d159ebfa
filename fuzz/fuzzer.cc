// Entry points of libFuzzer. The target is named by the environment: FUZZ_TARGET=json msprobe_fuzz
// CORPUS
#include <cstdint>
#include <cstdio>
#include <cstdlib>

#include "fuzz/target.h"

namespace {
const msprobe::fuzz::Target* target = nullptr;
}

extern "C" int LLVMFuzzerInitialize(int*, char***) {
  const char* name = std::getenv("FUZZ_TARGET");
  target = name == nullptr ? nullptr : msprobe::fuzz::FindTarget(name);
  if (target != nullptr) return 0;
  std::fputs("FUZZ_TARGET has to be one of", stderr);
  for (const auto& known : msprobe::fuzz::Targets()) {
    std::fprintf(stderr, " %.*s", static_cast<int>(known.name.size()), known.name.data());
  }
  std::fputs("\n", stderr);
  std::exit(2);
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  target->run(msprobe::Bytes(reinterpret_cast<const std::byte*>(data), size));
  return 0;
}
