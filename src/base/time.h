// Time stamps in names of outputs.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.h"

namespace msprobe {

std::string LocalTimestamp(int64_t unix_seconds);  // YYYYMMDDhhmmss, local time zone
int64_t UnixSeconds();
int64_t UnixNanoseconds();
double MonotonicSeconds();
std::string IsoUtc(int64_t unix_seconds);  // 2026-11-30T18:33:16Z

// The first second >= `unix_seconds` for which no path of `dir` + "/" + pattern exists, where each
// pattern holds "{ts}" for the time stamp (decisions.md 5: stamps move on, names keep their
// pattern). No other thread of this process, and no other process of this machine, is given the
// same second for the folder while this process lives (or asks for 16 others).
int64_t FreeTimestamp(const std::string& dir, std::initializer_list<std::string_view> patterns,
                      int64_t unix_seconds);

}  // namespace msprobe
