#include "compare/overflow.h"

#include <fmt/format.h>

#include <array>
#include <cmath>

#include "base/text.h"
#include "dump/reader.h"

namespace msprobe::compare {
namespace {

using json::Value;

constexpr int kMaxDepth = 1000;

bool IsNonFiniteValue(const Value& value, double& out) {
  if (value.type() == Value::Type::kDouble) {
    out = value.as_double();
  } else if (!value.is_string() || !ParsePyFloat(value.as_string(), out)) {
    return false;
  }
  return !std::isfinite(out);
}

// The first leaf at or below `value` with a NaN or infinity, as "path has Max inf"; empty when
// there is none.
std::string FindBad(const Value& value, const std::string& path, int depth = 0) {
  if (depth > kMaxDepth) return {};
  if (value.is_array()) {
    for (size_t i = 0; i < value.size(); ++i) {
      if (!value[i].is_array() && !value[i].is_object()) continue;
      std::string bad = FindBad(value[i], fmt::format("{}.{}", path, i), depth + 1);
      if (!bad.empty()) return bad;
    }
    return {};
  }
  if (!value.is_object()) return {};
  for (const std::string_view key : {"Max", "Min"}) {
    const Value* found = value.Find(key);
    double number = 0;
    if (found != nullptr && IsNonFiniteValue(*found, number)) {
      return fmt::format("{} has {} {}", path, key, PyFloatRepr(number));
    }
  }
  for (auto m = value.members_begin(); m != value.members_end(); ++m) {
    if (!m->value.is_array() && !m->value.is_object()) continue;
    std::string bad = FindBad(m->value, path + "." + std::string(m->key), depth + 1);
    if (!bad.empty()) return bad;
  }
  return {};
}

void AddRanks(const Value& value, std::vector<int64_t>& out) {
  if (value.is_int()) out.push_back(value.as_int());
  if (!value.is_array()) return;
  for (const Value& item : value) {
    if (item.is_int()) out.push_back(item.as_int());
  }
}

// An integer argument: as itself, or as a leaf {"type": "int", "value": 3} (older: Max).
std::optional<int64_t> IntOf(const Value& value) {
  if (value.is_int()) return value.as_int();
  if (!value.is_object()) return std::nullopt;
  const Value* type = value.Find("type");
  if (type == nullptr || !type->is_string() || type->as_string() != "int") return std::nullopt;
  for (const std::string_view key : {"value", "Max"}) {
    if (const Value* number = value.Find(key); number != nullptr && number->is_int()) {
      return number->as_int();
    }
  }
  return std::nullopt;
}

// Process groups and point-to-point operations anywhere in the arguments.
void FindGroups(const Value& value, CommArguments& out, int depth = 0) {
  if (depth > kMaxDepth) return;
  if (value.is_array()) {
    for (const Value& item : value) FindGroups(item, out, depth + 1);
    return;
  }
  if (!value.is_object()) return;
  if (const Value* ranks = value.Find("group_ranks")) AddRanks(*ranks, out.group);
  if (const Value* peer = value.Find("peer")) AddRanks(*peer, out.peers);
  for (auto m = value.members_begin(); m != value.members_end(); ++m) {
    if (m->key != "group_ranks") FindGroups(m->value, out, depth + 1);
  }
}

// `src` and `dst` are ranks of the world, the others places in the group.
void ReadEnds(const Value& kwargs, CommArguments& out) {
  struct EndKey {
    std::string_view key;
    std::optional<int64_t>* end;
    bool in_group;
  };
  for (const EndKey& k :
       {EndKey{"dst", &out.dst, false}, EndKey{"group_dst", &out.dst, true},
        EndKey{"dst_group", &out.dst, true}, EndKey{"src", &out.src, false},
        EndKey{"group_src", &out.src, true}, EndKey{"src_group", &out.src, true}}) {
    const Value* value = kwargs.Find(k.key);
    if (value == nullptr || *k.end) continue;
    std::optional<int64_t> rank = IntOf(*value);
    if (rank && k.in_group && *rank >= 0 && static_cast<size_t>(*rank) < out.group.size()) {
      rank = out.group[static_cast<size_t>(*rank)];
    }
    *k.end = rank;
  }
}

CommArguments ReadArguments(std::string_view name, const Value& entry) {
  CommArguments out;
  const Value* args = entry.Find("input_args");
  const Value* kwargs = entry.Find("input_kwargs");
  if (args != nullptr) FindGroups(*args, out);
  if (kwargs != nullptr) {
    FindGroups(*kwargs, out);
    ReadEnds(*kwargs, out);
  }
  const NamedEnd named = PositionalEnd(CommunicationApi(name));
  if (out.src || out.dst || named == NamedEnd::kNone || args == nullptr || !args->is_array()) {
    return out;
  }
  for (const Value& value : *args) {
    const std::optional<int64_t> number = IntOf(value);
    if (!number) continue;
    (named == NamedEnd::kSrc ? out.src : out.dst) = number;
    break;
  }
  return out;
}

std::string DataInfo(std::string_view name, const Value& entry) {
  std::string text;
  json::Writer w(text);
  const bool forward = name.find("forward") != std::string_view::npos;
  w.StartObject();
  const auto copy = [&](std::string_view key) {
    const Value* value = entry.Find(key);
    w.Key(key);
    if (value == nullptr) {
      w.Null();
    } else {
      w.Copy(*value);
    }
  };
  if (forward) {
    copy("input_args");
    copy("input_kwargs");
  } else {
    copy("input");
  }
  copy("output");
  w.EndObject();
  return text;
}

bool IsUninitialised(std::string_view name) {
  return name.find("Torch.empty") != std::string_view::npos ||
         name.find("Torch.fill") != std::string_view::npos;
}

}  // namespace

Result<OverflowRank> ReadOverflow(const std::string& dump_json) {
  OverflowRank out;
  const auto add = [&](std::string_view name, const Value& value) {
    OverflowEntry entry;
    entry.communication = IsCommunication(name);
    std::string bad_input;
    for (const std::string_view key : {"input", "input_args", "input_kwargs"}) {
      const Value* part = value.Find(key);
      if (part == nullptr || !bad_input.empty()) continue;
      bad_input = FindBad(*part, key == "input_args" ? "input" : std::string(key));
    }
    std::string bad_output;
    if (const Value* output = value.Find("output")) bad_output = FindBad(*output, "output");
    if (bad_input.empty() && bad_output.empty() && !entry.communication) return true;
    entry.name = name;
    entry.bad_input = !bad_input.empty();
    entry.bad_output = !bad_output.empty() && !IsUninitialised(name);
    entry.reason = entry.bad_input ? std::move(bad_input) : std::move(bad_output);
    if (entry.communication) entry.comm = ReadArguments(name, value);
    if (entry.IsSource()) entry.data_info = DataInfo(name, value);
    if (entry.bad_input || entry.bad_output || entry.communication) {
      out.entries.push_back(std::move(entry));
    }
    return true;
  };
  MSPROBE_ASSIGN(const dump::ReadInfo info, dump::ReadDump(dump_json, add));
  out.framework = info.header.framework;
  out.total = info.entries;
  out.torn = info.torn;
  return out;
}

}  // namespace msprobe::compare
