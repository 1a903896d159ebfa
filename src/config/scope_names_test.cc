#include "config/scope_names.h"

#include <gtest/gtest.h>

namespace msprobe::config {
namespace {

TEST(ScopeNames, Kinds) {
  for (const char* name : {"Functional.relu.0.forward", "Distributed.all_reduce.12.backward",
                           "torch.ops.my.op.3.forward"}) {
    EXPECT_EQ(KindOfScopeName(name), ScopeNameKind::kApi) << name;
  }
  for (const char* name : {"Module.a.Linear.forward.0", "Module.layers.0.mlp.MLP.backward.7"}) {
    EXPECT_EQ(KindOfScopeName(name), ScopeNameKind::kModule) << name;
  }
  for (const char* name :
       {"", ".", "relu", "relu.0.forward", "Functional.relu.forward", "Functional.relu.0",
        "Functional.relu.x.forward", "Functional..0.forward", "Module.a.Linear.0.forward",
        "Module.Linear.forward.0x", "Module.forward.0", "Functional.relu.0.forward.input"}) {
    EXPECT_EQ(KindOfScopeName(name), ScopeNameKind::kNeither) << name;
  }
}

}  // namespace
}  // namespace msprobe::config
