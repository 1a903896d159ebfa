#include "fuzz/target.h"

#include <fcntl.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <vector>

#include "base/file.h"

namespace msprobe::fuzz {
namespace {

// Removed when the process ends in an orderly way; FUZZ_FOLDER names one that stays.
class Folder {
 public:
  Folder() {
    if (const char* given = std::getenv("FUZZ_FOLDER"); given != nullptr) {
      path_ = given;
      keep_ = true;
      return;
    }
    const char* base = access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp";
    path_ = std::string(base) + "/msprobe-fuzz-XXXXXX";
    Check(mkdtemp(path_.data()) != nullptr, "no temporary folder");
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  ~Folder() {
    if (keep_) return;
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
  bool keep_ = false;
};

}  // namespace

std::span<const Target> Targets() {
  static const std::vector<Target> all = [] {
    std::vector<Target> list;
    for (const auto part : {ReaderTargets(), SearchTargets(), KernelTargets(), WriterTargets()}) {
      list.insert(list.end(), part.begin(), part.end());
    }
    return list;
  }();
  return all;
}

const Target* FindTarget(std::string_view name) {
  for (const Target& target : Targets()) {
    if (target.name == name) return &target;
  }
  return nullptr;
}

std::string AsFile(std::string_view name, Bytes input) {
  static const Folder folder;
  std::string path = JoinPath(folder.path(), name);
  const int fd = open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  Check(fd >= 0, "cannot open the temporary file");
  Check(WriteAll(fd, AsText(input)).ok(), "cannot write the temporary file");
  close(fd);
  return path;
}

void Check(bool held, std::string_view what) {
  if (held) return;
  std::fprintf(stderr, "fuzz target: %.*s\n", static_cast<int>(what.size()), what.data());
  std::abort();
}

}  // namespace msprobe::fuzz
