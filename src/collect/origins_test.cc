#include "collect/origins.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace msprobe::collect {
namespace {

// Float tensors in one imagined storage.
struct Tensor {
  std::vector<int64_t> shape, strides;
  int64_t offset = 0;  // elements
  int64_t version = 0;
  uint64_t storage = 7;
  DType dtype = DType::kF32;

  Origins::Piece piece() const {
    static const std::byte memory[4096] = {};
    return {{storage, version, memory + offset * 4, strides}, shape, dtype};
  }
};

std::string From(const Origins& origins, const Tensor& tensor, int64_t step = 0) {
  std::string out;
  origins.AppendFrom(out, tensor.piece(), step);
  return out;
}

TEST(Origins, TheSamePieceNamesItsProducer) {
  Origins origins;
  const Tensor h{.shape = {2, 3}, .strides = {3, 1}};
  origins.Note(h.piece(), {"Functional.linear.0.forward", "output.0"});
  EXPECT_EQ(From(origins, h),
            R"("from": {"entry": "Functional.linear.0.forward", "leaf": "output.0"})");
  EXPECT_EQ(From(origins, {.shape = {2, 3}, .strides = {3, 1}, .storage = 8}), "");
}

TEST(Origins, WithoutStridesTheTensorIsRowMajor) {
  Origins origins;
  const Tensor h{.shape = {2, 3}, .strides = {}};
  origins.Note(h.piece(), {"A.a.0.forward", "output.0"});
  EXPECT_EQ(From(origins, {.shape = {2, 3}, .strides = {3, 1}}),
            R"("from": {"entry": "A.a.0.forward", "leaf": "output.0"})");
}

TEST(Origins, AViewSaysWhichElementsOfTheLeafItIs) {
  Origins origins;
  origins.Note(Tensor{.shape = {4, 3}, .strides = {3, 1}}.piece(), {"A.a.0.forward", "output.0"});
  // The second column: elements 1, 4, 7, 10.
  EXPECT_EQ(From(origins, {.shape = {4}, .strides = {3}, .offset = 1}),
            R"("from": {"entry": "A.a.0.forward", "leaf": "output.0", )"
            R"("view": {"offset": 1, "strides": [3]}})");
  // Other elements than the leaf's: where they lie in it is not a count of elements.
  EXPECT_EQ(From(origins, {.shape = {4, 3}, .strides = {3, 1}, .dtype = DType::kI32}),
            R"("from": {"entry": "A.a.0.forward", "leaf": "output.0", "view": {}})");
}

TEST(Origins, StridesOfALeafThatIsNotRowMajorAreToldWithTheView) {
  Origins origins;
  origins.Note(Tensor{.shape = {3, 4}, .strides = {1, 3}}.piece(), {"A.t.0.forward", "output.0"});
  EXPECT_EQ(From(origins, {.shape = {4, 3}, .strides = {3, 1}}),
            R"("from": {"entry": "A.t.0.forward", "leaf": "output.0", )"
            R"("view": {"offset": 0, "strides": [3, 1], "base_strides": [1, 3]}})");
}

TEST(Origins, WritesSinceAreCountedAndALaterProducerTakesThePlace) {
  Origins origins;
  Tensor h{.shape = {5}, .strides = {1}};
  origins.Note(h.piece(), {"A.a.0.forward", "output.0"});
  h.version = 2;
  EXPECT_EQ(From(origins, h),
            R"("from": {"entry": "A.a.0.forward", "leaf": "output.0", "writes": 2})");
  origins.Note(h.piece(), {"Tensor.add_.0.forward", "output.0"});
  EXPECT_EQ(From(origins, h), R"("from": {"entry": "Tensor.add_.0.forward", "leaf": "output.0"})");
}

TEST(Origins, OfSeveralPiecesTheSameOneThenTheLargestAnswers) {
  Origins origins;
  const Tensor whole{.shape = {6}, .strides = {1}};
  const Tensor part{.shape = {2}, .strides = {1}, .offset = 2};
  origins.Note(whole.piece(), {"A.a.0.forward", "output.0"});
  origins.Note(part.piece(), {"A.split.0.forward", "output.1"});
  EXPECT_EQ(From(origins, whole), R"("from": {"entry": "A.a.0.forward", "leaf": "output.0"})");
  EXPECT_EQ(From(origins, part), R"("from": {"entry": "A.split.0.forward", "leaf": "output.1"})");
  EXPECT_EQ(From(origins, {.shape = {1}, .strides = {1}, .offset = 5}),
            R"("from": {"entry": "A.a.0.forward", "leaf": "output.0", )"
            R"("view": {"offset": 5, "strides": [1]}})");
}

TEST(Origins, AModuleDoesNotHideTheCallInside) {
  Origins origins;
  Tensor h{.shape = {5}, .strides = {1}};
  origins.Note(h.piece(), {"Functional.relu.0.forward", "output.0"});
  origins.Note(h.piece(), {"Module.act.ReLU.forward.0", "output.0", 0, true});
  EXPECT_EQ(From(origins, h),
            R"("from": {"entry": "Functional.relu.0.forward", "leaf": "output.0"})");
  h.version = 1;  // written inside without a recorded call: now the module says more
  origins.Note(h.piece(), {"Module.act.ReLU.forward.0", "output.0", 0, true});
  EXPECT_EQ(From(origins, h),
            R"("from": {"entry": "Module.act.ReLU.forward.0", "leaf": "output.0"})");
}

TEST(Origins, AProducerOfAnEarlierStepIsNamedWithIt) {
  Origins origins;
  const Tensor w{.shape = {3}, .strides = {1}};
  origins.Note(w.piece(), {"Tensor.addcdiv_.4.forward", "output.0", 3});
  EXPECT_EQ(From(origins, w, 4),
            R"("from": {"entry": "Tensor.addcdiv_.4.forward", "leaf": "output.0", "step": 3})");
}

TEST(Origins, WhatHasNoStorageOrElementsIsNotRemembered) {
  Origins origins;
  origins.Note(Tensor{.shape = {3}, .strides = {1}, .storage = 0}.piece(), {"A.a.0.forward", "o"});
  origins.Note(Tensor{.shape = {0}, .strides = {1}}.piece(), {"A.a.0.forward", "o"});
  const std::vector<int64_t> nine(9, 1);
  origins.Note(Tensor{.shape = nine, .strides = nine}.piece(), {"A.a.0.forward", "o"});
  EXPECT_EQ(origins.size(), 0u);
}

TEST(Origins, ForgottenMemoryHasNoProducer) {
  Origins origins;
  const Tensor h{.shape = {5}, .strides = {1}};
  origins.Note(h.piece(), {"A.a.0.forward", "output.0"});
  const uint64_t gone[] = {7};
  origins.Forget(gone);
  EXPECT_EQ(From(origins, h), "");
  EXPECT_EQ(origins.size(), 0u);
}

TEST(Origins, ManyViewsOfOneStorageKeepTheWhole) {
  Origins origins;
  origins.Note(Tensor{.shape = {500}, .strides = {1}}.piece(), {"A.a.0.forward", "output.0"});
  for (int64_t i = 0; i < 200; ++i) {
    origins.Note(Tensor{.shape = {1}, .strides = {1}, .offset = i}.piece(),
                 {"A.select.0.forward", "output.0"});
  }
  EXPECT_EQ(From(origins, {.shape = {500}, .strides = {1}}),
            R"("from": {"entry": "A.a.0.forward", "leaf": "output.0"})");
  EXPECT_EQ(From(origins, {.shape = {1}, .strides = {1}, .offset = 199}),
            R"("from": {"entry": "A.select.0.forward", "leaf": "output.0"})");
}

TEST(Origins, StatisticsAreUsedAgainForUnchangedMemoryOnly) {
  Origins origins;
  Tensor h{.shape = {5}, .strides = {1}};
  metrics::TensorStats stats;
  stats.max = 4.0;
  origins.Note(h.piece(), {"A.a.0.forward", "output.0", 0, false, &stats});
  ASSERT_TRUE(origins.Statistics(h.piece()).has_value());
  EXPECT_EQ(std::get<double>(origins.Statistics(h.piece())->max), 4.0);
  EXPECT_FALSE(origins.Statistics(Tensor{.shape = {4}, .strides = {1}}.piece()).has_value());
  h.version = 1;
  EXPECT_FALSE(origins.Statistics(h.piece()).has_value());
}

}  // namespace
}  // namespace msprobe::collect
