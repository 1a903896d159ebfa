// The words of config.json and what they mean; one table each, used for reading and for printing.
#pragma once

#include <optional>
#include <string_view>
#include <utility>

#include "config/collect_config.h"

namespace msprobe::config {

inline constexpr std::pair<std::string_view, Task> kTaskWords[] = {
    {"statistics", Task::kStatistics},        {"tensor", Task::kTensor},
    {"structure", Task::kStructure},          {"nan_check", Task::kNanCheck},
    {"overflow_check", Task::kOverflowCheck},
};
inline constexpr std::pair<std::string_view, Level> kLevelWords[] = {
    {"L0", Level::kL0}, {"L1", Level::kL1}, {"mix", Level::kMix}, {"debug", Level::kDebug}};
inline constexpr std::pair<std::string_view, SummaryMode> kSummaryModeWords[] = {
    {"statistics", SummaryMode::kStatistics},
    {"md5", SummaryMode::kMd5},
    {"xor", SummaryMode::kXor},
    {"hash64", SummaryMode::kHash64}};
// nullopt: the sketch, beside statistics or a checksum.
inline constexpr std::pair<std::string_view, std::optional<SummaryMode>> kSummaryWords[] = {
    {"statistics", SummaryMode::kStatistics},
    {"md5", SummaryMode::kMd5},
    {"xor", SummaryMode::kXor},
    {"hash64", SummaryMode::kHash64},
    {"sketch", std::nullopt}};
inline constexpr std::pair<std::string_view, RiskLevel> kRiskLevelWords[] = {
    {"CORE", RiskLevel::kCore},
    {"FOCUS", RiskLevel::kFocus},
    {"ALL", RiskLevel::kAll},
    {"EVERY", RiskLevel::kEvery}};
inline constexpr std::pair<std::string_view, Overwrite> kOverwriteWords[] = {
    {"keep", Overwrite::kKeep}, {"replace", Overwrite::kReplace}, {"refuse", Overwrite::kRefuse}};
inline constexpr std::pair<std::string_view, bool> kPrecisionWords[] = {{"low", false},
                                                                        {"high", true}};
inline constexpr std::pair<std::string_view, bool> kCompiledWords[] = {{"eager", false},
                                                                       {"leaf", true}};
inline constexpr std::pair<std::string_view, bool> kReuseWords[] = {{"off", false},
                                                                    {"version", true}};

inline constexpr std::pair<std::string_view, Evidence> kEvidenceWords[] = {
    {"none", Evidence::kNone}, {"light", Evidence::kLight}, {"full", Evidence::kFull}};
inline constexpr std::pair<std::string_view, BackwardLayout> kBackwardLayoutWords[] = {
    {"node", BackwardLayout::kNode}, {"arguments", BackwardLayout::kArguments}};
inline constexpr std::pair<std::string_view, DeviceStatistics> kDeviceStatisticsWords[] = {
    {"device", DeviceStatistics::kDevice},
    {"host", DeviceStatistics::kHost},
    {"force", DeviceStatistics::kForce}};

template <class Enum, size_t N>
std::string_view WordOf(const std::pair<std::string_view, Enum> (&words)[N], Enum value) {
  for (const auto& [word, e] : words) {
    if (e == value) return word;
  }
  return {};
}

}  // namespace msprobe::config
