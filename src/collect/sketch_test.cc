// Sketches as members of leaves (culprit.md 5 and 9).
#include "metrics/sketch.h"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include <cmath>

#include "collect/session_test.h"
#include "json/json.h"

namespace msprobe::collect {
namespace {

using testing::HasSubstr;

// The leaf of `tensor` as dump.json shows it.
std::string LeafText(const TensorLeaf& leaf,
                     const std::function<void(config::CollectConfig&)>& change) {
  Session run(change);
  run.Start();
  int64_t number = 0;
  auto entry = run->BeginApi(run->RegisterApi("Torch", "add", Risk::kFocus), kNoStack, &number);
  entry->BeginPart(Part::kOutput);
  entry->OpenList();
  entry->Tensor(leaf);
  entry->CloseList();
  entry->EndPart();
  entry->Commit();
  run->EndStep();
  const std::string text = EntryText(run.dump(), "Torch.add.0.forward");
  const std::string head = "{\"output\": [";
  EXPECT_TRUE(text.starts_with(head)) << text;
  return text.substr(head.size(), text.rfind(']') - head.size());
}

// The sketch of three elements below k holds them with their signs; its bytes and the rest of the
// format are in metrics/sketch_test.cc.
TEST(SketchLeaf, StandsBesideStatisticsAndHash) {
  const auto change = [](config::CollectConfig& config) {
    config.sketch = true;
    config.sketch_size = 64;
    config.sketch_seed = 5;
  };
  auto a = Floats({1.5F, -0.5F});
  const std::string text = LeafText(a->leaf, change);
  EXPECT_THAT(text, HasSubstr(R"("Max": 1.5, "Min": -0.5, "Mean": 0.5, "Norm": 1.58)"));
  std::string sketch;
  metrics::AppendSketch(sketch, metrics::SketchOf(a->view, {64, 5}));
  EXPECT_THAT(text, testing::EndsWith(fmt::format(R"("hash64": "{:016x}", "sketch": {}}})",
                                                  metrics::Hash64Of(a->view), sketch)));
  const auto document = json::ParseDocument(text);
  ASSERT_TRUE(document.ok());
  const auto read = metrics::ReadSketch(document->root());
  ASSERT_TRUE(read.ok() && read->has_value());
  EXPECT_NEAR((*read)->Norm(), std::sqrt(2.5), 1e-6);
}

TEST(SketchLeaf, OnlyWhereMemoryHasTheShapeThatIsShown) {
  const auto change = [](config::CollectConfig& config) { config.sketch = true; };
  auto a = Floats({1, 2, 3});
  const Shape sparse = {100, 100};
  a->leaf.shape = sparse;
  const std::string text = LeafText(a->leaf, change);
  EXPECT_THAT(text, HasSubstr("\"hash64\": "));
  EXPECT_THAT(text, testing::Not(HasSubstr("sketch")));
  a->leaf.view = nullptr;
  EXPECT_THAT(LeafText(a->leaf, change), testing::Not(HasSubstr("hash64")));
}

TEST(SketchLeaf, SlicedTensorsHaveTheSketchOfTheSlice) {
  const auto change = [](config::CollectConfig& config) {
    config.sketch = true;
    config.slice = {{.dim = 0, .begin = 1, .end = 3, .size = {}}};
  };
  auto a = Floats({1, 2, 3, 4}), part = Floats({2, 3});
  std::string sketch;
  metrics::AppendSketch(sketch, metrics::SketchOf(part->view, {}));
  EXPECT_THAT(LeafText(a->leaf, change), HasSubstr("\"sketch\": " + sketch));
}

TEST(SketchLeaf, NoneInAChecksForNan) {
  const auto change = [](config::CollectConfig& config) {
    config.sketch = true;
    config.task = config::Task::kNanCheck;
  };
  auto a = Floats({1, 2});
  const std::string text = LeafText(a->leaf, change);
  EXPECT_THAT(text, testing::Not(HasSubstr("sketch")));
  EXPECT_THAT(text, testing::Not(HasSubstr("hash64")));
}

}  // namespace
}  // namespace msprobe::collect
