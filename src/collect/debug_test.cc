// Level debug (dump.md 14.3).
#include <gmock/gmock.h>

#include "collect/session_test.h"

namespace msprobe::collect {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using Change = config::CollectConfig&;

void DebugLevel(Change c) { c.level = config::Level::kDebug; }

constexpr char kLeafOfOne[] =
    R"({"type": "torch.Tensor", "dtype": "torch.float32", "shape": [1], "Max": 1.0, )"
    R"("Min": 1.0, "Mean": 1.0, "Norm": 1.0, "requires_grad": false})";

// save({"a": [tensor, 3]}, name) with a gradient slot for the tensor.
int64_t Save(Session& run, std::string_view name, std::optional<int64_t> rank = std::nullopt) {
  int64_t number = 0;
  auto entry = run->BeginDebug(name, {rank}, &number);
  if (entry == nullptr) return -1;
  const auto describe = [&](EntryBuilder& b, bool gradient) {
    b.BeginPart(Part::kWhole);
    b.OpenObject();
    b.Key("a");
    b.OpenList();
    if (gradient) {
      EXPECT_EQ(b.Slot(), 0u);
      b.Null();
    } else {
      EXPECT_EQ(b.Slot(), UINT32_MAX);  // only gradients have slots
      b.Tensor(run.one->leaf);
      b.Scalar("int", "3");
    }
    b.CloseList();
    b.CloseObject();
    b.EndPart();
    b.Commit();
  };
  describe(*entry, false);
  auto grads = run->BeginDebugGrad(name, number);
  describe(*grads, true);
  return number;
}

TEST(Debug, VariablesAndTheirGradients) {
  Session run([](Change c) {
    DebugLevel(c);
    c.task = config::Task::kTensor;
  });
  run.Start();  // nothing at this level
  EXPECT_FALSE(run->recording());
  EXPECT_FALSE(PathExists(run.config.dump_path));
  EXPECT_EQ(Save(run, "x"), 0);
  EXPECT_EQ(Save(run, "x"), 1);
  EXPECT_EQ(Save(run, "a/b"), 0);
  const auto leaf = [&](EntryBuilder& b) { b.Tensor(run.one->leaf); };
  run->DebugGrad("x", 1, 0, leaf);
  run->DebugGrad("x", 1, 1, leaf);  // no such slot
  run->DebugGrad("x", 9, 0, leaf);  // no such save
  run->EndStep();
  const std::string file = run.Path("step0/rank/debug.json");
  EXPECT_THAT(Names(file), ElementsAre("x.0.debug", "x.1.debug", "a/b.0.debug", "x_grad.1.debug",
                                       "x_grad.0.debug", "a/b_grad.0.debug"));
  EXPECT_EQ(EntryText(file, "x_grad.0.debug"), R"({"a": [null, null]})");
  EXPECT_THAT(EntryText(file, "x.1.debug"),
              HasSubstr(R"("data_name": "x.1.debug.a.0.pt"}, {"type": "int", "value": 3}]})"));
  EXPECT_THAT(EntryText(file, "x_grad.1.debug"), HasSubstr(R"({"a": [{"type": "torch.Tensor")"));
  EXPECT_THAT(EntryText(file, "x_grad.1.debug"),
              HasSubstr(R"("data_name": "x_grad.1.debug.a.0.pt"}, null]})"));
  EXPECT_TRUE(PathExists(run.Path("step0/rank/dump_tensor_data/a%2Fb.0.debug.a.0.pt")));
  const auto dump = Json(file);
  EXPECT_STREQ(dump["level"].GetString(), "debug");
  EXPECT_TRUE(dump["msprobe"]["complete"].GetBool());
  EXPECT_FALSE(PathExists(run.Path("step0/rank/dump.json")));
  EXPECT_FALSE(PathExists(run.Path("step0/rank/stack.json")));
  EXPECT_EQ(Save(run, "x"), 0);  // numbers start anew
  run->Close();
  EXPECT_THAT(Names(run.Path("step1/rank/debug.json")), ElementsAre("x.0.debug", "x_grad.0.debug"));
}

TEST(Debug, ATopLevelTensorHasNoPath) {
  Session run([](Change c) {
    DebugLevel(c);
    c.task = config::Task::kTensor;
  });
  int64_t number = 0;
  auto entry = run->BeginDebug("loss", {}, &number);
  entry->BeginPart(Part::kWhole);
  entry->Tensor(run.one->leaf);
  entry->EndPart();
  entry->Commit();
  run->EndStep();
  EXPECT_TRUE(PathExists(run.Path("step0/rank/dump_tensor_data/loss.0.debug.pt")));
}

TEST(Debug, ALaterGradientReplacesTheEarlier) {
  Session run(DebugLevel);
  Save(run, "x");
  run->DebugGrad("x", 0, 0, [&](EntryBuilder& b) { b.Null(); });
  run->DebugGrad("x", 0, 0, [&](EntryBuilder& b) { b.Tensor(run.one->leaf); });
  run->EndStep();
  EXPECT_EQ(EntryText(run.Path("step0/rank/debug.json"), "x_grad.0.debug"),
            std::string(R"({"a": [)").append(kLeafOfOne).append(", null]}"));
  EXPECT_EQ(Names(run.Path("step0/rank/debug.json")).size(), 2u);
}

TEST(Debug, StepAndRankDecide) {
  Session run([](Change c) {
    DebugLevel(c);
    c.steps = {1};
    c.ranks = {2};
  });
  EXPECT_EQ(Save(run, "x", 2), -1);
  run->EndStep();
  EXPECT_EQ(Save(run, "x", 2), 0);
  run->EndStep();
  EXPECT_EQ(Save(run, "x", 2), -1);
  EXPECT_TRUE(PathExists(run.Path("step1/rank2/debug.json")));
  Session other([](Change c) {
    DebugLevel(c);
    c.ranks = {2};
  });
  EXPECT_EQ(Save(other, "x", 1), -1);
  EXPECT_FALSE(PathExists(other.config.dump_path));
}

TEST(Debug, OtherLevelsAndTasksRecordNothing) {
  Session level;
  EXPECT_EQ(Save(level, "x"), -1);
  Session task([](Change c) {
    DebugLevel(c);
    c.task = config::Task::kStructure;
  });
  EXPECT_EQ(Save(task, "x"), -1);
}

TEST(Debug, AFolderThatCannotBeIsOneLineAndNothingElse) {
  Session run(DebugLevel);
  WriteFile(run.config.dump_path, "in the way");
  EXPECT_EQ(Save(run, "x"), -1);
  EXPECT_EQ(Save(run, "x"), -1);
  EXPECT_EQ(run.log.Count(LogLevel::kError, ""), 1u);
  EXPECT_EQ(run.log.Count(LogLevel::kError, "step 0 is not collected"), 1u);
}

}  // namespace
}  // namespace msprobe::collect
