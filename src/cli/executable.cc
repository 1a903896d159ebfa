// The native executable, for hosts without Python.
#include <csignal>
#include <string>
#include <vector>

#include "cli/main.h"

int main(int argc, char** argv) {
  // As Python has it: a file beyond the limit of the user is an error of that write, not the end.
  std::signal(SIGXFSZ, SIG_IGN);
  return msprobe::cli::Main(std::vector<std::string>(argv, argv + argc));
}
