// Life cycle, numbering, filters, hierarchy, stacks, folders (dump.md 5-10, 14; decisions.md 8-11,
// 16, 20).
#include <fcntl.h>
#include <gmock/gmock.h>
#include <sys/file.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <thread>

#include "collect/test_support.h"

namespace msprobe::collect {
namespace {

using config::Level;
using config::Overwrite;
using config::RiskLevel;
using config::Task;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::UnorderedElementsAre;
using Change = config::CollectConfig&;

// ---- files of a step
// -------------------------------------------------------------------------------

TEST(Step, HeaderIsThereFromTheStartAndFooterAtTheEnd) {
  Session run([](Change c) { c.level = Level::kMix; });
  run.Start();
  const std::string folder = run.Path("step0/rank");
  EXPECT_EQ(run->rank_dir(), folder);
  EXPECT_TRUE(run->recording());
  EXPECT_EQ(ReadFile(run.dump()),
            "{\n \"task\": \"statistics\",\n \"level\": \"mix\",\n \"framework\": \"pytorch\",\n"
            " \"dump_data_dir\": null,\n \"data\": {}\n}");
  EXPECT_EQ(ReadFile(JoinPath(folder, "stack.json")), "{}");
  EXPECT_EQ(ReadFile(JoinPath(folder, "construct.json")), "{}");
  run->SetEnvironment({"2.13.0", "3.11.2", 8});
  run.Call("Torch", "relu");
  run->Stop();
  EXPECT_FALSE(Json(run.dump()).HasMember("msprobe"));
  run->EndStep();
  const auto dump = Json(run.dump());
  const auto& footer = dump["msprobe"];
  EXPECT_EQ(footer["format_version"].GetInt(), 1);
  EXPECT_FALSE(std::string(footer["tool_version"].GetString()).empty());
  EXPECT_STREQ(footer["torch_version"].GetString(), "2.13.0");
  EXPECT_STREQ(footer["python_version"].GetString(), "3.11.2");
  EXPECT_EQ(footer["world_size"].GetInt(), 8);
  EXPECT_EQ(footer["step"].GetInt(), 0);
  EXPECT_TRUE(footer["rank"].IsNull());
  EXPECT_STREQ(footer["config"]["level"].GetString(), "mix");
  EXPECT_EQ(footer["counts"]["written"].GetInt(), 1);
  EXPECT_TRUE(footer["complete"].GetBool());
  EXPECT_EQ((dump.MemberEnd() - 1)->name, "msprobe");
}

TEST(Step, StopAndStartContinueNumbersAndFilesStepStartsAnew) {
  Session run;
  run.Start();
  run.Call("Torch", "relu");
  run->Stop();
  EXPECT_FALSE(run->recording());
  EXPECT_FALSE(run.Call("Torch", "relu"));  // switched off: neither recorded nor counted
  EXPECT_THAT(Names(run.dump()), ElementsAre("Torch.relu.0.forward"));
  run.Start();
  run.Call("Torch", "relu");
  run->Stop();
  EXPECT_THAT(Names(run.dump()), ElementsAre("Torch.relu.0.forward", "Torch.relu.1.forward"));
  const uint64_t epoch = run->epoch();
  run->EndStep();
  EXPECT_GT(run->epoch(), epoch);
  EXPECT_EQ(run->step(), 1);
  run.Start();
  run.Call("Torch", "relu");
  run->Close();
  EXPECT_THAT(Names(run.dump("step1/rank")), ElementsAre("Torch.relu.0.forward"));
  EXPECT_THAT(Names(run.dump()), ElementsAre("Torch.relu.0.forward", "Torch.relu.1.forward"));
  EXPECT_TRUE(Json(run.dump("step1/rank"))["msprobe"]["complete"].GetBool());
}

TEST(Step, ClosingLineCounts) {
  Session run;
  run.Start();
  run.Call("Torch", "relu");
  run.Call("Torch", "reshape", Risk::kLow);
  run->ReportFailure("hook", "first");
  run->ReportFailure("hook", "second");
  run->EndStep();
  uint64_t bytes = 0;
  for (const auto& item : std::filesystem::directory_iterator(run.Path("step0/rank")))
    bytes += item.file_size();
  EXPECT_EQ(run.log.Count(LogLevel::kInfo, "step 0: written 1, filtered 1, failed 2, bytes " +
                                               std::to_string(bytes) + ", path " +
                                               run.Path("step0/rank")),
            1u)
      << run.log.All();
  EXPECT_EQ(run.log.Count(LogLevel::kWarning, "hook: first"), 1u);
  EXPECT_EQ(run.log.Count(LogLevel::kWarning, "second"), 0u);
}

TEST(Step, BackwardAfterStopIsKeptUntilStep) {
  Session run([](Change c) { c.level = Level::kMix; });
  run.Start();
  run.Module("fc", "Linear", [&] { run.Call("Functional", "linear"); });
  run->Stop();
  EXPECT_TRUE(run.Backward("Functional", "linear", 0));
  auto entry = run->BeginModuleBackward(run->RegisterModule("fc", "Linear"), 0);
  ASSERT_NE(entry, nullptr);
  run.Describe(*entry, {Part::kInput, Part::kOutput});
  entry->Commit();
  run->EndStep();
  EXPECT_FALSE(run.Backward("Functional", "linear", 0));  // too late
  EXPECT_THAT(Names(run.dump()),
              ElementsAre("Functional.linear.0.forward", "Module.fc.Linear.forward.0",
                          "Functional.linear.0.backward", "Module.fc.Linear.backward.0"));
}

TEST(Step, BackwardOfAnEarlierStepIsNotRecorded) {
  Session run;
  run.Start();
  run.Call("Torch", "relu");
  run.Call("Torch", "relu");
  run->EndStep();
  run.Start();
  run.Call("Torch", "relu");
  EXPECT_FALSE(run.Backward("Torch", "relu", 1));
  EXPECT_TRUE(run.Backward("Torch", "relu", 0));
}

TEST(Step, ABackwardThatFiresTwiceIsReplaced) {
  Session run;
  run.Start();
  run.Call("Torch", "relu");
  EXPECT_TRUE(run.Backward("Torch", "relu", 0));
  run.Call("Torch", "add");
  run.one = Floats({7});
  EXPECT_TRUE(run.Backward("Torch", "relu", 0));
  run->Stop();
  EXPECT_THAT(Names(run.dump()),
              ElementsAre("Torch.relu.0.forward", "Torch.relu.0.backward", "Torch.add.0.forward"));
  EXPECT_THAT(EntryText(run.dump(), "Torch.relu.0.backward"), HasSubstr("\"Max\": 7.0"));
  EXPECT_TRUE(
      run.Backward("Torch", "relu", 0));  // in the file already: appended, readers take the last
  run->EndStep();
  EXPECT_EQ(Names(run.dump()).size(), 4u);
  EXPECT_EQ(Json(run.dump())["msprobe"]["counts"]["written"].GetInt(), 3);
}

TEST(Step, EveryBufferSizeFlushIsValidJson) {
  Session run([](Change c) { c.buffer_size = 64 << 10; });
  run.Start();
  uint64_t last = std::filesystem::file_size(run.dump());
  int flushes = 0;
  for (int k = 0; k < 2000; ++k) {
    run.Call("Torch", "add");
    const uint64_t now = std::filesystem::file_size(run.dump());
    if (now == last) continue;
    last = now;
    ++flushes;
    ASSERT_EQ(Json(run.dump())["data"].MemberCount(), static_cast<rapidjson::SizeType>(k + 1));
  }
  EXPECT_GE(flushes, 5);  // 2000 entries of over 300 bytes
  run->EndStep();
  EXPECT_EQ(Names(run.dump()).size(), 2000u);
}

TEST(Step, StepsOfTheConfigurationOnlyThenTheEndIsSaid) {
  Session run([](Change c) { c.steps = {1, 3}; });
  for (int step = 0; step < 6; ++step) {
    run.Start();
    EXPECT_EQ(run->recording(), step == 1 || step == 3);
    EXPECT_EQ(run->terminated(), step > 3);
    run.Call("Torch", "relu");
    run->Stop();
    run->EndStep();
  }
  run->Close();
  EXPECT_FALSE(PathExists(run.Path("step0")));
  EXPECT_TRUE(PathExists(run.dump("step1/rank")));
  EXPECT_FALSE(PathExists(run.Path("step2")));
  EXPECT_TRUE(PathExists(run.dump("step3/rank")));
  EXPECT_FALSE(PathExists(run.Path("step4")));
  EXPECT_EQ(run.log.Count(LogLevel::kInfo, "msprobe ends successfully."), 1u);
  EXPECT_EQ(run.log.warnings(), 0u) << run.log.All();
}

TEST(Step, InitStepShiftsTheNumbers) {
  Session run([](Change c) { c.steps = {7}; });
  run->SetInitStep(6);
  run.Start();
  EXPECT_FALSE(run->recording());
  run->EndStep();
  run.Start();
  EXPECT_TRUE(run->recording());
  EXPECT_EQ(run->rank_dir(), run.Path("step7/rank"));
}

TEST(Step, WarningsWhenNothingWasCollected) {
  Session never([](Change c) { c.steps = {5, 9}; });
  never.Start();
  never->EndStep();
  never->Close();
  EXPECT_EQ(never.log.Count(LogLevel::kWarning, "no step was collected: step [5, 9]"), 1u);

  Session nothing;
  nothing.Start();
  nothing.Call("Torch", "reshape", Risk::kLow);
  nothing->Stop();
  EXPECT_EQ(nothing.log.Count(LogLevel::kWarning, "nothing was recorded"), 1u);
  EXPECT_EQ(nothing.log.Count(LogLevel::kWarning, "1 calls were seen and filtered out"), 1u);
}

TEST(Step, DumpSwitchOffMeansNothingIsTouched) {
  Session run([](Change c) { c.dump_enable = false; });
  run.Start();
  EXPECT_FALSE(run->recording());
  EXPECT_FALSE(run.Call("Torch", "relu"));
  EXPECT_FALSE(PathExists(run.config.dump_path));
}

TEST(Step, StructureTaskKeepsStacksAndHierarchyWithoutData) {
  Session run([](Change c) {
    c.task = Task::kStructure;
    c.level = Level::kMix;
  });
  run.Start();
  const StackId stack = run->AddStack(1, {"File a.py, line 1, in f, \n f()"});
  EXPECT_FALSE(run.Module(
      "fc", "Linear", [&] { EXPECT_FALSE(run.Call("Torch", "relu", Risk::kFocus, stack)); },
      stack));
  EXPECT_FALSE(run->wants_parameters());
  EXPECT_FALSE(run->wants_parameter_grads());
  run->Stop();
  run->EndStep();
  EXPECT_TRUE(Json(run.dump())["data"].ObjectEmpty());
  EXPECT_THAT(ReadFile(run.Path("step0/rank/construct.json")),
              HasSubstr("\"Torch.relu.0.forward\": \"Module.fc.Linear.forward.0\""));
  EXPECT_THAT(ReadFile(run.Path("step0/rank/stack.json")),
              HasSubstr("[\"Module.fc.Linear.forward.0\", \"Torch.relu.0.forward\"]"));
  EXPECT_EQ(run.log.warnings(), 0u) << run.log.All();
}

// ---- numbers
// ---------------------------------------------------------------------------------------

TEST(Numbers, FilteredCallsAdvanceTheCounterAbandonedOnesDoNot) {
  Session run([](Change c) { c.list = {"relu.1", "relu.2"}; });
  run.Start();
  const uint32_t relu = run->RegisterApi("Torch", "relu", Risk::kFocus);
  EXPECT_EQ(relu, run->RegisterApi("Torch", "relu", Risk::kFocus));
  int64_t number = 0;
  EXPECT_EQ(run->BeginApi(relu, kNoStack, &number), nullptr);
  EXPECT_EQ(number, 0);
  {
    auto raised = run->BeginApi(relu, kNoStack, &number);
    ASSERT_NE(raised, nullptr);
    EXPECT_EQ(number, 1);
    EXPECT_EQ(raised->name(), "Torch.relu.1.forward");
    raised->Discard();
  }
  {
    auto lost = run->BeginApi(relu, kNoStack, &number);
  }  // destroyed without Commit: as Discard
  EXPECT_EQ(number, 1);
  EXPECT_TRUE(run.Call("Torch", "relu"));
  EXPECT_TRUE(run.Call("Torch", "relu"));
  EXPECT_EQ(run->BeginApi(relu, kNoStack, &number), nullptr);
  EXPECT_EQ(number, 3);
  run->AbandonApi(relu, 3);
  EXPECT_EQ(run->BeginApi(relu, kNoStack, &number), nullptr);
  EXPECT_EQ(number, 3);
  run->AbandonApi(relu, 1);  // not the last: stays
  EXPECT_EQ(run->BeginApi(relu, kNoStack, &number), nullptr);
  EXPECT_EQ(number, 4);
  run->EndStep();
  EXPECT_THAT(Names(run.dump()), ElementsAre("Torch.relu.1.forward", "Torch.relu.2.forward"));
}

TEST(Numbers, ModulesCountPerModuleAndTheRootHasItsClassAlone) {
  Session run([](Change c) { c.level = Level::kL0; });
  run.Start();
  run.Module("layers.0.fc", "Linear");
  run.Module("layers.0.fc", "Linear");
  run.Module("layers.1.fc", "Linear");
  run.Module("", "Net");
  EXPECT_FALSE(run.Call("Torch", "relu") && false);
  run->EndStep();
  EXPECT_THAT(Names(run.dump()),
              testing::IsSupersetOf(
                  {"Module.layers.0.fc.Linear.forward.0", "Module.layers.0.fc.Linear.forward.1",
                   "Module.layers.1.fc.Linear.forward.0", "Module.Net.forward.0"}));
}

TEST(Numbers, ParameterGradientsCountAccumulationRounds) {
  Session run([](Change c) {
    c.level = Level::kL0;
    c.task = Task::kTensor;
  });
  run.Start();
  const uint32_t fc = run->RegisterModule("fc", "Linear");
  const auto fire = [&](std::string_view parameter, float value) {
    const auto gradient = Floats({value});
    run->ParameterGrad(fc, parameter, [&](EntryBuilder& b) { b.Tensor(gradient->leaf); });
  };
  fire("weight", 1);
  fire("bias", 2);
  run->Stop();
  fire("weight", 3);  // the first of this step fires again: a new round
  fire("bias", 4);
  fire("bias", 5);  // another one twice in a round: the later value
  run->ParameterGrad(fc, "extra",
                     [](EntryBuilder& b) { b.AbsentLeaf(Absent::kNoStorage, "meta"); });
  run->EndStep();
  EXPECT_THAT(Names(run.dump()), ElementsAre("Module.fc.Linear.parameters_grad.0",
                                             "Module.fc.Linear.parameters_grad.1"));
  const std::string text = EntryText(run.dump(), "Module.fc.Linear.parameters_grad.1");
  EXPECT_THAT(text, testing::StartsWith(R"({"weight": [{"type": "torch.Tensor")"));
  EXPECT_THAT(
      text,
      HasSubstr(R"("data_name": "Module.fc.Linear.parameters_grad.1.weight.pt"}], "bias": [{)"));
  EXPECT_THAT(text, HasSubstr(R"("Max": 5.0)"));
  EXPECT_THAT(text, testing::Not(HasSubstr(R"("Max": 4.0)")));
  EXPECT_THAT(
      text,
      testing::EndsWith(
          R"("extra": [null], "absent": {"extra": {"code": "no_storage", "reason": "meta"}}})"));
  EXPECT_TRUE(PathExists(
      run.Path("step0/rank/dump_tensor_data/Module.fc.Linear.parameters_grad.0.bias.pt")));
}

// ---- filters
// ---------------------------------------------------------------------------------------

std::vector<std::string> RiskNames(RiskLevel level) {
  Session run([&](Change c) { c.risk_level = level; });
  run.Start();
  run.Call("Torch", "matmul", Risk::kCore);
  run.Call("Torch", "relu", Risk::kFocus);
  run.Call("Torch", "cat", Risk::kLow);
  run.Backward("Torch", "cat", 0, Risk::kLow);
  run->EndStep();
  return Names(run.dump());
}

TEST(Filters, RiskLevels) {
  EXPECT_THAT(RiskNames(RiskLevel::kCore), ElementsAre("Torch.matmul.0.forward"));
  EXPECT_THAT(RiskNames(RiskLevel::kFocus),
              ElementsAre("Torch.matmul.0.forward", "Torch.relu.0.forward"));
  EXPECT_THAT(RiskNames(RiskLevel::kAll),
              ElementsAre("Torch.matmul.0.forward", "Torch.relu.0.forward", "Torch.cat.0.forward",
                          "Torch.cat.0.backward"));
}

TEST(Filters, ListIsASubstringOfTheFullNameAndSetsRiskAside) {
  Session run([](Change c) { c.list = {"permute.1.forward", "rel"}; });
  run.Start();
  for (int k = 0; k < 2; ++k) run.Call("Tensor", "permute", Risk::kLow);
  run.Call("Functional", "relu");
  run.Call("Functional", "Relu6");  // case-sensitive
  EXPECT_FALSE(run.Backward("Tensor", "permute", 1, Risk::kLow));
  EXPECT_TRUE(run.Backward("Functional", "relu", 0));
  const uint32_t permute = run->RegisterApi("Tensor", "permute", Risk::kLow);
  EXPECT_TRUE(run->ApiPasses(permute, 1, Direction::kForward));
  EXPECT_FALSE(run->ApiPasses(permute, 1, Direction::kBackward));
  run->EndStep();
  EXPECT_THAT(Names(run.dump()),
              ElementsAre("Tensor.permute.1.forward", "Functional.relu.0.forward",
                          "Functional.relu.0.backward"));
  EXPECT_EQ(run.log.warnings(), 0u) << run.log.All();
}

TEST(Filters, NamesThatMatchNothingAreNamedWithTheNearest) {
  Session run([](Change c) {
    c.list = {"Torch.rleu.0.forward", "Torch.add"};
    c.tensor_list = {"zzzzzzzzzzzz"};
  });
  for (int step = 0; step < 2; ++step) {
    run.Start();
    run.Call("Torch", "relu");
    run.Call("Torch", "add");
    run->EndStep();
  }
  EXPECT_EQ(run.log.Count(
                LogLevel::kWarning,
                "list name \"Torch.rleu.0.forward\" has matched nothing so far; the nearest name "
                "seen is \"Torch.relu.0.forward\""),
            1u)
      << run.log.All();
  EXPECT_EQ(run.log.Count(LogLevel::kWarning,
                          "tensor_list name \"zzzzzzzzzzzz\" has matched nothing so far"),
            1u);
  EXPECT_EQ(run.log.warnings(), 2u) << run.log.All();
}

TEST(Filters, ApiScopeHoldsBothEndsWhole) {
  Session run([](Change c) { c.scope = {"Torch.b.0.forward", "Torch.c.0.forward"}; });
  run.Start();
  for (const char* name : {"a", "b", "x", "c", "d", "c"}) run.Call("Torch", name, Risk::kLow);
  run->EndStep();
  EXPECT_THAT(Names(run.dump()),
              ElementsAre("Torch.b.0.forward", "Torch.x.0.forward", "Torch.c.0.forward"));
  EXPECT_THAT(EntryText(run.dump(), "Torch.c.0.forward"), HasSubstr("\"output\": ["));
}

TEST(Filters, AnOpenScopeEndsWithTheStepAndIsNamed) {
  Session run([](Change c) { c.scope = {"Torch.b.0.forward", "Torch.zz.3.backward"}; });
  run.Start();
  run.Call("Torch", "b");
  run->EndStep();
  run.Start();
  EXPECT_FALSE(run.Call("Torch", "a"));
  EXPECT_TRUE(run.Call("Torch", "b"));
  EXPECT_EQ(
      run.log.Count(LogLevel::kWarning, "scope name \"Torch.zz.3.backward\" has matched nothing"),
      1u);
}

TEST(Filters, ModuleScopeAtMixHoldsTheEndModulesInterior) {
  Session run([](Change c) {
    c.level = Level::kMix;
    c.scope = {"Module.a.A.forward.0", "Module.b.B.forward.0"};
  });
  run.Start();
  run.Call("Torch", "before");
  run.Module("a", "A", [&] { run.Call("Torch", "in_a"); });
  run.Call("Torch", "between");
  run.Module("b", "B", [&] { run.Call("Torch", "in_b"); });
  run.Call("Torch", "after");
  run.Module("c", "C");
  run->EndStep();
  EXPECT_THAT(Names(run.dump()),
              ElementsAre("Torch.in_a.0.forward", "Module.a.A.forward.0", "Torch.between.0.forward",
                          "Torch.in_b.0.forward", "Module.b.B.forward.0"));
}

TEST(Filters, AListedModuleAtMixOpensItsInterior) {
  Session run([](Change c) {
    c.level = Level::kMix;
    c.list = {"Module.b.B.forward"};
  });
  run.Start();
  run.Module("a", "A", [&] { run.Call("Torch", "x"); });
  run.Module("b", "B", [&] {
    run.Module("b.c", "C", [&] { run.Call("Torch", "y", Risk::kLow); });
    run.Call("Torch", "z");
  });
  run.Call("Torch", "after");
  run->EndStep();
  EXPECT_THAT(Names(run.dump()), ElementsAre("Torch.y.0.forward", "Module.b.c.C.forward.0",
                                             "Torch.z.0.forward", "Module.b.B.forward.0"));
  Session flat([](Change c) {
    c.level = Level::kL0;
    c.list = {"Module.b.B.forward"};
  });
  flat.Start();
  flat.Module("b", "B", [&] { flat.Module("b.c", "C"); });
  flat->EndStep();
  EXPECT_THAT(Names(flat.dump()), ElementsAre("Module.b.B.forward.0"));
}

TEST(Filters, ListedModuleBackwardOpensBackwardOfWhatRunsInside) {
  Session run([](Change c) {
    c.level = Level::kMix;
    c.list = {"Module.b.B"};
  });
  run.Start();
  run.Call("Torch", "x");
  run.Module("b", "B", [&] { run.Call("Torch", "y"); });
  const uint32_t b = run->RegisterModule("b", "B");
  EXPECT_FALSE(run.Backward("Torch", "x", 0));
  run->EnterModuleBackward(b, 0);
  EXPECT_TRUE(run.Backward("Torch", "y", 0));
  run->LeaveModuleBackward(b, 0);
  auto entry = run->BeginModuleBackward(b, 0);
  ASSERT_NE(entry, nullptr);
  run.Describe(*entry, {Part::kInput});
  entry->Commit();
  run->ParameterGrad(b, "weight", [&](EntryBuilder& e) { e.Tensor(run.one->leaf); });
  EXPECT_FALSE(run.Backward("Torch", "x", 0));
  run->EndStep();
  EXPECT_THAT(Names(run.dump()),
              ElementsAre("Torch.y.0.forward", "Module.b.B.forward.0", "Torch.y.0.backward",
                          "Module.b.B.backward.0", "Module.b.B.parameters_grad.0"));
}

TEST(Filters, DataModeDirections) {
  const auto names = [](bool forward, bool backward) {
    Session run([&](Change c) {
      c.level = Level::kMix;
      c.forward = forward;
      c.backward = backward;
      c.data_mode_all = false;
    });
    EXPECT_EQ(run->wants_backward(), backward);
    run.Start();
    const uint32_t fc = run->RegisterModule("fc", "Linear");
    run.Module("fc", "Linear", [&] { run.Call("Torch", "relu"); });
    run.Backward("Torch", "relu", 0);
    if (auto entry = run->BeginModuleBackward(fc, 0)) {
      run.Describe(*entry, {Part::kInput});
      entry->Commit();
    }
    run->ParameterGrad(fc, "weight", [&](EntryBuilder& e) { e.Tensor(run.one->leaf); });
    run->EndStep();
    return Names(run.dump());
  };
  EXPECT_THAT(names(true, false),
              ElementsAre("Torch.relu.0.forward", "Module.fc.Linear.forward.0"));
  EXPECT_THAT(names(false, true),
              ElementsAre("Torch.relu.0.backward", "Module.fc.Linear.backward.0",
                          "Module.fc.Linear.parameters_grad.0"));
}

TEST(Filters, WantsPartFollowsDataMode) {
  Session run([](Change c) {
    c.backward = false;
    c.output = false;
    c.data_mode_all = false;
  });
  EXPECT_TRUE(run->WantsPart(Part::kInputArgs, Direction::kForward));
  EXPECT_FALSE(run->WantsPart(Part::kOutput, Direction::kForward));
  EXPECT_FALSE(run->WantsPart(Part::kParameters, Direction::kForward));
  EXPECT_FALSE(run->WantsPart(Part::kInput, Direction::kBackward));
}

// ---- hierarchy and stacks
// --------------------------------------------------------------------------

// The shape of the file that upstream 26.2.0 writes for this script: children before parents,
// filtered names too. (Upstream leaves parents of nested backward modules null; here they are what
// dump.md 14.2 says.)
TEST(Construct, ChildrenBeforeParentsAndFilteredNamesToo) {
  Session run([](Change c) { c.level = Level::kMix; });
  run.Start();
  run.Module("blk", "Blk", [&] {
    run.Module("blk.a", "Linear", [&] { run.Call("Functional", "linear"); });
    run.Call("Tensor", "reshape", Risk::kLow);
  });
  run.Call("Torch", "sum");
  run.Backward("Torch", "sum", 0);
  run->EnterModuleBackward(run->RegisterModule("blk", "Blk"), 0);
  run->EnterModuleBackward(run->RegisterModule("blk.a", "Linear"), 0);
  run.Backward("Functional", "linear", 0);
  run.Backward("Tensor", "reshape", 0, Risk::kLow);
  run->EnterPhase("optimizer");
  run.Call("Tensor", "add_");
  run.Call("Tensor", "add_");
  run->LeavePhase();
  run.Call("Torch", "sum");
  run->EndStep();
  EXPECT_EQ(ReadFile(run.Path("step0/rank/construct.json")),
            "{\n"
            " \"Functional.linear.0.forward\": \"Module.blk.a.Linear.forward.0\",\n"
            " \"Module.blk.a.Linear.forward.0\": \"Module.blk.Blk.forward.0\",\n"
            " \"Tensor.reshape.0.forward\": \"Module.blk.Blk.forward.0\",\n"
            " \"Module.blk.Blk.forward.0\": null,\n"
            " \"Torch.sum.0.forward\": null,\n"
            " \"Torch.sum.0.backward\": null,\n"
            " \"Module.blk.Blk.backward.0\": null,\n"
            " \"Module.blk.a.Linear.backward.0\": \"Module.blk.Blk.backward.0\",\n"
            " \"Functional.linear.0.backward\": \"Module.blk.a.Linear.backward.0\",\n"
            " \"Tensor.reshape.0.backward\": \"Module.blk.Blk.backward.0\",\n"
            " \"optimizer\": null,\n"
            " \"Tensor.add_.0.forward\": \"optimizer\",\n"
            " \"Tensor.add_.1.forward\": \"optimizer\",\n"
            " \"Torch.sum.1.forward\": null\n"
            "}");
}

TEST(Construct, StaysEmptyAtL1AndHoldsModulesAtL0) {
  Session apis;
  apis.Start();
  apis.Call("Torch", "relu");
  apis->EndStep();
  EXPECT_EQ(ReadFile(apis.Path("step0/rank/construct.json")), "{}");
  Session modules([](Change c) { c.level = Level::kL0; });
  modules.Start();
  modules.Module("a", "A", [&] { modules.Module("a.b", "B"); });
  modules->EndStep();
  EXPECT_EQ(ReadFile(modules.Path("step0/rank/construct.json")),
            "{\n \"Module.a.b.B.forward.0\": \"Module.a.A.forward.0\",\n \"Module.a.A.forward.0\": "
            "null\n}");
}

TEST(Construct, AbandonedFilteredCallLeavesNoTrace) {
  Session run([](Change c) { c.level = Level::kMix; });
  run.Start();
  int64_t number = 0;
  const uint32_t cat = run->RegisterApi("Torch", "cat", Risk::kLow);
  EXPECT_EQ(run->BeginApi(cat, kNoStack, &number), nullptr);
  run->AbandonApi(cat, number);
  EXPECT_EQ(run->BeginApi(cat, kNoStack, &number), nullptr);
  EXPECT_EQ(number, 0);
  run->EndStep();
  EXPECT_EQ(ReadFile(run.Path("step0/rank/construct.json")),
            "{\n \"Torch.cat.0.forward\": null\n}");
}

TEST(Construct, CallsThatWentMissingAreClosedWithTheirParent) {
  Session run([](Change c) { c.level = Level::kL0; });
  run.Start();
  const auto outer = run->EnterModule(run->RegisterModule("a", "A"), kNoStack);
  run->EnterModule(run->RegisterModule("a.b", "B"), kNoStack);  // raised, never left
  run->LeaveModule(outer);
  run->LeaveModule(outer);
  run.Module("c", "C");
  run->EndStep();
  const auto parents = dump::ReadConstruct(run.Path("step0/rank/construct.json"));
  ASSERT_TRUE(parents.ok());
  EXPECT_EQ(parents->at("Module.a.b.B.forward.0"), "Module.a.A.forward.0");
  EXPECT_EQ(parents->at("Module.c.C.forward.0"), "");
}

TEST(Construct, AReentrantModuleKeepsItsCallsApart) {
  Session run([](Change c) { c.level = Level::kL0; });
  run.Start();
  run.Module("a", "A", [&] { run.Module("a", "A"); });
  run->EndStep();
  EXPECT_THAT(Names(run.dump()), ElementsAre("Module.a.A.forward.1", "Module.a.A.forward.0"));
  const auto parents = dump::ReadConstruct(run.Path("step0/rank/construct.json"));
  EXPECT_EQ(parents->at("Module.a.A.forward.1"), "Module.a.A.forward.0");
}

TEST(Construct, EachThreadHasAModuleStackOfItsOwn) {
  Session run([](Change c) { c.level = Level::kMix; });
  run.Start();
  run.Module("a", "A", [&] {
    std::thread([&] {
      run.Call("Torch", "relu");  // no module runs on this thread
      run.Module("a.b", "B");     // path says: child of the open "a"
      run.Module("z", "Z");
    }).join();
  });
  run->EndStep();
  const auto parents = dump::ReadConstruct(run.Path("step0/rank/construct.json"));
  EXPECT_EQ(parents->at("Torch.relu.0.forward"), "");
  EXPECT_EQ(parents->at("Module.a.b.B.forward.0"), "Module.a.A.forward.0");
  EXPECT_EQ(parents->at("Module.z.Z.forward.0"), "");
}

TEST(Stacks, SharedByEntriesAndAppendedAtEachFlush) {
  Session run;
  run.Start();
  EXPECT_EQ(run->FindStack(77), std::nullopt);
  const StackId s = run->AddStack(
      77, {"File a.py, line 1, in f, \n \"x\"", "File b.py, line 2, in <module>, \n f()"});
  EXPECT_EQ(run->FindStack(77), s);
  EXPECT_EQ(run->AddStack(77, {"other"}), s);
  const StackId t = run->AddStack(78, {"t"});
  run.Call("Torch", "relu", Risk::kFocus, s);
  run.Call("Torch", "cat", Risk::kLow, s);  // filtered: not listed
  run.Call("Torch", "add", Risk::kFocus, t);
  run.Call("Torch", "relu", Risk::kFocus, s);
  run.Backward("Torch", "relu", 0);  // only forward entries are listed
  run->Stop();
  EXPECT_EQ(ReadFile(run.Path("step0/rank/stack.json")),
            "{\n \"0\": [[\"Torch.relu.0.forward\", \"Torch.relu.1.forward\"], "
            "[\"File a.py, line 1, in f, \\n \\\"x\\\"\", \"File b.py, line 2, in <module>, \\n "
            "f()\"]],\n"
            " \"1\": [[\"Torch.add.0.forward\"], [\"t\"]]\n}");
  run.Start();
  run.Call("Torch", "mul", Risk::kFocus, s);
  run->EndStep();
  const auto table = dump::ReadStack(run.Path("step0/rank/stack.json"));
  ASSERT_TRUE(table.ok());
  EXPECT_EQ(table->stacks.size(), 3u);
  EXPECT_EQ(*table->Find("Torch.mul.0.forward"), *table->Find("Torch.relu.0.forward"));
  run.Start();  // the next step numbers anew and knows the stacks still
  EXPECT_EQ(run->FindStack(77), s);
  run.Call("Torch", "relu", Risk::kFocus, s);
  run->EndStep();
  EXPECT_THAT(ReadFile(run.Path("step1/rank/stack.json")),
              testing::StartsWith("{\n \"0\": [[\"Torch.relu.0.forward\"]"));
}

TEST(Stacks, WithoutExtraInfoOnlyDumpJsonIsWritten) {
  Session run([](Change c) {
    c.extra_info = false;
    c.level = Level::kMix;
  });
  EXPECT_FALSE(run->wants_stacks());
  run.Start();
  run.Module("a", "A", [&] { run.Call("Torch", "relu"); });
  run->EndStep();
  size_t files = 0;
  for (const auto& item : std::filesystem::directory_iterator(run.Path("step0/rank")))
    files += item.exists();
  EXPECT_EQ(files, 1u);
}

TEST(Threads, CountersAreProcessWideAndEveryEntryIsWhole) {
  Session run([](Change c) { c.buffer_size = 64 << 10; });
  run.Start();
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&] {
      for (int k = 0; k < 250; ++k) run.Call("Torch", "relu");
    });
  for (std::thread& thread : threads) thread.join();
  run->EndStep();
  EXPECT_EQ(Json(run.dump())["data"].MemberCount(), 1000u);
  std::vector<std::string> names = Names(run.dump());
  std::sort(names.begin(), names.end());
  EXPECT_EQ(std::unique(names.begin(), names.end()) - names.begin(), 1000);
  EXPECT_TRUE(
      std::binary_search(names.begin(), names.end(), std::string("Torch.relu.999.forward")));
}

// ---- folders
// ---------------------------------------------------------------------------------------

TEST(Ranks, KnownRankNamesTheFolderAndTheFilterDecides) {
  Session run([](Change c) { c.ranks = {1, 3}; });
  run.Start(3);
  EXPECT_EQ(run->rank_dir(), run.Path("step0/rank3"));
  run.Call("Torch", "relu");
  run->EndStep();
  EXPECT_EQ(Json(run.dump("step0/rank3"))["msprobe"]["rank"].GetInt(), 3);
  Session other([](Change c) { c.ranks = {1, 3}; });
  other.Start(2);
  EXPECT_FALSE(other->recording());
  EXPECT_FALSE(PathExists(other.config.dump_path));
  EXPECT_EQ(other.log.warnings(), 0u);
}

TEST(Ranks, UnknownRankCountsAsZeroAndIsSaid) {
  Session zero([](Change c) { c.ranks = {0}; });
  zero.Start();
  EXPECT_TRUE(zero->recording());
  EXPECT_EQ(zero.log.Count(LogLevel::kWarning, "treated as rank 0, which is collected"), 1u);
  Session one([](Change c) { c.ranks = {1}; });
  one.Start();
  one->Stop();
  one.Start();
  EXPECT_FALSE(one->recording());
  EXPECT_EQ(one.log.Count(LogLevel::kWarning, "treated as rank 0, which is not collected"), 1u);
}

TEST(Ranks, FolderFollowsWhenTheRankBecomesKnown) {
  Session run([](Change c) { c.task = Task::kTensor; });
  run.Start();
  run.Call("Torch", "relu");
  run->Stop();
  EXPECT_TRUE(PathExists(run.dump("step0/rank")));
  run.Start(5);
  EXPECT_EQ(run->rank_dir(), run.Path("step0/rank5"));
  EXPECT_FALSE(PathExists(run.Path("step0/rank")));
  run.Call("Torch", "relu");
  run->Stop();
  EXPECT_EQ(Json(run.dump("step0/rank5"))["dump_data_dir"].GetString(),
            run.Path("step0/rank5/dump_tensor_data"));
  run->EndStep();
  EXPECT_THAT(Names(run.dump("step0/rank5")),
              ElementsAre("Torch.relu.0.forward", "Torch.relu.1.forward"));
  EXPECT_TRUE(
      PathExists(run.Path("step0/rank5/dump_tensor_data/Torch.relu.1.forward.output.0.pt")));
  run.Start();  // known from now on
  EXPECT_EQ(run->rank_dir(), run.Path("step1/rank5"));
}

TEST(Folders, AnEarlierDumpIsMovedAsideAndSaidOnce) {
  Session run;
  for (int round = 0; round < 2; ++round) {
    for (int step = 0; step < 2; ++step) {
      run.Start();
      run.Call("Torch", round == 0 ? "old" : "new");
      run->EndStep();
    }
    run.Restart();
  }
  EXPECT_THAT(Names(run.dump()), ElementsAre("Torch.new.0.forward"));
  EXPECT_THAT(Names(run.dump("step1/rank")), ElementsAre("Torch.new.0.forward"));
  std::vector<std::string> found;
  for (const auto& item : std::filesystem::directory_iterator(run.config.dump_path)) {
    const std::string name = item.path().filename().string();
    if (!name.starts_with("replaced-")) continue;
    for (const char* step : {"step0", "step1"}) {
      const std::string file = JoinPath(item.path().string(), JoinPath(step, "rank/dump.json"));
      if (PathExists(file)) found.push_back(Names(file).at(0));
    }
  }
  EXPECT_THAT(found, ElementsAre("Torch.old.0.forward", "Torch.old.0.forward"));
  EXPECT_EQ(run.log.warnings(), 1u) << run.log.All();
  EXPECT_EQ(run.log.Count(LogLevel::kWarning, "held an earlier dump ("), 1u);
}

TEST(Folders, OverwriteReplaceKeepsWhatIsNotOurs) {
  Session run([](Change c) {
    c.task = Task::kTensor;
    c.overwrite = Overwrite::kReplace;
  });
  run.Start();
  run.Call("Torch", "old");
  run->EndStep();
  WriteFile(run.Path("step0/rank/notes.txt"), "mine");
  run.Restart();
  run.Start();
  run.Call("Torch", "new");
  run->EndStep();
  EXPECT_THAT(Names(run.dump()), ElementsAre("Torch.new.0.forward"));
  EXPECT_FALSE(PathExists(run.Path("step0/rank/dump_tensor_data/Torch.old.0.forward.output.0.pt")));
  EXPECT_TRUE(PathExists(run.Path("step0/rank/dump_tensor_data/Torch.new.0.forward.output.0.pt")));
  EXPECT_EQ(ReadFile(run.Path("step0/rank/notes.txt")), "mine");
  size_t children = 0;
  for (const auto& item : std::filesystem::directory_iterator(run.config.dump_path))
    children += item.exists();
  EXPECT_EQ(children, 1u);
}

TEST(Folders, OverwriteRefuseIsAnErrorAtStart) {
  Session run([](Change c) { c.overwrite = Overwrite::kRefuse; });
  run.Start();
  run.Call("Torch", "old");
  run->EndStep();
  run.Restart();
  const Status refused = run->Start({});
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::kMismatch);
  EXPECT_THAT(refused.error().ToString(), HasSubstr("step0/rank: holds an earlier dump"));
  EXPECT_FALSE(run->recording());
  EXPECT_THAT(Names(run.dump()), ElementsAre("Torch.old.0.forward"));
}

TEST(Folders, AFolderInUseByAnotherProcessIsLeftAlone) {
  Session run;
  std::filesystem::create_directories(run.Path("step0/rank"));
  WriteFile(run.dump(), "{\"data\": {\"theirs\": 1}}");
  int ready[2], done[2];
  ASSERT_EQ(pipe(ready), 0);
  ASSERT_EQ(pipe(done), 0);
  const std::string journal = run.Path("step0/rank/.msprobe_journal");
  const pid_t child = fork();
  if (child == 0) {
    const int fd = open(journal.c_str(), O_RDWR | O_CREAT, 0600);
    char byte = flock(fd, LOCK_EX | LOCK_NB) == 0 ? 'y' : 'n';
    if (write(ready[1], &byte, 1) != 1 || read(done[0], &byte, 1) < 0) _exit(1);
    _exit(0);
  }
  char byte = 0;
  ASSERT_EQ(read(ready[0], &byte, 1), 1);
  ASSERT_EQ(byte, 'y');
  run.Start();
  const std::string own = "step0/proc" + std::to_string(getpid());
  EXPECT_EQ(run->rank_dir(), run.Path(own));
  run.Call("Torch", "relu");
  run->EndStep();
  EXPECT_EQ(
      run.log.Count(LogLevel::kWarning, "is in use by another process; this one writes to proc"),
      1u);
  EXPECT_THAT(Names(run.dump()), ElementsAre("theirs"));
  EXPECT_THAT(Names(run.dump(own)), ElementsAre("Torch.relu.0.forward"));
  ASSERT_EQ(write(done[1], &byte, 1), 1);
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
}

TEST(Folders, NothingButTheFilesIsLeftAtACleanEnd) {
  Session run;
  run.Start();
  EXPECT_TRUE(PathExists(run.Path("step0/rank/.msprobe_journal")));
  run.Call("Torch", "relu");
  run->EndStep();
  std::vector<std::string> names;
  for (const auto& item : std::filesystem::directory_iterator(run.Path("step0/rank")))
    names.push_back(item.path().filename().string());
  EXPECT_THAT(names, UnorderedElementsAre("dump.json", "stack.json", "construct.json"));
}

TEST(Folders, DumpPathThatCannotBeIsAnErrorAtTheFirstStart) {
  Session run;
  WriteFile(run.config.dump_path, "a file");
  const Status failed = run->Start({});
  ASSERT_FALSE(failed.ok());
  EXPECT_EQ(failed.error().code, ErrorCode::kNotRegularFile);
  Session empty;
  empty.config.dump_path.clear();
  const auto made = Collector::Create(empty.config, empty.log);
  ASSERT_FALSE(made.ok());
  EXPECT_EQ(made.error().code, ErrorCode::kInvalidArgument);
}

TEST(Folders, ALaterStepThatCannotBeOpenedDoesNotEndTheRun) {
  Session run;
  run.Start();
  run.Call("Torch", "relu");
  run->EndStep();
  WriteFile(run.Path("step1"), "in the way");
  run.Start();
  EXPECT_FALSE(run->recording());
  EXPECT_FALSE(run.Call("Torch", "relu"));
  run->EndStep();
  EXPECT_EQ(run.log.Count(LogLevel::kError, "step 1 is not collected"), 1u);
  run.Start();
  EXPECT_TRUE(run->recording());
}

// ---- processes that end
// ----------------------------------------------------------------------------

TEST(Crash, AKilledProcessLeavesWhatWasFlushedAsValidJson) {
  Session run;
  run.collector.reset();
  const pid_t child = fork();
  if (child == 0) {
    run.Restart();
    run.Start();
    run.Call("Torch", "relu");
    run->Stop();
    run.Start();
    run.Call("Torch", "add");
    kill(getpid(), SIGKILL);
  }
  int status = 0;
  waitpid(child, &status, 0);
  ASSERT_TRUE(WIFSIGNALED(status));
  const auto dump = Json(run.dump());
  EXPECT_TRUE(dump["data"].HasMember("Torch.relu.0.forward"));
  EXPECT_FALSE(dump.HasMember("msprobe"));
}

TEST(Crash, AForkedChildRecordsNothingAndLeavesTheParentsFilesAlone) {
  Session run;
  run.Start();
  run.Call("Torch", "relu");
  const pid_t child = fork();
  if (child == 0) {
    run->AfterForkInChild();
    const bool quiet =
        !run->recording() && !run.Call("Torch", "child") && !run.Backward("Torch", "relu", 0);
    run->Stop();
    run->EndStep();
    run->Close();
    _exit(quiet ? 0 : 1);
  }
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  EXPECT_TRUE(PathExists(run.Path("step0/rank/.msprobe_journal")));
  run.Call("Torch", "add");
  run->EndStep();
  EXPECT_THAT(Names(run.dump()), ElementsAre("Torch.relu.0.forward", "Torch.add.0.forward"));
  EXPECT_TRUE(Json(run.dump())["msprobe"]["complete"].GetBool());
}

}  // namespace
}  // namespace msprobe::collect
