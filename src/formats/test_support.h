// Helpers of this folder's tests.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "archive/zip.h"
#include "formats/tensor_file.h"

namespace msprobe::formats {

template <class T>
std::string Raw(T value) {
  return std::string(reinterpret_cast<const char*>(&value), sizeof(T));
}

template <class T>
std::string RawOf(std::initializer_list<T> values) {
  return std::string(reinterpret_cast<const char*>(values.begin()), values.size() * sizeof(T));
}

inline std::string Slurp(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  std::ostringstream out;
  out << in.rdbuf();
  return out.str();
}

class FormatsTest : public testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/msprobe_formats_XXXXXX";
    dir_ = mkdtemp(name);
  }
  void TearDown() override { std::filesystem::remove_all(dir_); }
  std::string Save(std::string_view bytes, const std::string& name = "x") {
    const std::string path = dir_ + "/" + name;
    std::ofstream(path, std::ios::binary) << bytes;
    return path;
  }
  // A torch archive around this pickle, with "archive/data/0" holding `storage`.
  std::string SavePt(std::string_view pickle, std::string_view storage) {
    const std::string path = dir_ + "/x.pt";
    auto out = AtomicFile::Create(path);
    archive::ZipWriter zip(*out);
    EXPECT_TRUE(zip.Add("archive/data.pkl", AsBytes(pickle)).ok());
    EXPECT_TRUE(zip.Add("archive/data/0", AsBytes(storage)).ok());
    EXPECT_TRUE(zip.Finish().ok());
    EXPECT_TRUE(out->Commit().ok());
    return path;
  }
  std::string dir_;
};

inline std::string ReadAllText(const TensorFile& file, const StoredTensor& tensor) {
  std::string out(static_cast<size_t>(tensor.num_elements) * ItemSize(tensor.dtype), '\0');
  auto status = file.ReadAll(tensor, reinterpret_cast<std::byte*>(out.data()));
  EXPECT_TRUE(status.ok()) << status.error().ToString();
  return out;
}

}  // namespace msprobe::formats
