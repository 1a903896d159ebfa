// Which entry went wrong first, over the ranks of one step (compare.md 19.2, 21): a bad entry
// before a collective call explains the bad entries behind it, on every rank that took part.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace msprobe::compare {

// What a communication call says about its partners. Ranks are global.
struct CommArguments {
  std::optional<int64_t> src, dst;
  std::vector<int64_t> group;  // ranks of its process group; empty: not recorded
  std::vector<int64_t> peers;  // of point-to-point operations in a batch
};

// `Distributed.all_reduce.0.forward`: true, of one of the calls of compare.md 19.2.
bool IsCommunication(std::string_view entry);
// "all_reduce" of such a name.
std::string_view CommunicationApi(std::string_view entry);
// Which end positional integer arguments of the call name, when no keyword does: `dst` of send,
// isend, send_object_list and gather, `src` of recv, irecv, recv_object_list, broadcast and
// scatter.
enum class NamedEnd : uint8_t { kNone, kSrc, kDst };
NamedEnd PositionalEnd(std::string_view api);

struct TraceEntry {
  std::string_view name;
  bool bad = false;            // the entry itself brought the fault in
  bool communication = false;  // IsCommunication(name)
  CommArguments comm;          // of communication entries
};

// The entries of one rank, in order of execution.
struct RankTrace {
  int64_t rank = 0;
  std::vector<TraceEntry> entries;
};

enum class FirstStage : uint8_t { kNone, kBefore, kDuring, kAfter };

struct FirstEntries {
  FirstStage stage = FirstStage::kNone;
  struct Place {
    size_t rank = 0, entry = 0;  // indices in the traces
  };
  std::vector<Place> places;  // ranks ascending
};

// Three stages; the first one that finds something ends the search. Before: in each rank the first
// bad entry before its first communication. During: communication calls that belong together are
// put at one level each (a level is one more than that of the calls before it on any of its ranks);
// the lowest level with something bad counts: the first bad computation before it of each rank, or
// else the bad communication calls of that level. After: in each rank the first bad entry behind
// its last communication.
FirstEntries FindFirstEntries(std::span<const RankTrace> ranks);

}  // namespace msprobe::compare
