// Shared by the tests of this folder: runs a test once per vector target of this CPU.
#pragma once

#include <gtest/gtest.h>
#include <hwy/highway.h>

#include "kernels/stats.h"

namespace msprobe::kernels {

class OnTarget : public ::testing::TestWithParam<int64_t> {
 protected:
  void SetUp() override {
    hwy::SetSupportedTargetsForTest(GetParam());
    hwy::GetChosenTarget().Update(hwy::SupportedTargets());
    ASSERT_EQ(ActiveTarget(), hwy::TargetName(GetParam()));
  }
  void TearDown() override {
    hwy::SetSupportedTargetsForTest(0);
    hwy::GetChosenTarget().Update(hwy::SupportedTargets());
  }
};

}  // namespace msprobe::kernels
