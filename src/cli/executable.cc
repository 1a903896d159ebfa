// The native executable, for hosts without Python.
#include <string>
#include <vector>

#include "cli/main.h"

int main(int argc, char** argv) {
  return msprobe::cli::Main(std::vector<std::string>(argv, argv + argc));
}
