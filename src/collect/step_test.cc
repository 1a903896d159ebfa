// Life cycle, flushing and numbering (dump.md 5, 6.3, 7.2, 15; decisions.md 8, 16).
#include <gmock/gmock.h>

#include "collect/session_test.h"

namespace msprobe::collect {
namespace {

using config::Level;
using config::Task;
using testing::ElementsAre;
using testing::HasSubstr;
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

TEST(Step, AnEntryLargerThanTheJournalIsFlushedAtOnce) {
  Session run([](Change c) { c.buffer_size = 64 << 10; });
  run.Start();
  run.Call("Torch", "small");
  int64_t number = 0;
  auto entry = run->BeginApi(run->RegisterApi("Torch", "big", Risk::kFocus), kNoStack, &number);
  entry->BeginPart(Part::kOutput);
  entry->Raw("\"" + std::string(1 << 20, 'x') + "\"");
  entry->EndPart();
  entry->Commit();
  EXPECT_EQ(Json(run.dump())["data"].MemberCount(), 2u);
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

}  // namespace
}  // namespace msprobe::collect
