// One target, one input: fuzz_once TARGET FILE
#include <cstdio>

#include "base/file.h"
#include "fuzz/target.h"

int main(int argc, char** argv) {
  const auto* target = argc == 3 ? msprobe::fuzz::FindTarget(argv[1]) : nullptr;
  if (target == nullptr) {
    std::fputs("usage: fuzz_once TARGET FILE\n", stderr);
    return 2;
  }
  const auto text = msprobe::ReadTextFile(argv[2], 64u << 20);
  if (!text.ok()) {
    std::fprintf(stderr, "%s\n", text.error().ToString().c_str());
    return 1;
  }
  target->run(msprobe::AsBytes(*text));
  return 0;
}
