// Rule 3: results of another floating type.
#include <fmt/format.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/text.h"
#include "culprit/judge.h"

namespace msprobe::culprit {

namespace {

// The results of calls whose tensors have the same types on both sides: of another type, or not.
enum class Types : uint8_t { kOtherInputs, kSameResult, kOtherResult };

struct TypePair {
  Types types = Types::kOtherInputs;
  const Leaf* result = nullptr;  // of another type
  const Leaf* input = nullptr;   // of another type, the first
};

TypePair TypesOf(const Run& target, uint32_t t, const Run& golden, uint32_t g) {
  const Entry& e = target.entries[t];
  bool any = false;
  TypePair out;
  for (uint32_t i = e.first; i < e.first + e.count; ++i) {
    const Leaf& a = target.leaves[i];
    if (a.kind != LeafKind::kTensor || !a.floating || a.role == Role::kMutated) continue;
    const Leaf* b = golden.FindLeaf(g, a.role, a.name);
    if (b == nullptr || b->kind != LeafKind::kTensor) return {};
    const Leaf*& other = a.role == Role::kOutput ? out.result : out.input;
    any = any || a.role == Role::kOutput;
    if (a.dtype != b->dtype && other == nullptr) other = &a;
  }
  if (!any || out.input != nullptr) return out;
  out.types = out.result != nullptr ? Types::kOtherResult : Types::kSameResult;
  return out;
}

// Rule 3: the call of a cast that made this input and that the other run does not make; kNowhere:
// something else made it.
uint32_t CastWithoutPartner(const Run& run, const std::vector<Producer>& makers,
                            const std::vector<uint32_t>& partner) {
  if (makers.empty()) return kNowhere;
  const uint32_t maker = makers.front().entry;
  const bool alone = run.entries[maker].kind == Kind::kApiForward && partner[maker] == kNowhere;
  return alone && IsCast(run.entries[maker]) ? maker : kNowhere;
}

}  // namespace

// Rule 3: a result of another type though the inputs' types agree, or because of a cast that one
// run makes alone, where most calls of this API have results of the same type: one layer outside
// autocast, or inside. A run of which every such call differs is a run in another precision.
void Judge::Precision(Pair p, std::vector<Finding>& found) {
  const Entry& e = case_.target.entries[p.t];
  const TypePair types = TypesOf(case_.target, p.t, case_.golden, p.g);
  if (types.result == nullptr) return;
  std::string why = "from inputs of the same types";
  if (types.input != nullptr) {
    const Leaf* g = case_.golden.FindLeaf(p.g, types.input->role, types.input->name);
    const uint32_t extra = CastWithoutPartner(
        case_.target, case_.target_sources.Of(p.t, *types.input), case_.alignment.of_target);
    const uint32_t missing = CastWithoutPartner(case_.golden, case_.golden_sources.Of(p.g, *g),
                                                case_.alignment.of_golden);
    if ((extra == kNowhere) == (missing == kNowhere)) return;
    why = extra != kNowhere ? fmt::format("because of {}, which the golden run does not call",
                                          VisibleText(case_.target.entries[extra].name))
                            : fmt::format("because of {}, which only the golden run calls",
                                          VisibleText(case_.golden.entries[missing].name));
  }
  if (TypeBalanceOf(e.api) <= 0) return;
  const Leaf* t = types.result;
  const Leaf* g = case_.golden.FindLeaf(p.g, t->role, t->name);
  Finding f = Make(FindingKind::kArgument, p, t->name, 3);
  f.sentence = fmt::format(
      "{}{} returned {} of type {}, the golden run of type {}, {}; most other calls of {} agree: "
      "was autocast on in one run only?",
      VisibleText(e.name), Where(f), t->name, VisibleText(t->dtype), VisibleText(g->dtype), why,
      VisibleText(e.api));
  f.reason_key = "type of the result";
  found.push_back(std::move(f));
}

int64_t Judge::TypeBalanceOf(std::string_view api) {
  if (same_result_.empty()) {
    for (uint32_t i = 0; i < case_.target.entries.size(); ++i) {
      const Entry& other = case_.target.entries[i];
      const uint32_t partner = case_.alignment.of_target[i];
      if (partner == kNowhere || other.kind != Kind::kApiForward) continue;
      const Types types = TypesOf(case_.target, i, case_.golden, partner).types;
      int64_t& balance = same_result_[other.api];
      balance += types == Types::kSameResult ? 1 : types == Types::kOtherResult ? -1 : 0;
    }
  }
  return same_result_[api];
}

}  // namespace msprobe::culprit
