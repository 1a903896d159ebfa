#include <fmt/format.h>

#include "config/collect_config.h"
#include "config/collect_words.h"
#include "json/json.h"

namespace msprobe::config {
namespace {

std::string JsonText(std::string_view text) {
  std::string out;
  json::AppendString(out, text);
  return out;
}
std::string JsonBool(bool value) { return value ? "true" : "false"; }

template <class T, class Print>
std::string JsonList(const std::vector<T>& values, Print print) {
  std::string out = "[";
  for (const T& value : values) {
    if (out.size() > 1) out += ", ";
    out += print(value);
  }
  return out += "]";
}
std::string JsonTexts(const std::vector<std::string>& values) { return JsonList(values, JsonText); }

// Runs of numbers as ranges, as a user would write them.
std::string JsonNumbers(const std::vector<int64_t>& numbers) {
  std::string out = "[";
  for (size_t i = 0; i < numbers.size();) {
    size_t end = i + 1;
    while (end < numbers.size() && numbers[end] == numbers[end - 1] + 1) ++end;
    if (i > 0) out += ", ";
    out += end - i > 2 ? fmt::format("\"{}-{}\"", numbers[i], numbers[end - 1])
                       : fmt::format("{}", numbers[i]);
    i = end - i > 2 ? end : i + 1;
  }
  return out += "]";
}

std::string JsonDataMode(const CollectConfig& c) {
  if (c.data_mode_all) return "[\"all\"]";
  std::vector<std::string> words;
  if (c.forward) words.emplace_back("forward");
  if (c.backward) words.emplace_back("backward");
  if (c.input) words.emplace_back("input");
  if (c.output) words.emplace_back("output");
  return JsonTexts(words);
}

std::string JsonSlice(const SliceItem& item) {
  std::string out = fmt::format("{{\"dim\": {}, \"begin\": {}", item.dim, item.begin);
  if (item.end) out += fmt::format(", \"end\": {}", *item.end);
  if (item.size) out += fmt::format(", \"size\": {}", *item.size);
  return out += "}";
}

std::string JsonApiList(const CollectConfig& c) {
  std::string out = "{\"add\": {";
  for (const auto& [module, names] : c.added_apis) {
    if (!out.ends_with('{')) out += ", ";
    out += JsonText(module) + ": " + JsonTexts(names);
  }
  return out + "}, \"remove\": " + JsonTexts(c.removed_apis) + "}";
}

std::string JsonSummaryMode(const CollectConfig& c) {
  std::string summary = JsonText(SummaryModeName(c.summary_mode));
  if (!c.sketch) return summary;
  return c.summary_mode == SummaryMode::kStatistics ? "\"sketch\""
                                                    : "[" + summary + ", \"sketch\"]";
}

}  // namespace

std::string_view TaskName(Task t) { return WordOf(kTaskWords, t); }
std::string_view LevelName(Level l) { return WordOf(kLevelWords, l); }
std::string_view SummaryModeName(SummaryMode m) { return WordOf(kSummaryModeWords, m); }
std::string_view RiskLevelName(RiskLevel r) { return WordOf(kRiskLevelWords, r); }
std::string_view OverwriteName(Overwrite o) { return WordOf(kOverwriteWords, o); }
std::string_view EvidenceName(Evidence e) { return WordOf(kEvidenceWords, e); }

std::vector<std::pair<std::string, std::string>> Settings(const CollectConfig& c) {
  const std::string task(TaskName(c.task));
  const auto in_section = [&](std::string_view key) { return fmt::format("{}.{}", task, key); };
  const auto optional_text = [](const std::optional<std::string>& text) {
    return text ? JsonText(*text) : "null";
  };
  return {
      {"task", JsonText(task)},
      {"dump_path", JsonText(c.dump_path)},
      {"rank", JsonNumbers(c.ranks)},
      {"step", JsonNumbers(c.steps)},
      {"level", JsonText(LevelName(c.level))},
      {"async_dump", JsonBool(c.async_dump)},
      {"precision", JsonText(WordOf(kPrecisionWords, c.high_precision))},
      {"dump_enable", c.dump_enable ? JsonBool(*c.dump_enable) : "null"},
      {"extra_info", JsonBool(c.extra_info)},
      {"risk_level", JsonText(RiskLevelName(c.risk_level))},
      {"custom_op_namespaces",
       c.custom_op_namespaces ? JsonTexts(*c.custom_op_namespaces) : "null"},
      {"buffer_size", fmt::format("{}", c.buffer_size)},
      {"memory_limit", c.memory_limit > 0 ? fmt::format("{}", c.memory_limit) : "null"},
      {"overwrite", JsonText(OverwriteName(c.overwrite))},
      {"strict", JsonBool(c.strict)},
      {"compiled", JsonText(WordOf(kCompiledWords, c.compiled_as_leaf))},
      {"reuse", JsonText(WordOf(kReuseWords, c.reuse_statistics))},
      {"api_list", JsonApiList(c)},
      {"evidence", JsonText(WordOf(kEvidenceWords, c.evidence))},
      {"backward_layout", JsonText(WordOf(kBackwardLayoutWords, c.backward_layout))},
      {"device_statistics", JsonText(WordOf(kDeviceStatisticsWords, c.device_statistics))},
      {in_section("scope"), JsonTexts(c.scope)},
      {in_section("list"), JsonTexts(c.list)},
      {in_section("tensor_list"), JsonTexts(c.tensor_list)},
      {in_section("data_mode"), JsonDataMode(c)},
      {in_section("summary_mode"), JsonSummaryMode(c)},
      {in_section("sketch_size"), fmt::format("{}", c.sketch_size)},
      {in_section("sketch_seed"), fmt::format("{}", c.sketch_seed)},
      {in_section("slice"), JsonList(c.slice, JsonSlice)},
      {in_section("request_id"), optional_text(c.request_id)},
      {in_section("bench_path"), optional_text(c.bench_path)},
      {in_section("diff_nums"), fmt::format("{}", c.diff_nums)},
      {in_section("overflow_nums"), fmt::format("{}", c.overflow_nums)},
  };
}

std::string SettingsJson(const CollectConfig& config) {
  std::string out = "{";
  std::string section;
  for (const auto& [key, value] : Settings(config)) {
    const size_t dot = key.find('.');
    const std::string_view name =
        std::string_view(key).substr(dot == std::string::npos ? 0 : dot + 1);
    if (dot != std::string::npos && section.empty()) {
      section = key.substr(0, dot);
      out += fmt::format(", \"{}\": {{", section);
    } else if (out.size() > 1) {
      out += ", ";
    }
    out += fmt::format("\"{}\": {}", name, value);
  }
  return out += "}}";
}

std::vector<std::string> SettingDifferences(const CollectConfig& in_force,
                                            const CollectConfig& wanted) {
  const auto old_settings = Settings(in_force), new_settings = Settings(wanted);
  std::vector<std::string> out;
  // The keys of the sections are compared by position: they differ in name when the task differs.
  for (size_t i = 0; i < old_settings.size(); ++i) {
    if (old_settings[i].second == new_settings[i].second) continue;
    out.push_back(fmt::format("{}: {} instead of {}", new_settings[i].first, new_settings[i].second,
                              old_settings[i].second));
  }
  return out;
}

}  // namespace msprobe::config
