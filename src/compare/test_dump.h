// Small dumps written by tests.
#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "compare/compare.h"
#include "formats/tensor_file.h"
#include "json/json.h"

namespace msprobe::compare {

// A folder of its own per test, removed at the end.
class DumpTest : public testing::Test {
 protected:
  DumpTest() {
    const auto* info = testing::UnitTest::GetInstance()->current_test_info();
    root_ = testing::TempDir() + "compare_" + info->test_suite_name() + "_" + info->name() + "/";
    std::filesystem::remove_all(root_);
    for (const char* side : {"target", "golden"}) {
      std::filesystem::create_directories(root_ + side + "/dump_tensor_data");
    }
  }
  ~DumpTest() override { std::filesystem::remove_all(root_); }

  Input input(const std::string& file = "dump.json") const {
    return {root_ + "target/" + file, root_ + "golden/" + file, std::nullopt};
  }

  // `data` is the text between the braces of `data`.
  void Write(const std::string& side, const std::string& task, const std::string& data,
             const std::string& file = "dump.json") {
    std::ofstream(root_ + side + "/" + file)
        << R"({"task": ")" << task << R"(", "level": "L1", "framework": "pytorch", "data": {)"
        << data << "}}";
  }
  void WriteBoth(const std::string& task, const std::string& target, const std::string& golden) {
    Write("target", task, target);
    Write("golden", task, golden);
  }

  template <class T>
  void WriteTensor(const std::string& side, const std::string& name, DType dtype,
                   const Shape& shape, const std::vector<T>& values) {
    const std::string path = root_ + side + "/dump_tensor_data/" + name + ".pt";
    const Status s = formats::WritePt(path, dtype, shape, false, std::as_bytes(std::span(values)));
    ASSERT_TRUE(s.ok()) << s.error().ToString();
  }

  // A tensor leaf with a file; its statistics say nothing.
  static std::string LeafJson(const std::string& dtype, const std::string& shape,
                              const std::string& file) {
    return R"({"type": "torch.Tensor", "dtype": ")" + dtype + R"(", "shape": )" + shape +
           R"(, "Max": 1.0, "Min": 0.0, "Mean": 0.5, "Norm": 1.0, "requires_grad": false, "data_name": ")" +
           file + R"("})";
  }
  // A float32 leaf [2, 3] with these statistics.
  static std::string Stats(double max, double min, double mean, double norm) {
    std::string out =
        R"({"type": "torch.Tensor", "dtype": "torch.float32", "shape": [2, 3], "Max": )";
    json::AppendDouble(out, max);
    out += R"(, "Min": )";
    json::AppendDouble(out, min);
    out += R"(, "Mean": )";
    json::AppendDouble(out, mean);
    out += R"(, "Norm": )";
    json::AppendDouble(out, norm);
    return out + R"(, "requires_grad": false})";
  }
  static std::string Call(const std::string& name, const std::string& inputs,
                          const std::string& outputs) {
    return "\"" + name + R"(": {"input_args": [)" + inputs +
           R"(], "input_kwargs": {}, "output": [)" + outputs + "]}";
  }

  static Result<Comparison> Compare(const Input& in, const Options& options = {}) {
    return CompareRank(in, options, NullLog(), NullProgress(), nullptr);
  }

  std::string root_;
};

inline const Row* FindRow(const Comparison& comparison, std::string_view name) {
  for (const Row& row : comparison.rows) {
    if (row.target ? row.target->name == name : row.golden->name == name) return &row;
  }
  return nullptr;
}

}  // namespace msprobe::compare
