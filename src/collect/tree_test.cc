// construct.json, stack.json, threads (dump.md 14.1, 14.2).
#include <gmock/gmock.h>

#include <thread>

#include "collect/session_test.h"

namespace msprobe::collect {
namespace {

using config::Level;
using testing::ElementsAre;
using testing::HasSubstr;
using Change = config::CollectConfig&;

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

}  // namespace
}  // namespace msprobe::collect
