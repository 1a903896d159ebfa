// Shared by the tests of this folder.
#pragma once

#include <gtest/gtest.h>
#include <rapidjson/document.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base/file.h"
#include "base/log.h"
#include "collect/collector.h"
#include "dump/reader.h"

namespace msprobe::collect {

class TempDir {
 public:
  TempDir() {
    std::string pattern = (std::filesystem::temp_directory_path() / "collect_test.XXXXXX").string();
    path_ = std::filesystem::canonical(mkdtemp(pattern.data())).string();
  }
  ~TempDir() { std::filesystem::remove_all(path_); }
  std::string operator/(std::string_view name) const { return JoinPath(path_, name); }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

inline void WriteFile(const std::string& path, std::string_view text) {
  std::ofstream(path, std::ios::binary) << text;
}

inline std::string ReadFile(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

class KeptLog final : public LogSink {
 public:
  void Log(LogLevel level, std::string_view message) override {
    const std::lock_guard lock(mutex_);
    lines_.emplace_back(level, message);
  }
  size_t Count(LogLevel level, std::string_view part) const {
    return static_cast<size_t>(std::count_if(lines_.begin(), lines_.end(), [&](const auto& line) {
      return line.first == level && line.second.find(part) != std::string::npos;
    }));
  }
  size_t warnings() const { return Count(LogLevel::kWarning, ""); }
  std::string All() const {
    std::string text;
    for (const auto& [level, line] : lines_) text += line + "\n";
    return text;
  }

 private:
  std::mutex mutex_;
  std::vector<std::pair<LogLevel, std::string>> lines_;
};

// An independent parser's view of a file: RapidJSON's DOM with the non-finite tokens that Python
// writes.
inline rapidjson::Document Json(const std::string& path) {
  rapidjson::Document document;
  const std::string text = ReadFile(path);
  document.Parse<rapidjson::kParseNanAndInfFlag>(text.c_str());
  EXPECT_FALSE(document.HasParseError()) << path << "\n" << text;
  return document;
}

// Names of the entries of dump.json, in file order.
inline std::vector<std::string> Names(const std::string& dump_json) {
  std::vector<std::string> names;
  const auto info = dump::ReadDump(dump_json, [&](std::string_view name, const json::Value&) {
    names.emplace_back(name);
    return true;
  });
  EXPECT_TRUE(info.ok() || names.empty());
  return names;
}

// The value of an entry of dump.json as written: the rest of its line without the comma.
inline std::string EntryText(const std::string& dump_json, std::string_view name) {
  const std::string text = ReadFile(dump_json);
  const std::string start = "\n  \"" + std::string(name) + "\": ";
  const size_t begin = text.find(start);
  if (begin == std::string::npos) return "(no such entry)";
  const size_t from = begin + start.size();
  std::string value = text.substr(from, text.find('\n', from) - from);
  if (value.ends_with(',')) value.pop_back();
  return value;
}

// A tensor of its own.
struct HostTensor {
  HostTensor(DType type, Shape extents, std::vector<std::byte> content)
      : bytes(std::move(content)), shape(std::move(extents)) {
    view.data = bytes.data();
    view.dtype = type;
    view.shape = shape;
    leaf.dtype_text = TorchName(type);
    leaf.shape = shape;
    leaf.view = &view;
  }
  HostTensor(const HostTensor&) = delete;
  std::vector<std::byte> bytes;
  Shape shape;
  TensorView view;
  TensorLeaf leaf;
};

template <class T>
std::unique_ptr<HostTensor> Host(DType type, Shape shape, std::vector<T> values) {
  const Bytes bytes = std::as_bytes(std::span(values));
  return std::make_unique<HostTensor>(type, std::move(shape),
                                      std::vector<std::byte>(bytes.begin(), bytes.end()));
}
inline std::unique_ptr<HostTensor> Floats(std::vector<float> values) {
  const auto n = static_cast<int64_t>(values.size());
  return Host<float>(DType::kF32, {n}, std::move(values));
}

// A collector that writes below a folder of its own.
struct Session {
  explicit Session(const std::function<void(config::CollectConfig&)>& change = {}) {
    config.dump_path = dir / "out";
    if (change) change(config);
    Restart();
  }
  void Restart() {
    collector.reset();
    auto made = Collector::Create(config, log);
    EXPECT_TRUE(made.ok());
    collector = std::move(made).value();
  }
  Collector* operator->() { return collector.get(); }
  void Start(std::optional<int64_t> rank = std::nullopt) {
    EXPECT_TRUE(collector->Start({rank}).ok());
  }
  std::string Path(std::string_view relative) const { return JoinPath(config.dump_path, relative); }
  std::string dump(std::string_view folder = "step0/rank") const {
    return JoinPath(Path(folder), "dump.json");
  }

  // One call of `prefix`.`name` with one input and one output of one element; false when it was
  // filtered.
  bool Call(std::string prefix, std::string name, Risk risk = Risk::kFocus,
            StackId stack = kNoStack) {
    int64_t number = 0;
    auto entry = collector->BeginApi(
        collector->RegisterApi(std::move(prefix), std::move(name), risk), stack, &number);
    if (entry == nullptr) return false;
    Describe(*entry, {Part::kInputArgs, Part::kOutput});
    entry->Commit();
    return true;
  }
  bool Backward(std::string prefix, std::string name, int64_t number, Risk risk = Risk::kFocus) {
    auto entry = collector->BeginApiBackward(
        collector->RegisterApi(std::move(prefix), std::move(name), risk), number);
    if (entry == nullptr) return false;
    Describe(*entry, {Part::kInput, Part::kOutput});
    entry->Commit();
    return true;
  }
  void Describe(EntryBuilder& entry, std::vector<Part> parts) {
    for (const Part part : parts) {
      entry.BeginPart(part);
      entry.OpenList();
      entry.Tensor(one->leaf);
      entry.CloseList();
      entry.EndPart();
    }
  }
  // Enters a module, runs `inside`, describes and leaves it.
  bool Module(std::string path, std::string class_name, const std::function<void()>& inside = {},
              StackId stack = kNoStack) {
    const uint32_t id = collector->RegisterModule(std::move(path), std::move(class_name));
    const auto call = collector->EnterModule(id, stack);
    auto entry = collector->BeginModule(call);
    if (inside) inside();
    if (entry != nullptr) {
      Describe(*entry, {Part::kInputArgs, Part::kOutput});
      entry->Commit();
    }
    collector->LeaveModule(call);
    return call.described;
  }

  TempDir dir;
  KeptLog log;
  config::CollectConfig config;
  std::unique_ptr<Collector> collector;
  std::unique_ptr<HostTensor> one = Floats({1});
};

}  // namespace msprobe::collect
