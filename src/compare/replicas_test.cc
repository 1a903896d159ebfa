#include "compare/replicas.h"

#include <gtest/gtest.h>

#include <cmath>

#include "base/file.h"

namespace msprobe::compare {
namespace {

ReplicaLeaf Leaf(const std::string& entry, LeafClass kind, uint64_t print, double norm = 1) {
  ReplicaLeaf out;
  out.entry = entry;
  out.name = kind == LeafClass::kParameter ? "parameters.weight" : "output.0";
  out.kind = kind;
  out.form = 7;
  out.print = print;
  out.norm = norm;
  out.figures = "Norm " + std::to_string(print);
  return out;
}

void Change(ReplicaLeaf& leaf, uint64_t print) {
  leaf.print = print;
  leaf.figures = "Norm " + std::to_string(print);
}

// Ranks 0 … n-1 with one parameter, one shared result and one value of their own.
std::vector<RankLeaves> Replicas(int64_t n) {
  std::vector<RankLeaves> out;
  for (int64_t r = 0; r < n; ++r) {
    RankLeaves rank;
    rank.rank = r;
    rank.leaves = {Leaf("Module.a.Linear.forward.0", LeafClass::kParameter, 11),
                   Leaf("Module.b.Linear.forward.0", LeafClass::kParameter, 12),
                   Leaf("Module.c.Linear.forward.0", LeafClass::kParameter, 13),
                   Leaf("Functional.relu.0.forward", LeafClass::kOther,
                        static_cast<uint64_t>(100 + r), 1 + 0.1 * static_cast<double>(r)),
                   Leaf("Distributed.all_reduce.0.forward", LeafClass::kShared, 21)};
    out.push_back(std::move(rank));
  }
  return out;
}

TEST(Replicas, EqualOnesAreOneGroupWithoutAnOddOne) {
  const ReplicaReport r = FindOddRanks(Replicas(3), {});
  ASSERT_EQ(r.groups.size(), 1u);
  EXPECT_EQ(r.groups[0], (std::vector<int64_t>{0, 1, 2}));
  EXPECT_TRUE(r.odd.empty());
}

TEST(Replicas, AParameterThatOneRankHasElseIsToldFirst) {
  std::vector<RankLeaves> ranks = Replicas(4);
  Change(ranks[2].leaves[1], 99);
  Change(ranks[2].leaves[4], 98);
  const ReplicaReport r = FindOddRanks(ranks, {});
  ASSERT_EQ(r.odd.size(), 2u);
  EXPECT_EQ(r.odd[0].kind, OddKind::kParameter);
  EXPECT_EQ(r.odd[0].rank, 2);
  EXPECT_EQ(r.odd[0].entry, "Module.b.Linear.forward.0");
  EXPECT_EQ(r.odd[0].reason, "Norm 99; 3 of its 3 replicas: Norm 12");
  EXPECT_EQ(r.odd[1].kind, OddKind::kShared);
}

TEST(Replicas, OfTwoNothingSaysWhichIsRight) {
  std::vector<RankLeaves> ranks = Replicas(2);
  Change(ranks[1].leaves[4], 98);
  const ReplicaReport r = FindOddRanks(ranks, {});
  ASSERT_EQ(r.odd.size(), 1u);
  EXPECT_EQ(r.odd[0].rank, -1);
  EXPECT_EQ(r.odd[0].reason, "rank 0: Norm 21; rank 1: Norm 98");
}

// Two shards of a model, two replicas of each: the shards have no parameter in common.
TEST(Replicas, ShardsAreGroupsOfTheirOwn) {
  std::vector<RankLeaves> ranks = Replicas(4);
  for (const size_t r : {1u, 3u}) {
    for (ReplicaLeaf& leaf : ranks[r].leaves) {
      if (leaf.kind != LeafClass::kOther) leaf.print += 1000;
    }
  }
  const ReplicaReport r = FindOddRanks(ranks, {});
  ASSERT_EQ(r.groups.size(), 2u);
  EXPECT_EQ(r.groups[0], (std::vector<int64_t>{0, 2}));
  EXPECT_EQ(r.groups[1], (std::vector<int64_t>{1, 3}));
  EXPECT_TRUE(r.odd.empty());
}

TEST(Replicas, ARankThatSharesNoParameterIsAStranger) {
  std::vector<RankLeaves> ranks = Replicas(4);
  for (ReplicaLeaf& leaf : ranks[3].leaves) leaf.print += 5000;
  const ReplicaReport r = FindOddRanks(ranks, {});
  ASSERT_EQ(r.odd.size(), 1u);
  EXPECT_EQ(r.odd[0].kind, OddKind::kStranger);
  EXPECT_EQ(r.odd[0].rank, 3);
  // Whoever knows the groups gets the first parameter instead.
  const std::vector<std::vector<int64_t>> known = {{0, 1, 2, 3}};
  const ReplicaReport told = FindOddRanks(ranks, known);
  ASSERT_FALSE(told.odd.empty());
  EXPECT_EQ(told.odd[0].kind, OddKind::kParameter);
  EXPECT_EQ(told.odd[0].count, 3u);
}

TEST(Replicas, NormsFarFromTheMedianAndNanAreTold) {
  std::vector<RankLeaves> ranks = Replicas(4);
  ranks[1].leaves[3].norm = 9.8;  // the others: 1, 1.2, 1.3
  ReplicaReport r = FindOddRanks(ranks, {});
  EXPECT_TRUE(r.odd.empty());  // 9.8 < 8 * 1.3
  ranks[1].leaves[3].norm = 10.5;
  r = FindOddRanks(ranks, {});
  ASSERT_EQ(r.odd.size(), 1u);
  EXPECT_EQ(r.odd[0].kind, OddKind::kMagnitude);
  EXPECT_EQ(r.odd[0].rank, 1);
  ranks[1].leaves[3].finite = false;
  r = FindOddRanks(ranks, {});
  ASSERT_EQ(r.odd.size(), 1u);
  EXPECT_EQ(r.odd[0].kind, OddKind::kNonFinite);
}

TEST(Replicas, ACallThatOneRankLacksIsTold) {
  std::vector<RankLeaves> ranks = Replicas(3);
  ranks[0].leaves.erase(ranks[0].leaves.begin() + 3);
  const ReplicaReport r = FindOddRanks(ranks, {});
  ASSERT_EQ(r.odd.size(), 1u);
  EXPECT_EQ(r.odd[0].kind, OddKind::kMissing);
  EXPECT_EQ(r.odd[0].rank, 0);
}

TEST(Replicas, ReadsClassesOfLeavesFromADump) {
  const std::string path = testing::TempDir() + "replicas_dump.json";
  const std::string leaf =
      R"({"type": "torch.Tensor", "dtype": "torch.float32", "shape": [2], "Max": 1.0, "Min": 0.0,
          "Mean": 0.5, "Norm": 1.0, "requires_grad": false})";
  const std::string nan =
      R"({"type": "torch.Tensor", "dtype": "torch.float32", "shape": [2], "Max": NaN, "Min": NaN,
          "Mean": NaN, "Norm": NaN, "requires_grad": false})";
  auto file = AtomicFile::Create(path);
  ASSERT_TRUE(file.ok());
  ASSERT_TRUE(file->Write(R"({"task": "statistics", "level": "mix", "data": {
    "Module.fc.Linear.forward.0": {"input_args": [)" +
                          leaf + R"(], "parameters": {"weight": )" + leaf + R"(}, "output": [)" +
                          nan + R"(]},
    "Distributed.all_reduce.0.forward": {"input_args": [)" +
                          leaf + R"(], "output": [)" + leaf + R"(]}}})")
                  .ok());
  ASSERT_TRUE(file->Commit().ok());
  const Result<RankLeaves> read = ReadRankLeaves(path, 5);
  ASSERT_TRUE(read.ok()) << read.error().ToString();
  ASSERT_EQ(read->leaves.size(), 3u);
  EXPECT_EQ(read->rank, 5);
  EXPECT_EQ(read->leaves[0].name, "parameters.weight");
  EXPECT_EQ(read->leaves[0].kind, LeafClass::kParameter);
  EXPECT_EQ(read->leaves[0].norm, 1.0);
  EXPECT_EQ(read->leaves[1].kind, LeafClass::kOther);
  EXPECT_FALSE(read->leaves[1].finite);
  EXPECT_EQ(read->leaves[2].kind, LeafClass::kShared);
}

}  // namespace
}  // namespace msprobe::compare
