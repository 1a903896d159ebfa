// Names in `scope` (dump.md 9.1).
#pragma once

#include <string_view>

namespace msprobe::config {

enum class ScopeNameKind { kApi, kModule, kNeither };

// kApi: "{prefix}.….{n}.forward|backward" with at least one part between prefix and number;
// kModule: "Module.….forward|backward.{n}". {n} is decimal.
ScopeNameKind KindOfScopeName(std::string_view name);

// Does an API name begin with a prefix that the tool itself gives, so that it cannot only come from
// register_custom_api?
bool HasBuiltInPrefix(std::string_view name);

}  // namespace msprobe::config
