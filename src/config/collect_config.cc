#include "config/collect_config.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "base/file.h"
#include "config/collect_words.h"
#include "config/scope_names.h"
#include "config/section_reader.h"

namespace msprobe::config {
namespace {

using std::string_view;

// Both generations and ours. The second line names the task sections: a file may hold those of
// tasks it does not use.
constexpr string_view kTopKeys[] = {"task",
                                    "dump_path",
                                    "rank",
                                    "step",
                                    "level",
                                    "async_dump",
                                    "precision",
                                    "dump_enable",
                                    "extra_info",
                                    "risk_level",
                                    "custom_op_namespaces",
                                    "enable_dataloader",
                                    "buffer_size",
                                    "memory_limit",
                                    "overwrite",
                                    "strict",
                                    "compiled",
                                    "reuse",
                                    "api_list",
                                    "evidence",
                                    "backward_layout",
                                    "device_statistics",
                                    "statistics",
                                    "tensor",
                                    "structure",
                                    "nan_check",
                                    "overflow_check",
                                    "acc_check",
                                    "run_ut",
                                    "diff_check",
                                    "exception_dump",
                                    "free_benchmark",
                                    "grad_probe"};
constexpr string_view kSectionKeys[] = {
    "scope",      "list",        "tensor_list", "data_mode",  "summary_mode",
    "slice",      "request_id",  "bench_path",  "diff_nums",  "overflow_nums",
    "check_mode", "file_format", "sketch_size", "sketch_seed"};
constexpr string_view kApiListKeys[] = {"add", "remove"};
constexpr string_view kSliceKeys[] = {"dim", "begin", "end", "size"};

constexpr int64_t kLeastBuffer = 64 << 10, kMostBuffer = 1 << 30;  // bytes (decisions.md 8)
constexpr int64_t kLeastMemory = 1 << 20, kMostMemory = int64_t{1} << 40;

// Words that other releases know and this tool refuses, with the reason.
struct Refused {
  string_view word, reason, hint;
};
constexpr Refused kRefusedTasks[] = {
    {"acc_check", "this task configures the offline pre-check and collects nothing",
     "run `msprobe acc_check`, or choose \"statistics\" or \"tensor\" here"},
    {"run_ut", "this task configures the offline pre-check and collects nothing",
     "run `msprobe -f pytorch run_ut`, or choose \"statistics\" or \"tensor\" here"},
    {"diff_check", "this task is chosen by the key \"bench_path\", not by name",
     "choose \"tensor\" with summary_mode \"md5\" and bench_path"},
    {"free_benchmark", "this task was removed from the tool",
     "collect with \"statistics\" and run the pre-check on the dump"},
    {"grad_probe", "this task was removed from the tool",
     "parameter gradients are recorded at the levels \"L0\" and \"mix\""},
    {"exception_dump", "this task exists for MindSpore only",
     "choose \"statistics\", \"tensor\", \"structure\" or \"nan_check\""},
};
constexpr Refused kRefusedLevels[] = {
    {"L2",
     "this level dumps the kernels of an NPU through its runtime, which this tool does not do",
     "choose \"L0\", \"L1\", \"mix\" or \"debug\""},
};

// Null and "" mean the default for some keys of config.json.
bool IsUnset(const json::Value& value) {
  return value.is_null() || (value.is_string() && value.as_string().empty());
}

class ConfigReader {
 public:
  ConfigReader(const CollectArguments& arguments, LogSink& log)
      : arguments_(arguments), log_(log) {}

  Result<CollectConfig> Read() {
    if (arguments_.config_path) {
      MSPROBE_TRY(Open(*arguments_.config_path));
    } else {
      config_.dump_path = "./dump_path";
    }
    SectionReader top(Spot{Source(), {}}, source_ ? &source_->root() : nullptr, problems_, log_);
    top.CheckKeys(kTopKeys, config_.unknown_keys);
    ReadTask(top);
    ReadLevel(top);
    ReadDumpPath(top);
    ReadStepsAndRanks(top);
    ReadSwitches(top);
    ReadOurs(top);
    ReadSection(top);
    if (source_ && source_->duplicate_keys() > 0) {
      log_.Warning(fmt::format("{}: {} keys occur more than once; the last one counts",
                               source_->path(), source_->duplicate_keys()));
    }
    if (!problems_.empty()) return std::move(problems_).Combined();
    return std::move(config_);
  }

 private:
  bool Checks() const {
    return config_.task == Task::kNanCheck || config_.task == Task::kOverflowCheck;
  }
  const JsonSource* Source() const { return source_ ? &*source_ : nullptr; }

  Status Open(const std::string& path) {
    if (!path.ends_with(".json")) {
      return Error(ErrorCode::kInvalidArgument, "the name does not end in .json")
          .At(path)
          .Hint("expected the path of a config.json");
    }
    MSPROBE_ASSIGN(source_, JsonSource::Read(path));
    if (!source_->root().is_object()) {
      return Error(ErrorCode::kConfig, fmt::format("the file holds {}", KindName(source_->root())))
          .At(path)
          .Hint("expected an object with keys like \"task\" and \"dump_path\"");
    }
    config_.path = path;
    return {};
  }

  // A word that is an argument or else a key; the text of an argument becomes a value, so that both
  // are read alike.
  template <class Enum, size_t N, size_t M>
  void ReadWord(const SectionReader& top, string_view key,
                const std::optional<std::string>& argument,
                const std::pair<string_view, Enum> (&words)[N], const Refused (&refused)[M],
                Enum& out, std::string* word) {
    json::Document text;
    Spot spot = top.At(key);
    const json::Value* value = top.Find(key);
    if (argument && !argument->empty()) {
      std::string quoted;
      json::AppendString(quoted, *argument);
      auto parsed = json::ParseDocument(quoted);
      if (!parsed.ok()) return problems_.Add(std::move(parsed).error());
      text = std::move(parsed).value();
      spot = Spot{nullptr, KeyPath().Key(key)};
      value = &text.root();
    }
    if (value == nullptr || IsUnset(*value)) return;
    for (const Refused& r : refused) {
      if (!value->is_string() || value->as_string() != r.word) continue;
      Error error =
          spot.Problem(fmt::format("\"{}\" is refused: {}", r.word, r.reason), std::string(r.hint));
      error.code = ErrorCode::kUnsupported;
      return problems_.Add(std::move(error));
    }
    const size_t before = problems_.size();
    SectionReader::ChoiceOf<Enum>(*value, spot, words, out, problems_);
    if (word != nullptr && problems_.size() == before) *word = value->as_string();
  }

  void ReadTask(const SectionReader& top) {
    ReadWord(top, "task", arguments_.task, kTaskWords, kRefusedTasks, config_.task, &section_name_);
  }
  void ReadLevel(const SectionReader& top) {
    ReadWord(top, "level", arguments_.level, kLevelWords, kRefusedLevels, config_.level, nullptr);
    if (config_.task == Task::kStructure && config_.level != Level::kL0 &&
        config_.level != Level::kMix) {
      log_.Warning(
          fmt::format("the task \"structure\" works at the levels \"L0\" and \"mix\": level \"{}\" "
                      "becomes \"mix\"",
                      LevelName(config_.level)));
      config_.level = Level::kMix;
    }
    if (Checks() && config_.level == Level::kDebug) {
      problems_.Add(top.At("level").Problem(
          fmt::format("the level \"debug\" does not go with the task \"{}\"", section_name_),
          "expected \"L0\", \"L1\" or \"mix\""));
    }
  }

  void ReadDumpPath(SectionReader& top) {
    std::optional<std::string> path = arguments_.dump_path;
    if (path && path->empty()) path.reset();
    Spot spot{nullptr, KeyPath().Key("dump_path")};
    if (!path) {
      const size_t before = problems_.size();
      const json::Value* value = top.Find("dump_path");
      if (value != nullptr && !value->is_null()) top.Text("dump_path", path);
      if (problems_.size() > before) return;
      if (source_) spot = top.At("dump_path");
    } else if (path->find('\0') != std::string::npos) {
      return problems_.Add(spot.Problem("the path contains a null character"));
    }
    if (path) config_.dump_path = *path;
    if (config_.dump_path.empty()) {
      problems_.Add(spot.Problem(
          path ? "the path is empty" : "the key is missing",
          "expected the folder to write dumps to, here or as argument of PrecisionDebugger"));
    }
  }

  void ReadStepsAndRanks(SectionReader& top) {
    top.Numbers("rank", config_.ranks);
    if (!arguments_.steps_json) return top.Numbers("step", config_.steps);
    auto steps = json::ParseDocument(*arguments_.steps_json);
    const Spot spot{nullptr, KeyPath().Key("step")};
    if (!steps.ok()) {
      problems_.Add(spot.Problem(std::move(steps).error().message));
    } else if (!steps->root().is_null()) {
      config_.steps = ReadNumbers(steps->root(), spot, problems_);
    }
  }

  void ReadSwitches(SectionReader& top) {
    top.Bool("async_dump", config_.async_dump);
    top.Choice<bool>("precision", kPrecisionWords, config_.high_precision);
    if (const json::Value* value = top.Find("dump_enable"); value != nullptr && !value->is_null()) {
      bool enable = false;
      top.Bool("dump_enable", enable);
      config_.dump_enable = enable;
    }
    top.Bool("extra_info", config_.extra_info);
    if (const json::Value* value = top.Find("risk_level"); value != nullptr && IsUnset(*value)) {
      config_.risk_level = RiskLevel::kAll;
    } else {
      top.Choice<RiskLevel>("risk_level", kRiskLevelWords, config_.risk_level);
    }
    if (const json::Value* value = top.Find("custom_op_namespaces");
        value != nullptr && !value->is_null()) {
      top.TextList("custom_op_namespaces", config_.custom_op_namespaces.emplace());
    }
    bool dataloader = false;
    top.Bool("enable_dataloader", dataloader);
    if (dataloader) {
      constexpr string_view kKey[] = {"enable_dataloader"};
      top.WarnWithoutEffect(kKey, "call start(), stop() and step() in the training loop");
    }
  }

  void ReadOurs(SectionReader& top) {
    top.Int("buffer_size", kLeastBuffer, kMostBuffer, config_.buffer_size);
    top.Int("memory_limit", kLeastMemory, kMostMemory, config_.memory_limit);
    top.Choice<Overwrite>("overwrite", kOverwriteWords, config_.overwrite);
    top.Bool("strict", config_.strict);
    top.Choice<bool>("compiled", kCompiledWords, config_.compiled_as_leaf);
    top.Choice<bool>("reuse", kReuseWords, config_.reuse_statistics);
    ReadApiList(top);
    top.Choice<Evidence>("evidence", kEvidenceWords, config_.evidence);
    top.Choice<BackwardLayout>("backward_layout", kBackwardLayoutWords, config_.backward_layout);
    top.Choice<DeviceStatistics>("device_statistics", kDeviceStatisticsWords,
                                 config_.device_statistics);
  }

  void ReadApiList(SectionReader& top) {
    const json::Value* value = top.Find("api_list");
    if (value == nullptr || value->is_null()) return;
    const Spot spot = top.At("api_list");
    if (!value->is_object()) {
      return problems_.Add(
          spot.Problem(WrongKind(*value), "expected an object with \"add\" and \"remove\""));
    }
    SectionReader list(spot, value, problems_, log_);
    list.CheckKeys(kApiListKeys, config_.unknown_keys);
    list.TextList("remove", config_.removed_apis);
    DropEmpty(list, "remove", config_.removed_apis);
    const json::Value* add = list.Find("add");
    if (add == nullptr) return;
    if (!add->is_object()) {
      return problems_.Add(list.At("add").Problem(
          WrongKind(*add), "expected an object like {\"my.module\": [\"function\"]}"));
    }
    SectionReader modules(list.At("add"), add, problems_, log_);
    for (const auto* member = add->members_begin(); member != add->members_end(); ++member) {
      std::vector<std::string> names;
      modules.TextList(member->key, names);
      config_.added_apis.emplace_back(member->key, std::move(names));
    }
  }

  // ---- the section of the task
  // --------------------------------------------------------------------

  void ReadSection(SectionReader& top) {
    if (section_name_.empty()) section_name_ = TaskName(config_.task);
    const json::Value* object = top.Find(section_name_);
    if (object != nullptr && !object->is_object()) {
      problems_.Add(top.At(section_name_).Problem(WrongKind(*object), "expected an object"));
      object = nullptr;
    }
    SectionReader section(top.At(section_name_), object, problems_, log_);
    section.CheckKeys(kSectionKeys, config_.unknown_keys);
    ReadFilters(section);
    ReadDataMode(section);
    ReadSummary(section);
    ReadSlices(section);
    ReadDifferenceCheck(section);
    if (section_name_ == "overflow_check") config_.overflow_nums = 1;
    ReadCount(section, "overflow_nums", config_.overflow_nums);
    WarnAboutSection(section);
    CheckAsync(top, section);
    CheckScope(section);
  }

  void ReadFilters(SectionReader& section) {
    section.TextList("scope", config_.scope);
    section.TextList("list", config_.list);
    section.TextList("tensor_list", config_.tensor_list);
    DropEmpty(section, "list", config_.list);
    DropEmpty(section, "tensor_list", config_.tensor_list);
    for (const std::string& name : config_.list) {
      if (name.starts_with("name-regex(")) {
        log_.Warning(section.At("list").Note(fmt::format(
            "\"{}\" is a form for MindSpore; here it is compared as plain text", name)));
      }
    }
  }

  // An empty text occurs in every name, which nobody means who writes a list.
  void DropEmpty(SectionReader& section, string_view key, std::vector<std::string>& names) {
    if (std::erase(names, std::string()) > 0)
      log_.Warning(section.At(key).Note("empty elements are ignored"));
  }

  void ReadDataMode(SectionReader& section) {
    std::vector<std::string> words;
    section.TextList("data_mode", words);
    if (words.empty()) return;
    constexpr std::array<string_view, 5> kWords = {"all", "forward", "backward", "input", "output"};
    const auto has = [&](string_view w) {
      return std::find(words.begin(), words.end(), w) != words.end();
    };
    const std::string expected =
        "expected [\"all\"], or some of \"forward\", \"backward\", \"input\" and \"output\"";
    if (words.size() > 4) {
      return problems_.Add(
          section.At("data_mode")
              .Problem(fmt::format("the list has {} elements", words.size()), expected));
    }
    for (size_t i = 0; i < words.size(); ++i) {
      if (std::find(kWords.begin(), kWords.end(), words[i]) == kWords.end()) {
        return problems_.Add(
            section.At("data_mode")
                .Index(i)
                .Problem(fmt::format("the value \"{}\" is not known", words[i]), expected));
      }
    }
    if (has("all")) {
      if (words.size() > 1)
        problems_.Add(
            section.At("data_mode").Problem("\"all\" stands beside other words", expected));
      return;
    }
    config_.data_mode_all = false;
    config_.forward = has("forward") || !has("backward");
    config_.backward = has("backward") || !has("forward");
    config_.input = has("input") || !has("output");
    config_.output = has("output") || !has("input");
    if (Checks() && !config_.output) {
      problems_.Add(section.At("data_mode")
                        .Problem("\"input\" without \"output\" leaves nothing to check",
                                 "expected \"output\" too"));
    }
  }

  // A word, or a list of "sketch" and what stands beside it.
  void ReadSummary(SectionReader& section) {
    const json::Value* value = section.Find("summary_mode");
    const Spot spot = section.At("summary_mode");
    const size_t before = problems_.size();
    std::vector<std::optional<SummaryMode>> words;
    const auto read = [&](const json::Value& word, const Spot& at) {
      SectionReader::ChoiceOf<std::optional<SummaryMode>>(word, at, kSummaryWords,
                                                          words.emplace_back(), problems_);
    };
    if (value != nullptr && value->is_array()) {
      for (size_t i = 0; i < value->size() && i <= Problems::kShown; ++i)
        read((*value)[i], spot.Index(i));
    } else if (value != nullptr) {
      read(*value, spot);
    }
    if (problems_.size() > before) return;
    for (const std::optional<SummaryMode>& word : words) {
      if (word)
        config_.summary_mode = *word;
      else
        config_.sketch = true;
    }
    if (words.size() > 2 || (words.size() == 2 && (!config_.sketch || words[0] == words[1])) ||
        (config_.sketch && config_.summary_mode == SummaryMode::kXor)) {
      problems_.Add(spot.Problem("these do not go together",
                                 "expected one word, or \"sketch\" beside \"statistics\", "
                                 "\"md5\" or \"hash64\""));
    }
    ReadSketch(section);
  }

  void ReadSketch(SectionReader& section) {
    section.Int("sketch_size", 64, 4096, config_.sketch_size);
    if (config_.sketch_size % 64 != 0) {
      problems_.Add(
          section.At("sketch_size")
              .Problem(fmt::format("the value {} is no multiple of 64", config_.sketch_size)));
    }
    section.Int("sketch_seed", 0, INT64_MAX, config_.sketch_seed);
    // The echo in a dump has both keys always.
    const CollectConfig fresh;
    constexpr string_view kSize[] = {"sketch_size"}, kSeed[] = {"sketch_seed"};
    constexpr string_view kReason = "the summary_mode has no \"sketch\"";
    if (config_.sketch) return;
    if (config_.sketch_size != fresh.sketch_size) section.WarnWithoutEffect(kSize, kReason);
    if (config_.sketch_seed != fresh.sketch_seed) section.WarnWithoutEffect(kSeed, kReason);
  }

  void ReadSlices(SectionReader& section) {
    section.Text("request_id", config_.request_id);
    const json::Value* value = section.Find("slice");
    if (value != nullptr && !value->is_array()) {
      problems_.Add(section.At("slice").Problem(
          WrongKind(*value),
          "expected a list of objects with \"dim\", \"begin\", \"end\", \"size\""));
    } else if (value != nullptr) {
      for (size_t i = 0; i < value->size() && problems_.size() <= Problems::kShown; ++i) {
        ReadSlice((*value)[i], section.At("slice").Index(i));
      }
    }
    const bool possible = config_.level != Level::kDebug &&
                          (config_.task == Task::kStatistics || config_.task == Task::kTensor);
    if (!possible && (!config_.slice.empty() || config_.request_id)) {
      constexpr string_view kKeys[] = {"slice", "request_id"};
      section.WarnWithoutEffect(
          kKeys,
          "it needs the task \"statistics\" or \"tensor\" and the level \"L0\", \"L1\" or \"mix\"");
      config_.slice.clear();
      config_.request_id.reset();
    }
  }

  void ReadSlice(const json::Value& value, const Spot& spot) {
    if (!value.is_object())
      return problems_.Add(spot.Problem(
          WrongKind(value), "expected an object with \"dim\", \"begin\", \"end\", \"size\""));
    SectionReader reader(spot, &value, problems_, log_);
    reader.CheckKeys(kSliceKeys, config_.unknown_keys);
    SliceItem item;
    reader.Int("dim", 0, INT64_MAX, item.dim);
    reader.Int("begin", INT64_MIN, INT64_MAX, item.begin);
    int64_t number = 0;
    reader.Int("end", INT64_MIN, INT64_MAX, number);
    if (value.Find("end") != nullptr) item.end = number;
    reader.Int("size", 0, INT64_MAX, number);
    if (value.Find("size") != nullptr) item.size = number;
    config_.slice.push_back(item);
  }

  // -1 (without end) or a positive number.
  void ReadCount(SectionReader& section, string_view key, int64_t& out) {
    int64_t count = out;
    section.Int(key, -1, INT64_MAX, count);
    if (count == 0)
      return problems_.Add(section.At(key).Problem("the value 0 is out of range",
                                                   "expected -1 or a positive integer"));
    out = count;
  }

  void ReadDifferenceCheck(SectionReader& section) {
    if (const json::Value* v = section.Find("diff_nums");
        v != nullptr && !v->is_null() && !(v->is_int() && v->as_int() == 0)) {
      ReadCount(section, "diff_nums", config_.diff_nums);
    }
    if (const json::Value* v = section.Find("bench_path"); v != nullptr && !IsUnset(*v))
      section.Text("bench_path", config_.bench_path);
    if (!config_.bench_path) return;
    if (config_.task != Task::kTensor) {
      constexpr string_view kKeys[] = {"bench_path"};
      section.WarnWithoutEffect(kKeys, "it needs the task \"tensor\"");
      config_.bench_path.reset();
    } else if (!IsDirectory(*config_.bench_path)) {
      problems_.Add(
          section.At("bench_path")
              .Problem(fmt::format("\"{}\" is not a folder", *config_.bench_path),
                       "expected the folder of an earlier dump with summary_mode \"md5\""));
    } else if (config_.summary_mode != SummaryMode::kMd5) {
      problems_.Add(section.At("bench_path")
                        .Problem("the comparison with an earlier dump is by checksums",
                                 "expected summary_mode \"md5\" beside it"));
    }
  }

  void WarnAboutSection(SectionReader& section) {
    constexpr string_view kMindSpore[] = {"file_format"};
    section.WarnWithoutEffect(kMindSpore, "it is for MindSpore");
    constexpr string_view kCheckMode[] = {"check_mode"};
    section.WarnWithoutEffect(kCheckMode, "infinities and NaN are counted in the recorded values");
    constexpr string_view kTensorList[] = {"tensor_list"};
    if (config_.level == Level::kDebug && !config_.tensor_list.empty()) {
      section.WarnWithoutEffect(kTensorList, "the level is \"debug\"");
      config_.tensor_list.clear();
    } else if (config_.task == Task::kTensor && !config_.tensor_list.empty()) {
      section.WarnWithoutEffect(
          kTensorList, "the task \"tensor\" saves all tensors; use \"list\" to choose among them");
      config_.tensor_list.clear();
    }
  }

  void CheckAsync(SectionReader& top, SectionReader& section) {
    if (!config_.async_dump) return;
    log_.Warning(
        "async_dump never waits for the disk: tensors that are not written yet may take any amount "
        "of memory");
    if (config_.summary_mode == SummaryMode::kMd5) {
      problems_.Add(top.At("async_dump")
                        .Problem("asynchronous collection does not go with summary_mode \"md5\"",
                                 "expected false, or summary_mode \"statistics\", \"xor\", "
                                 "\"hash64\" or \"sketch\""));
    }
    if (config_.task != Task::kTensor) return;
    if (config_.level == Level::kDebug) {
      config_.list.clear();
    } else if (config_.list.empty()) {
      problems_.Add(section.At("list").Problem(
          "the list is empty, but asynchronous collection of tensors needs one",
          "expected the names whose tensors are to be saved"));
    }
  }

  void CheckScope(SectionReader& section) {
    if (config_.scope.empty()) return;
    const Spot spot = section.At("scope");
    if (config_.level == Level::kDebug) {
      constexpr string_view kKeys[] = {"scope"};
      section.WarnWithoutEffect(kKeys, "the level is \"debug\"");
      return config_.scope.clear();
    }
    if (config_.scope.size() != 2) {
      return problems_.Add(
          spot.Problem(fmt::format("the list has {} elements", config_.scope.size()),
                       "expected no element, or the names of the first and the last call"));
    }
    const bool apis = config_.level != Level::kL0, modules = config_.level != Level::kL1;
    for (size_t i = 0; i < 2; ++i) {
      const std::string& name = config_.scope[i];
      const ScopeNameKind kind = KindOfScopeName(name);
      if ((kind == ScopeNameKind::kApi && apis) || (kind == ScopeNameKind::kModule && modules)) {
        if (kind == ScopeNameKind::kApi && !HasBuiltInPrefix(name)) {
          log_.Warning(
              spot.Index(i).Note(fmt::format("\"{}\" begins with no prefix of the tool's own; it "
                                             "has to be one of register_custom_api",
                                             name)));
        }
        continue;
      }
      std::string expected = "expected ";
      if (apis) expected += "a name like \"Functional.relu.0.forward\"";
      if (apis && modules) expected += " or ";
      if (modules) expected += "a name like \"Module.encoder.Linear.forward.0\"";
      problems_.Add(
          spot.Index(i).Problem(fmt::format("\"{}\" is not the name of a call at level \"{}\"",
                                            name, LevelName(config_.level)),
                                std::move(expected)));
    }
  }

  const CollectArguments& arguments_;
  LogSink& log_;
  std::optional<JsonSource> source_;
  Problems problems_;
  CollectConfig config_;
  std::string
      section_name_;  // as the user spells the task: "overflow_check" is a section of its own
};

}  // namespace

Result<CollectConfig> ReadCollectConfig(const CollectArguments& arguments, LogSink& log) {
  if (arguments.narrow_path && !arguments.narrow_path->empty())
    return ReadNarrowedConfig(arguments, log);
  return ConfigReader(arguments, log).Read();
}

}  // namespace msprobe::config
