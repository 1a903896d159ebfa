#include "compare/first_difference.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>

#include "base/text.h"
#include "compare/judge.h"
#include "compare/statistics.h"

namespace msprobe::compare {
namespace {

constexpr double kLimit = 0.005;  // compare.md 19.1: 0.5 %

std::string CellText(const CellValue& cell) {
  switch (cell.kind()) {
    case CellValue::Kind::kBool:
      return cell.as_bool() ? "True" : "False";
    case CellValue::Kind::kInt:
      return fmt::format("{}", cell.as_int());
    case CellValue::Kind::kDouble:
      return PyFloatRepr(cell.as_double());
    case CellValue::Kind::kText:
    case CellValue::Kind::kBigInt:
      return std::string(cell.text().substr(0, 80));
    case CellValue::Kind::kNone:
      return "None";
    case CellValue::Kind::kUnknown:
      break;
  }
  return "N/A";
}

bool Differ(const CellValue& target, const CellValue& golden) {
  double t = 0, g = 0;
  const CellClass a = ClassOf(target, t), b = ClassOf(golden, g);
  if (a != b) return true;
  switch (a) {
    case CellClass::kNumber:
      return g == 0 ? t != 0 : std::abs((t - g) / g) > kLimit;
    case CellClass::kNan:
    case CellClass::kInf:
    case CellClass::kNegInf:
    case CellClass::kDevice:
    case CellClass::kNotAvailable:
      return false;
    case CellClass::kOther:
      return !SameText(target, golden);
  }
  return false;
}

// Empty when the recorded statistics agree.
std::string StatisticsReason(const Leaf& target, const Leaf& golden) {
  struct Pair {
    std::string_view name;
    const CellValue& t;
    const CellValue& g;
  };
  for (const Pair& p :
       {Pair{"max", target.max, golden.max}, Pair{"min", target.min, golden.min},
        Pair{"mean", target.mean, golden.mean}, Pair{"l2norm", target.norm, golden.norm}}) {
    if (Differ(p.t, p.g)) {
      return fmt::format("{} {} against {}", p.name, CellText(p.t), CellText(p.g));
    }
  }
  return {};
}

std::string TensorReason(const Row& row) {
  if (row.gate == Gate::kShapes) {
    return fmt::format("shape {} against {}", row.target->shape, row.golden->shape);
  }
  if (row.gate == Gate::kNonFinitePositions || row.class_differs) {
    return "NaN or infinity at other positions or of other sign";
  }
  if (row.gate == Gate::kCompared && row.relative_l2 > kLimit) {
    return fmt::format("elements off by {:.3g} of the golden norm", row.relative_l2);
  }
  return {};
}

bool IsCompared(const Row& row) {
  return row.golden != nullptr && row.gate != Gate::kDTypes && row.gate != Gate::kChecksumKinds;
}

std::string ReasonOf(const Row& row, Mode mode) {
  if (mode == Mode::kMd5) {
    return row.target->md5 == row.golden->md5
               ? std::string()
               : fmt::format("checksum {} against {}", row.target->md5, row.golden->md5);
  }
  std::string reason = StatisticsReason(*row.target, *row.golden);
  if (reason.empty() && mode == Mode::kTensor) reason = TensorReason(row);
  return reason;
}

// The third component from the end: the API or class of `Torch.add.0.forward`.
std::string_view ThirdLast(std::string_view name) {
  size_t end = name.size(), begin = 0;
  for (int i = 0; i < 3; ++i) {
    const size_t dot = end == 0 ? std::string_view::npos : name.rfind('.', end - 1);
    begin = dot == std::string_view::npos ? 0 : dot + 1;
    if (i == 2 || dot == std::string_view::npos) break;
    end = dot;
  }
  return name.substr(begin, end - begin);
}

bool IsIgnoredOutput(std::string_view entry, size_t output) {
  return (output == 4 || output == 5) && ThirdLast(entry) == "npu_fusion_attention";
}

bool IsIgnoredEntry(std::string_view name, Face face) {
  constexpr std::array<std::string_view, 3> kBoth = {"Torch.empty", "Torch.fill",
                                                     "Tensor.__setitem__"};
  constexpr std::array<std::string_view, 2> kOld = {"parameters_grad", "Tensor.to"};
  const auto holds = [&](std::string_view part) {
    return name.find(part) != std::string_view::npos;
  };
  return std::any_of(kBoth.begin(), kBoth.end(), holds) ||
         (face == Face::kOld && std::any_of(kOld.begin(), kOld.end(), holds));
}

// The integers of a text like "[0, 1]" or "3".
void AddIntegers(std::string_view text, std::vector<int64_t>& out) {
  const char* at = text.data();
  const char* end = at + text.size();
  while (at < end) {
    int64_t number = 0;
    const auto [next, error] = std::from_chars(at, end, number);
    if (error == std::errc()) out.push_back(number);
    at = error == std::errc() ? next : at + 1;
  }
}

std::string_view LastComponent(std::string_view name) {
  const size_t dot = name.rfind('.');
  return dot == std::string_view::npos ? name : name.substr(dot + 1);
}

CommArguments ArgumentsOf(const std::vector<Row>& rows, const EntryDifference& entry) {
  CommArguments out;
  std::optional<int64_t> first_integer, group_src, group_dst;
  for (size_t i = entry.first; i < entry.last; ++i) {
    const Leaf& leaf = *rows[i].target;
    if (!leaf.more->p2p_peer.empty()) AddIntegers(leaf.more->p2p_peer, out.peers);
    if (leaf.state != State::kInput) continue;
    const std::string_view last = LastComponent(leaf.name);
    if (leaf.max.kind() == CellValue::Kind::kText && last == "group") {
      AddIntegers(leaf.max.text(), out.group);
    }
    if (leaf.is_tensor || leaf.max.kind() != CellValue::Kind::kInt) continue;
    if (last == "src") out.src = leaf.max.as_int();
    if (last == "dst") out.dst = leaf.max.as_int();
    if (last == "group_src" || last == "src_group") group_src = leaf.max.as_int();
    if (last == "group_dst" || last == "dst_group") group_dst = leaf.max.as_int();
    if (!first_integer) first_integer = leaf.max.as_int();
  }
  const auto of_group = [&](int64_t place) {
    return place >= 0 && static_cast<size_t>(place) < out.group.size()
               ? out.group[static_cast<size_t>(place)]
               : place;
  };
  if (!out.src && group_src) out.src = of_group(*group_src);
  if (!out.dst && group_dst) out.dst = of_group(*group_dst);
  if (out.src || out.dst || !first_integer) return out;
  const NamedEnd named = PositionalEnd(CommunicationApi(entry.name));
  if (named == NamedEnd::kSrc) out.src = first_integer;
  if (named == NamedEnd::kDst) out.dst = first_integer;
  return out;
}

}  // namespace

std::vector<EntryDifference> FindDifferences(const Comparison& comparison) {
  std::vector<EntryDifference> out;
  const std::vector<Row>& rows = comparison.rows;
  for (const RowGroup& group : GroupRows(rows)) {
    EntryDifference entry;
    entry.name = comparison.EntryName(*rows[group.first].target, false);
    entry.first = group.first;
    entry.last = group.last;
    size_t output = 0;
    for (size_t i = group.first; i < group.last; ++i) {
      const Row& row = rows[i];
      if (row.target->state != State::kOutput || IsIgnoredOutput(entry.name, output++)) continue;
      if (!IsCompared(row)) continue;
      entry.compared = true;
      if (!entry.same) continue;
      const std::string reason = ReasonOf(row, comparison.mode);
      if (reason.empty()) continue;
      entry.same = false;
      entry.row = i;
      entry.reason = fmt::format("{}: {}", row.target->name, reason);
    }
    out.push_back(std::move(entry));
  }
  return out;
}

RankTrace TraceOf(const Comparison& comparison, const std::vector<EntryDifference>& entries,
                  int64_t rank, Face face) {
  RankTrace out;
  out.rank = rank;
  out.entries.reserve(entries.size());
  for (const EntryDifference& entry : entries) {
    TraceEntry trace;
    trace.name = entry.name;
    trace.communication = IsCommunication(entry.name);
    trace.bad = !entry.same && !IsIgnoredEntry(entry.name, face);
    if (trace.communication) trace.comm = ArgumentsOf(comparison.rows, entry);
    out.entries.push_back(std::move(trace));
  }
  return out;
}

}  // namespace msprobe::compare
