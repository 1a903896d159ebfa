#include "config/compare_config.h"

#include <fmt/format.h>

#include <array>
#include <span>
#include <string_view>

#include "base/text.h"
#include "config/json_source.h"
#include "config/problems.h"

namespace msprobe::config {
namespace {

using std::string_view;

// The first spelling is the one of compare.json; the others are those of a published guide and of
// the Python function (decisions.md 52, compare.md 2.1).
constexpr std::array<string_view, 2> kTargetKeys = {"npu_path", "npu_json_path"};
constexpr std::array<string_view, 3> kGoldenKeys = {"bench_path", "gpu_path", "bench_json_path"};
constexpr std::array<string_view, 2> kStackKeys = {"stack_path", "stack_json_path"};
constexpr string_view kRowLogKey = "is_print_compare_log";
constexpr std::array<string_view, 2> kMindSporeKeys = {"common", "map_dict"};
constexpr string_view kRankKey = "rank_id", kStepKey = "step_id";
// Left in the dict by the original's own functions; derived from the paths here.
constexpr std::array<string_view, 2> kDerivedKeys = {"npu_dump_data_dir", "bench_dump_data_dir"};
constexpr std::array<string_view, 10> kAllKeys = {
    kRankKey,     kStepKey,        "npu_path",        "bench_path",      "gpu_path",
    "stack_path", "npu_json_path", "bench_json_path", "stack_json_path", kRowLogKey};

bool Contains(std::span<const string_view> words, string_view word) {
  for (const string_view w : words) {
    if (w == word) return true;
  }
  return false;
}

// A path under one of several spellings; nullopt when no spelling is there (or all are null and
// `null_is_absent`).
std::optional<std::string> ReadPath(const JsonSource& source,
                                    std::span<const string_view> spellings, bool null_is_absent,
                                    Problems& problems) {
  std::optional<std::string> found;
  string_view found_under;
  for (const string_view key : spellings) {
    const json::Value* value = source.root().Find(key);
    if (value == nullptr || (value->is_null() && null_is_absent)) continue;
    const KeyPath where = KeyPath().Key(key);
    if (!value->is_string()) {
      problems.Add(
          source.Problem(where, WrongKind(*value),
                         "expected a string: the path of a dump.json, or of a step folder"));
      found.emplace();  // present, though wrong: not reported as missing
    } else if (value->as_string().empty()) {
      problems.Add(source.Problem(where, "the path is empty",
                                  "expected the path of a dump.json, or of a step folder"));
      found.emplace();
    } else if (value->as_string().find('\0') != string_view::npos) {
      problems.Add(source.Problem(where, "the path contains a null character"));
      found.emplace();
    } else if (found.has_value() && !found->empty() && *found != value->as_string()) {
      problems.Add(source.Problem(
          where,
          fmt::format("\"{}\" contradicts \"{}\" of {}", value->as_string(), *found, found_under),
          "the two keys mean the same path: keep one"));
    } else {
      found = std::string(value->as_string());
      found_under = key;
    }
  }
  return found;
}

// The unknown key of the file that is most like `wanted`, for the hint of a missing key.
string_view LikelyTypo(const JsonSource& source, string_view wanted) {
  for (auto* m = source.root().members_begin(); m != source.root().members_end(); ++m) {
    const std::array<string_view, 1> candidates = {wanted};
    if (!Contains(kAllKeys, m->key) && !Nearest(m->key, candidates).empty()) return m->key;
  }
  return {};
}

void RequirePath(const JsonSource& source, std::span<const string_view> spellings, string_view side,
                 std::string& out, Problems& problems) {
  if (auto path = ReadPath(source, spellings, false, problems)) {
    out = std::move(*path);
    return;
  }
  const std::string name(spellings.front());
  const string_view typo = LikelyTypo(source, spellings.front());
  std::string hint =
      fmt::format("expected \"{}\": the path of the {} dump.json or step folder", name, side);
  if (!typo.empty()) hint += fmt::format("; the file has \"{}\"", typo);
  problems.Add(Error(ErrorCode::kConfig, "the key is missing")
                   .At(source.path())
                   .Key(name)
                   .Hint(std::move(hint)));
}

// A list of numbers from 0 on, or one; null means all.
void ReadNumbers(const JsonSource& source, string_view key, std::vector<int64_t>& out,
                 Problems& problems) {
  const json::Value* value = source.root().Find(key);
  if (value == nullptr || value->is_null()) return;
  const auto take = [&](const json::Value& item, const KeyPath& where) {
    if (item.is_int() && item.as_int() >= 0) {
      out.push_back(item.as_int());
    } else {
      problems.Add(source.Problem(
          where, fmt::format("the value {} is not a number from 0 on", ShownValue(item)),
          "expected a list of numbers like [0, 3]"));
    }
  };
  const KeyPath where = KeyPath().Key(key);
  if (!value->is_array()) return take(*value, where);
  for (size_t i = 0; i < value->size(); ++i) take((*value)[i], where.Index(i));
}

void WarnAboutKeys(const JsonSource& source, LogSink& log) {
  for (auto* m = source.root().members_begin(); m != source.root().members_end(); ++m) {
    if (Contains(kAllKeys, m->key) || Contains(kDerivedKeys, m->key)) continue;
    const KeyPath where = KeyPath().Key(m->key);
    if (Contains(kMindSporeKeys, m->key)) {
      log.Warning(
          source.Note(where, "this key is for MindSpore dumps and has no effect on PyTorch dumps"));
      continue;
    }
    const string_view nearest = Nearest(m->key, kAllKeys);
    log.Warning(source.Note(
        where, nearest.empty()
                   ? std::string("unknown key, ignored")
                   : fmt::format("unknown key, ignored; did you mean \"{}\"?", nearest)));
  }
  if (source.duplicate_keys() > 0) {
    log.Warning(fmt::format("{}: {} keys occur more than once; the last one counts", source.path(),
                            source.duplicate_keys()));
  }
}

}  // namespace

Result<CompareInput> ReadCompareJson(const std::string& path, LogSink& log) {
  MSPROBE_ASSIGN(const JsonSource source, JsonSource::Read(path));
  if (!source.root().is_object()) {
    return Error(ErrorCode::kConfig, fmt::format("the file holds {}", KindName(source.root())))
        .At(path)
        .Hint("expected an object with the keys \"npu_path\" and \"bench_path\"");
  }
  CompareInput input;
  Problems problems;
  RequirePath(source, kTargetKeys, "target", input.target_path, problems);
  RequirePath(source, kGoldenKeys, "golden", input.golden_path, problems);
  input.stack_path = ReadPath(source, kStackKeys, true, problems);
  if (const json::Value* value = source.root().Find(kRowLogKey)) {
    if (value->is_bool()) {
      input.print_row_log = value->as_bool();
    } else {
      problems.Add(
          source.Problem(KeyPath().Key(kRowLogKey), WrongKind(*value), "expected true or false"));
    }
  }
  ReadNumbers(source, kRankKey, input.rank_ids, problems);
  ReadNumbers(source, kStepKey, input.step_ids, problems);
  WarnAboutKeys(source, log);
  if (!problems.empty()) return std::move(problems).Combined();
  return input;
}

}  // namespace msprobe::config
