// Leaves whose elements come later: statistics that a device computed, or a copy of the elements.
#include <gmock/gmock.h>

#include <cmath>

#include "collect/session_test.h"

namespace msprobe::collect {
namespace {

using config::SummaryMode;
using config::Task;

std::unique_ptr<EntryBuilder> BeginAdd(Session& run) {
  int64_t number = 0;
  auto entry = run->BeginApi(run->RegisterApi("Torch", "add", Risk::kFocus), kNoStack, &number);
  EXPECT_NE(entry, nullptr);
  return entry;
}

auto Summary(SummaryMode mode) {
  return [mode](config::CollectConfig& config) { config.summary_mode = mode; };
}

// Statistics that a device computes arrive when the entry is complete otherwise.
TEST(Deferred, StatisticsThatComeLaterStandWhereTheyBelong) {
  Session run;
  run.Start();
  const std::vector<int64_t> shape = {2};
  TensorLeaf leaf;
  leaf.dtype_text = "torch.float32";
  leaf.shape = shape;
  auto entry = BeginAdd(run);
  entry->BeginPart(Part::kOutput);
  entry->OpenList();
  ASSERT_EQ(entry->CanDefer(), Deferral::kStatistics);
  EXPECT_EQ(entry->DeferredTensor(leaf), 0u);
  entry->Scalar("int", "7");
  EXPECT_EQ(entry->DeferredTensor(leaf), 1u);
  entry->CloseList();
  entry->EndPart();
  metrics::TensorStats stats;
  stats.max = 3.0;
  stats.min = stats.mean = -1.0;
  stats.norm = 5.0;
  stats.inf = 1;
  stats.finite_max = stats.finite_min = 2.0;
  entry->Settle(0, stats);
  entry->Settle(2, stats);  // there is none: nothing happens
  entry->Commit();
  run->EndStep();
  const std::string head = R"({"type": "torch.Tensor", "dtype": "torch.float32", "shape": [2], )";
  EXPECT_EQ(
      EntryText(run.dump(), "Torch.add.0.forward"),
      R"({"output": [)" + head +
          R"("Max": 3.0, "Min": -1.0, "Mean": -1.0, "Norm": 5.0, "requires_grad": false, )"
          R"("nan": 0, "inf": 1, "finite_max": 2.0, "finite_min": 2.0}, )"
          R"({"type": "int", "value": 7}, )" +
          head +
          R"("Max": null, "Min": null, "Mean": null, "Norm": null, "requires_grad": false}]})");
}

// Checksums, hashes, sketches, slices and files of elements that come later are those of elements
// that are there: the same text, the same files.
TEST(Deferred, ElementsThatComeLaterGiveTheSameEntry) {
  using Change = std::function<void(config::CollectConfig&)>;
  const std::vector<std::pair<std::string, Change>> kinds = {
      {"statistics", [](config::CollectConfig&) {}},
      {"md5", Summary(SummaryMode::kMd5)},
      {"xor", Summary(SummaryMode::kXor)},
      {"hash64", Summary(SummaryMode::kHash64)},
      {"full", [](config::CollectConfig& c) { c.evidence = config::Evidence::kFull; }},
      {"sketch", [](config::CollectConfig& c) { c.sketch = true; }},
      {"slice", [](config::CollectConfig& c) { c.slice = {{0, 1, std::nullopt, std::nullopt}}; }},
      {"tensor", [](config::CollectConfig& c) { c.task = Task::kTensor; }},
      {"some tensors", [](config::CollectConfig& c) { c.tensor_list = {"add"}; }}};
  const std::vector<float> x = {1, -2, INFINITY, 4, 5, 6};
  const std::vector<int64_t> shape = {3, 2};
  const TensorView view{reinterpret_cast<const std::byte*>(x.data()), DType::kF32, shape, {}};
  for (const auto& [name, change] : kinds) {
    SCOPED_TRACE(name);
    std::vector<std::string> texts, files;
    for (const bool later : {false, true}) {
      Session run(change);
      run.Start();
      TensorLeaf leaf;
      leaf.dtype_text = "torch.float32";
      leaf.shape = shape;
      leaf.requires_grad = true;
      if (!later) leaf.view = &view;
      auto entry = BeginAdd(run);
      entry->BeginPart(Part::kOutput);
      entry->OpenList();
      if (later) {
        EXPECT_EQ(entry->CanDefer(),
                  name == "statistics" ? Deferral::kStatistics : Deferral::kElements);
        EXPECT_EQ(entry->DeferredTensor(leaf), 0u);
      } else {
        entry->Tensor(leaf);
      }
      entry->Scalar("int", "7");
      entry->CloseList();
      entry->EndPart();
      if (later) entry->Settle(0, view);
      entry->Commit();
      run->EndStep();
      texts.push_back(EntryText(run.dump(), "Torch.add.0.forward"));
      files.push_back(
          ReadFile(run.Path("step0/rank/dump_tensor_data/Torch.add.0.forward.output.0.pt")));
    }
    EXPECT_EQ(texts[0], texts[1]);
    EXPECT_EQ(files[0], files[1]);
    EXPECT_EQ(files[0].empty(), !(name == "tensor" || name == "some tensors"));
  }
}

// What was never settled is null, and names no file.
TEST(Deferred, ElementsThatNeverComeAreNull) {
  Session run([](config::CollectConfig& config) {
    config.task = Task::kTensor;
    config.summary_mode = SummaryMode::kMd5;
  });
  run.Start();
  const std::vector<int64_t> shape = {2};
  TensorLeaf leaf;
  leaf.dtype_text = "torch.float32";
  leaf.shape = shape;
  auto entry = BeginAdd(run);
  entry->BeginPart(Part::kOutput);
  EXPECT_EQ(entry->DeferredTensor(leaf), 0u);
  entry->Commit();
  run->EndStep();
  EXPECT_EQ(EntryText(run.dump(), "Torch.add.0.forward"),
            R"({"output": {"type": "torch.Tensor", "dtype": "torch.float32", "shape": [2], )"
            R"("Max": null, "Min": null, "Mean": null, "Norm": null, "requires_grad": false, )"
            R"("md5": null}})");
}

// What decides by the elements what becomes of an entry cannot wait, nor a leaf without a place.
TEST(Deferred, ChecksCannotWaitForElements) {
  for (const Task task : {Task::kNanCheck, Task::kOverflowCheck}) {
    Session run([&](config::CollectConfig& config) { config.task = task; });
    run.Start();
    auto entry = BeginAdd(run);
    entry->BeginPart(Part::kOutput);
    EXPECT_EQ(entry->CanDefer(), Deferral::kNone);
    EXPECT_EQ(entry->DeferredTensor({}), UINT32_MAX);
  }
  Session run;
  run.Start();
  auto entry = BeginAdd(run);
  EXPECT_EQ(entry->CanDefer(), Deferral::kNone);  // outside of a part
}

}  // namespace
}  // namespace msprobe::collect
