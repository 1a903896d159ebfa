// Which entry comes first over ranks: hand-made timelines, the answers by hand.
#include "compare/communication.h"

#include <gtest/gtest.h>

namespace msprobe::compare {
namespace {

using Places = std::vector<std::pair<size_t, size_t>>;

TraceEntry Compute(std::string_view name, bool bad = false) {
  TraceEntry out;
  out.name = name;
  out.bad = bad;
  return out;
}

TraceEntry Call(std::string_view name, std::vector<int64_t> group = {}, bool bad = false) {
  TraceEntry out = Compute(name, bad);
  out.communication = true;
  out.comm.group = std::move(group);
  return out;
}

TraceEntry SendTo(std::string_view name, int64_t dst) {
  TraceEntry out = Call(name);
  out.comm.dst = dst;
  return out;
}

TraceEntry RecvFrom(std::string_view name, int64_t src) {
  TraceEntry out = Call(name);
  out.comm.src = src;
  return out;
}

Places PlacesOf(const FirstEntries& found) {
  Places out;
  for (const FirstEntries::Place& p : found.places) out.emplace_back(p.rank, p.entry);
  return out;
}

TEST(Communication, NamesOfCallsAreTold) {
  EXPECT_TRUE(IsCommunication("Distributed.all_reduce.0.forward"));
  EXPECT_TRUE(IsCommunication("Distributed._reduce_scatter_base.0.forward"));
  EXPECT_TRUE(IsCommunication("Distributed.batch_isend_irecv.0.forward"));
  EXPECT_FALSE(IsCommunication("Distributed.barrier.0.forward"));
  EXPECT_FALSE(IsCommunication("Torch.all_reduce.0.forward"));
  EXPECT_EQ(CommunicationApi("Distributed.all_reduce.0.forward"), "all_reduce");
  EXPECT_EQ(PositionalEnd("broadcast"), NamedEnd::kSrc);
  EXPECT_EQ(PositionalEnd("gather"), NamedEnd::kDst);
  EXPECT_EQ(PositionalEnd("all_reduce"), NamedEnd::kNone);
}

TEST(Communication, NothingBadNothingFound) {
  const RankTrace ranks[] = {{0, {Compute("a"), Call("Distributed.all_reduce.0.forward")}}};
  const FirstEntries found = FindFirstEntries(ranks);
  EXPECT_EQ(found.stage, FirstStage::kNone);
  EXPECT_TRUE(found.places.empty());
  EXPECT_EQ(FindFirstEntries({}).stage, FirstStage::kNone);
}

// Every rank that is bad before its first communication is named, and only its first entry.
TEST(Communication, BeforeTheFirstCallAllRanksAreNamed) {
  const RankTrace ranks[] = {
      {0, {Compute("a", true), Compute("b", true), Call("Distributed.all_reduce.0.forward")}},
      {1, {Compute("a"), Call("Distributed.all_reduce.0.forward"), Compute("c", true)}},
      {2, {Compute("a"), Compute("b", true)}}};
  const FirstEntries found = FindFirstEntries(ranks);
  EXPECT_EQ(found.stage, FirstStage::kBefore);
  EXPECT_EQ(PlacesOf(found), (Places{{0, 0}, {2, 1}}));
}

// Rank 0 is wrong at its own 3rd call, rank 1 already at its 2nd: the calls of both belong together
// two by two, so rank 1 is earlier although its entry stands later in its file.
TEST(Communication, LevelsAreSharedByCallsThatBelongTogether) {
  const RankTrace ranks[] = {
      {0,
       {Call("Distributed.all_reduce.0.forward", {0, 1}),
        Call("Distributed.all_reduce.1.forward", {0, 1}), Compute("x", true),
        Call("Distributed.all_reduce.2.forward", {0, 1})}},
      {1,
       {Call("Distributed.all_reduce.0.forward", {0, 1}), Compute("p"), Compute("q"), Compute("r"),
        Compute("y", true), Call("Distributed.all_reduce.1.forward", {0, 1}),
        Call("Distributed.all_reduce.2.forward", {0, 1})}}};
  const FirstEntries found = FindFirstEntries(ranks);
  EXPECT_EQ(found.stage, FirstStage::kDuring);
  EXPECT_EQ(PlacesOf(found), (Places{{1, 4}}));
}

// D32: the nodes of the other ranks at the same level are looked at too.
TEST(Communication, AllRanksOfALevelAreNamed) {
  const RankTrace ranks[] = {{0,
                              {Call("Distributed.all_reduce.0.forward", {0, 1}), Compute("x", true),
                               Call("Distributed.all_reduce.1.forward", {0, 1})}},
                             {1,
                              {Call("Distributed.all_reduce.0.forward", {0, 1}), Compute("y", true),
                               Call("Distributed.all_reduce.1.forward", {0, 1})}}};
  EXPECT_EQ(PlacesOf(FindFirstEntries(ranks)), (Places{{0, 1}, {1, 1}}));
}

// A pipeline: what rank 1 computes wrongly comes after it received, and rank 2 receives from it.
// Without the pairs of send and recv, rank 2's own bad call (its first communication) would win.
TEST(Communication, SendsMeetTheirReceives) {
  const RankTrace ranks[] = {{0, {SendTo("Distributed.send.0.forward", 1)}},
                             {1,
                              {RecvFrom("Distributed.recv.0.forward", 0), Compute("y", true),
                               SendTo("Distributed.send.0.forward", 2)}},
                             {2,
                              {RecvFrom("Distributed.recv.0.forward", 1), Compute("z", true),
                               SendTo("Distributed.send.0.forward", 3)}}};
  const FirstEntries found = FindFirstEntries(ranks);
  EXPECT_EQ(found.stage, FirstStage::kDuring);
  EXPECT_EQ(PlacesOf(found), (Places{{1, 1}}));
}

// Two groups share both ranks; the calls of one group do not meet those of the other.
TEST(Communication, GroupsAreKeptApart) {
  const RankTrace ranks[] = {
      {0,
       {Call("Distributed.all_reduce.0.forward", {0, 1}),
        Call("Distributed.all_reduce.1.forward", {0, 1, 2}), Compute("x", true),
        Call("Distributed.all_reduce.2.forward", {0, 1})}},
      {1,
       {Call("Distributed.all_reduce.0.forward", {0, 1}),
        Call("Distributed.all_reduce.1.forward", {0, 1, 2}),
        Call("Distributed.all_reduce.2.forward", {0, 1})}},
      {2, {Call("Distributed.all_reduce.0.forward", {0, 1, 2}), Compute("z"), Compute("w", true)}}};
  EXPECT_EQ(PlacesOf(FindFirstEntries(ranks)), (Places{{0, 2}}));
}

// No computation is to blame: the call itself is.
TEST(Communication, ABadCallIsFound) {
  const RankTrace ranks[] = {{0, {Call("Distributed.all_reduce.0.forward", {0, 1}, true)}},
                             {1, {Call("Distributed.all_reduce.0.forward", {0, 1})}}};
  const FirstEntries found = FindFirstEntries(ranks);
  EXPECT_EQ(found.stage, FirstStage::kDuring);
  EXPECT_EQ(PlacesOf(found), (Places{{0, 0}}));
}

TEST(Communication, BehindTheLastCall) {
  const RankTrace ranks[] = {
      {0, {Call("Distributed.all_reduce.0.forward"), Compute("a"), Compute("b", true)}},
      {1, {Call("Distributed.all_reduce.0.forward"), Compute("a", true)}}};
  const FirstEntries found = FindFirstEntries(ranks);
  EXPECT_EQ(found.stage, FirstStage::kAfter);
  EXPECT_EQ(PlacesOf(found), (Places{{0, 2}, {1, 1}}));
}

// Two calls in crossed order on two ranks: no order exists, and still every call gets a level.
TEST(Communication, CrossedCallsEnd) {
  const RankTrace ranks[] = {
      {0,
       {Call("Distributed.all_gather.0.forward"), Compute("x", true),
        Call("Distributed.all_reduce.0.forward")}},
      {1, {Call("Distributed.all_reduce.0.forward"), Call("Distributed.all_gather.0.forward")}}};
  EXPECT_EQ(PlacesOf(FindFirstEntries(ranks)), (Places{{0, 1}}));
}

}  // namespace
}  // namespace msprobe::compare
