// scope, list, risk level, data_mode (dump.md 9).
#include <gmock/gmock.h>

#include "collect/session_test.h"

namespace msprobe::collect {
namespace {

using config::Level;
using config::RiskLevel;
using testing::ElementsAre;
using testing::HasSubstr;
using Change = config::CollectConfig&;

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

}  // namespace
}  // namespace msprobe::collect
