// The text of entries: leaves, parts, positions, checksums (dump.md 10.2, 11-13).
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <bit>
#include <cmath>

#include "collect/session_test.h"

namespace msprobe::collect {
namespace {

using config::Level;
using config::SummaryMode;
using config::Task;
using testing::ElementsAre;
using testing::HasSubstr;

constexpr char kOneLeaf[] =
    R"({"type": "torch.Tensor", "dtype": "torch.float32", "shape": [1], "Max": 1.0, )"
    R"("Min": 1.0, "Mean": 1.0, "Norm": 1.0, "requires_grad": false})";

std::unique_ptr<EntryBuilder> BeginAdd(Session& run) {
  int64_t number = 0;
  auto entry = run->BeginApi(run->RegisterApi("Torch", "add", Risk::kFocus), kNoStack, &number);
  EXPECT_NE(entry, nullptr);
  return entry;
}

// The leaf of `tensor` as dump.json shows it.
std::string LeafText(const TensorLeaf& leaf,
                     const std::function<void(config::CollectConfig&)>& change = {}) {
  Session run(change);
  run.Start();
  auto entry = BeginAdd(run);
  entry->BeginPart(Part::kOutput);
  entry->OpenList();
  entry->Tensor(leaf);
  entry->CloseList();
  entry->EndPart();
  entry->Commit();
  run->EndStep();
  const std::string text = EntryText(run.dump(), "Torch.add.0.forward");
  const std::string head = "{\"output\": [";
  EXPECT_TRUE(text.starts_with(head) && text.ends_with("]}")) << text;
  return text.substr(head.size(), text.size() - head.size() - 2);
}

auto Summary(SummaryMode mode) {
  return [mode](config::CollectConfig& config) { config.summary_mode = mode; };
}

// The sample entry of dump.md 11.2: values 1.5 and -0.5, norm sqrt(2.5).
TEST(Entry, SampleOfTheSpecification) {
  Session run;
  run.Start();
  auto a = Floats({1.5F, -0.5F});
  a->leaf.requires_grad = true;
  auto entry = BeginAdd(run);
  entry->BeginPart(Part::kInputArgs);
  entry->OpenList();
  entry->Tensor(a->leaf);
  entry->Scalar("int", "3");
  entry->CloseList();
  entry->EndPart();
  entry->BeginPart(Part::kInputKwargs);
  entry->OpenObject();
  entry->Key("alpha");
  entry->Scalar("float", "0.25");
  entry->CloseObject();
  entry->EndPart();
  entry->BeginPart(Part::kOutput);
  entry->OpenList();
  entry->Null();
  entry->CloseList();
  entry->EndPart();
  entry->Commit();
  run->EndStep();
  EXPECT_EQ(
      EntryText(run.dump(), "Torch.add.0.forward"),
      R"({"input_args": [{"type": "torch.Tensor", "dtype": "torch.float32", "shape": [2], )"
      R"("Max": 1.5, "Min": -0.5, "Mean": 0.5, "Norm": 1.5811388300841898, "requires_grad": true}, )"
      R"({"type": "int", "value": 3}], "input_kwargs": {"alpha": {"type": "float", "value": 0.25}}, )"
      R"("output": [null]})");
}

TEST(Entry, IntegersAndBoolsKeepTheirOwnTypes) {
  const auto ints = Host<int64_t>(DType::kI64, {2, 2}, {3, -4, 0, 1});
  EXPECT_THAT(
      LeafText(ints->leaf),
      HasSubstr(
          R"("shape": [2, 2], "Max": 3, "Min": -4, "Mean": 0.0, "Norm": 5.0990195135927845)"));
  const auto bools = Host<uint8_t>(DType::kBool, {3}, {1, 0, 1});
  EXPECT_THAT(
      LeafText(bools->leaf),
      HasSubstr(
          R"("Max": true, "Min": false, "Mean": null, "Norm": null, "requires_grad": false})"));
}

TEST(Entry, WithoutMemoryStatisticsAreNull) {
  TensorLeaf leaf;
  const Shape shape = {2, 3};
  leaf.type = "torch._subclasses.fake_tensor.FakeTensor";
  leaf.dtype_text = "torch.bfloat16";
  leaf.shape = shape;
  EXPECT_EQ(
      LeafText(leaf),
      R"({"type": "torch._subclasses.fake_tensor.FakeTensor", "dtype": "torch.bfloat16", "shape": [2, 3], )"
      R"("Max": null, "Min": null, "Mean": null, "Norm": null, "requires_grad": false})");
}

TEST(Entry, DTensorKeysFollowRequiresGrad) {
  auto a = Floats({1});
  a->leaf.extra_json = R"("device_mesh": [0, 1], "placements": [{"Replicate": {}}])";
  EXPECT_THAT(
      LeafText(a->leaf),
      HasSubstr(
          R"("requires_grad": false, "device_mesh": [0, 1], "placements": [{"Replicate": {}}]})"));
}

TEST(Entry, NonFiniteValuesAreTokensWithCountsAfterwards) {
  const float nan = std::nanf(""), inf = INFINITY;
  const auto a = Floats({nan, 2, inf, -3});
  EXPECT_EQ(
      LeafText(a->leaf),
      R"({"type": "torch.Tensor", "dtype": "torch.float32", "shape": [4], "Max": NaN, "Min": NaN, )"
      R"("Mean": NaN, "Norm": NaN, "requires_grad": false, "nan": 1, "inf": 1, "finite_max": 2.0, )"
      R"("finite_min": -3.0})");
  const auto b = Floats({-inf, -inf});
  EXPECT_THAT(
      LeafText(b->leaf),
      HasSubstr(R"("Max": -Infinity, "Min": -Infinity, "Mean": -Infinity, "Norm": Infinity, )"
                R"("requires_grad": false, "nan": 0, "inf": 2})"));
}

// CRC values observed with upstream 26.2.0.
TEST(Entry, Md5IsTheCrcOfRowMajorBytesAndStandsLast) {
  auto transposed = Floats({1, 1, 1, 1, 1, 1});
  const Shape shape = {2, 3};
  const std::vector<int64_t> strides = {1, 2};
  transposed->view.shape = transposed->leaf.shape = shape;
  transposed->view.strides = strides;
  EXPECT_THAT(LeafText(transposed->leaf, Summary(SummaryMode::kMd5)),
              testing::EndsWith(R"("requires_grad": false, "md5": "29dd1225"})"));
  const auto scalar = Host<int64_t>(DType::kI64, {}, {-2});
  EXPECT_THAT(LeafText(scalar->leaf, Summary(SummaryMode::kMd5)),
              HasSubstr(R"("md5": "edeedf82")"));
  const auto bytes = Host<int8_t>(DType::kI8, {3}, {1, 2, 3});
  EXPECT_THAT(LeafText(bytes->leaf, Summary(SummaryMode::kMd5)), HasSubstr(R"("md5": "55bc801d")"));
  const auto empty = Host<float>(DType::kF32, {0}, {});
  EXPECT_THAT(LeafText(empty->leaf, Summary(SummaryMode::kMd5)), HasSubstr(R"("md5": "00000000")"));
  TensorLeaf none;
  none.dtype_text = "torch.float32";
  EXPECT_THAT(LeafText(none, Summary(SummaryMode::kMd5)), HasSubstr(R"("md5": null})"));
}

// Values observed with upstream 26.2.0.
TEST(Entry, XorReplacesStatistics) {
  const auto mode = Summary(SummaryMode::kXor);
  const auto six = Host<float>(DType::kF32, {3, 2}, {1, 1, 1, 1, 1, 1});
  EXPECT_EQ(LeafText(six->leaf, mode),
            R"({"type": "torch.Tensor", "dtype": "torch.float32", "shape": [3, 2], )"
            R"("md5": "0x3f8000003f800000", "requires_grad": false})");
  const auto md5 = [&](const HostTensor& tensor) {
    const std::string text = LeafText(tensor.leaf, mode);
    const size_t begin = text.find("\"md5\": ") + 7;
    return text.substr(begin, text.find(", \"requires_grad\"") - begin);
  };
  EXPECT_EQ(md5(*Host<int32_t>(DType::kI32, {}, {-1})), "\"0xffffffffffffffff\"");
  EXPECT_EQ(md5(*Host<int8_t>(DType::kI8, {}, {-3})), "\"0xfffffffffffffffd\"");
  EXPECT_EQ(md5(*Host<uint8_t>(DType::kU8, {}, {200})), "\"0x00000000000000c8\"");
  EXPECT_EQ(md5(*Host<uint8_t>(DType::kBool, {}, {1})), "\"0x0000000000000001\"");
  EXPECT_EQ(md5(*Host<double>(DType::kF64, {}, {1.5})), "1.5");
  EXPECT_EQ(md5(*Host<float>(DType::kF32, {}, {std::nanf("")})), "NaN");
  EXPECT_EQ(md5(*Host<float>(DType::kF32, {1}, {1.5F})), "\"0x000000003fc00000\"");
  EXPECT_EQ(md5(*Host<int8_t>(DType::kI8, {3}, {1, 2, 3})), "\"0x0000000000030201\"");
  EXPECT_EQ(md5(*Host<float>(DType::kC64, {1}, {1, 2})), "\"0x400000003f800000\"");
  EXPECT_EQ(md5(*Host<float>(DType::kF32, {0}, {})), "null");
  EXPECT_EQ(md5(*Host<uint8_t>(DType::kF8E4M3FN, {1}, {7})), "null");
}

TEST(Entry, Hash64SeesOrderAndHasAFormOfItsOwn) {
  const auto mode = Summary(SummaryMode::kHash64);
  const std::string ab = LeafText(Floats({1, 2})->leaf, mode);
  const std::string ba = LeafText(Floats({2, 1})->leaf, mode);
  EXPECT_THAT(ab, testing::ContainsRegex(R"("md5": "h64:[0-9a-f]{16}"\})"));
  EXPECT_THAT(ab, HasSubstr(R"("Max": 2.0)"));
  EXPECT_NE(ab, ba);
}

TEST(Entry, SliceRestrictsShapeStatisticsAndChecksum) {
  const auto a = Host<float>(DType::kF32, {2, 3}, {1, 2, 3, 4, 5, 6});
  const auto sliced = [&](config::SliceItem item, int64_t second_dim = 9) {
    return LeafText(a->leaf, [&](config::CollectConfig& config) {
      config.slice = {item, {.dim = second_dim, .begin = 0, .end = 1, .size = {}}};
    });
  };
  // Columns 1 and 2: values 2, 3, 5, 6.
  EXPECT_THAT(sliced({.dim = 1, .begin = -2, .end = {}, .size = {}}),
              HasSubstr(R"("shape": [2, 2], "Max": 6.0, "Min": 2.0, "Mean": 4.0,)"));
  EXPECT_THAT(sliced({.dim = 1, .begin = 0, .end = 2, .size = 4}), HasSubstr(R"("shape": [2, 3])"));
  EXPECT_THAT(sliced({.dim = 1, .begin = 2, .end = 2, .size = 3}),
              HasSubstr(R"("shape": [2, 0], "Max": null)"));
  EXPECT_THAT(sliced({.dim = 1, .begin = 2, .end = {}, .size = {}}, 0),
              HasSubstr(R"("shape": [1, 1], "Max": 3.0, "Min": 3.0)"));
}

// ---- structure of entries
// --------------------------------------------------------------------------

TEST(Entry, AbsentLeavesAreNullAndExplainedByPath) {
  Session run;
  run.Start();
  auto entry = BeginAdd(run);
  entry->BeginPart(Part::kInputArgs);
  entry->OpenList();
  entry->Null();
  entry->OpenList();
  entry->AbsentLeaf(Absent::kUnsupported, "layout \"x\"");
  entry->CloseList();
  entry->CloseList();
  entry->EndPart();
  entry->BeginPart(Part::kInputKwargs);
  entry->OpenObject();
  entry->Key("weight");
  entry->AbsentLeaf(Absent::kInternal, "boom");
  entry->CloseObject();
  entry->EndPart();
  entry->Extra("recompute_of", "\"Torch.add.7.forward\"");
  entry->Commit();
  run->EndStep();
  EXPECT_EQ(EntryText(run.dump(), "Torch.add.0.forward"),
            R"({"input_args": [null, [null]], "input_kwargs": {"weight": null}, )"
            R"("recompute_of": "Torch.add.7.forward", "absent": {)"
            R"("input.1.0": {"code": "unsupported", "reason": "layout \"x\""}, )"
            R"("kwargs.weight": {"code": "internal", "reason": "boom"}}})");
  EXPECT_EQ(Json(run.dump())["msprobe"]["counts"]["failed"].GetInt(),
            1);  // "unsupported" is no failure
}

TEST(Entry, CallsThatDoNotFitNeverSpoilTheJson) {
  Session run;
  run.Start();
  auto entry = BeginAdd(run);
  entry->Null();  // outside any part
  entry->CloseList();
  entry->Key("stray");
  entry->BeginPart(Part::kInputArgs);
  entry->OpenList();
  entry->OpenObject();
  entry->Null();  // without a key
  entry->Key("a");
  entry->Key("b");  // "a" gets null
  entry->OpenList();
  entry->CloseObject();  // not the innermost
  entry->Null();
  entry->BeginPart(Part::kOutput);  // closes everything
  entry->OpenList();
  entry->CloseList();
  entry->OpenList();  // a second value at the root
  entry->Null();
  entry->CloseList();
  entry->BeginPart(Part::kInputKwargs);
  entry->OpenObject();
  entry->Key("last");
  entry->Commit();
  entry->Null();
  entry->Commit();
  run->EndStep();
  EXPECT_EQ(
      EntryText(run.dump(), "Torch.add.0.forward"),
      R"({"input_args": [{"a": null, "b": [null]}], "output": [], "input_kwargs": {"last": null}})");
  Json(run.dump());
}

TEST(Entry, NestingBeyond400BecomesNullWithAReason) {
  Session run;
  run.Start();
  auto entry = BeginAdd(run);
  entry->BeginPart(Part::kInputArgs);
  for (int k = 0; k < 405; ++k) entry->OpenList();
  entry->Null();
  for (int k = 0; k < 405; ++k) entry->CloseList();
  entry->EndPart();
  entry->Commit();
  run->EndStep();
  const std::string text = EntryText(run.dump(), "Torch.add.0.forward");
  EXPECT_THAT(text, HasSubstr(std::string(400, '[') + "null" + std::string(400, ']')));
  EXPECT_THAT(text, HasSubstr("nested deeper than 400 levels"));
}

TEST(Entry, DataModeLeavesPartsOut) {
  const auto text = [](bool input, bool output) {
    Session run([&](config::CollectConfig& config) {
      config.level = Level::kL0;
      config.input = input;
      config.output = output;
      config.data_mode_all = false;
    });
    run.Start();
    const auto call = run->EnterModule(run->RegisterModule("fc", "Linear"), kNoStack);
    auto entry = run->BeginModule(call);
    run.Describe(*entry, {Part::kInputArgs, Part::kInputKwargs, Part::kOutput, Part::kParameters});
    entry->Commit();
    run->LeaveModule(call);
    run->EndStep();
    return EntryText(run.dump(), "Module.fc.Linear.forward.0");
  };
  const std::string leaf = fmt::format("[{}]", kOneLeaf);
  EXPECT_EQ(text(true, false), "{\"input_args\": " + leaf + ", \"input_kwargs\": " + leaf + "}");
  EXPECT_EQ(text(false, true), "{\"output\": " + leaf + ", \"parameters\": " + leaf + "}");
}

TEST(Entry, AnEntryWithoutAnyPartIsNotWritten) {
  Session run([](config::CollectConfig& config) { config.output = false; });
  run.Start();
  auto entry = BeginAdd(run);
  run.Describe(*entry, {Part::kOutput});
  entry->Commit();
  EXPECT_TRUE(run.Call("Torch", "mul"));
  run->EndStep();
  EXPECT_THAT(Names(run.dump()), ElementsAre("Torch.mul.0.forward"));
}

// "mutated" stands after the outputs and is left out with them.
TEST(Entry, ChangedArgumentsFollowTheOutputs) {
  for (const bool output : {true, false}) {
    Session run([&](config::CollectConfig& config) { config.output = output; });
    run.Start();
    auto entry = BeginAdd(run);
    entry->BeginPart(Part::kOutput);
    entry->OpenList();
    entry->Null();
    entry->CloseList();
    entry->EndPart();
    entry->BeginPart(Part::kMutated);
    entry->OpenObject();
    entry->Key("input.0");
    entry->Raw("{\"same_as\": \"output.0\"}");
    entry->CloseObject();
    entry->EndPart();
    entry->BeginPart(Part::kInputArgs);
    entry->Null();
    entry->EndPart();
    entry->Commit();
    run->EndStep();
    EXPECT_EQ(EntryText(run.dump(), "Torch.add.0.forward"),
              output ? R"({"output": [null], "mutated": {"input.0": {"same_as": "output.0"}}, )"
                       R"("input_args": null})"
                     : R"({"input_args": null})");
  }
}

TEST(Entry, NanCheckFlagsNonFiniteOutputs) {
  Session run([](config::CollectConfig& config) { config.task = Task::kNanCheck; });
  run.Start();
  const auto bad = Floats({INFINITY});
  for (const bool in_output : {false, true}) {
    auto entry = BeginAdd(run);
    for (const Part part : {Part::kInputArgs, Part::kOutput}) {
      entry->BeginPart(part);
      entry->OpenList();
      entry->Tensor((part == Part::kOutput) == in_output ? bad->leaf : run.one->leaf);
      entry->CloseList();
      entry->EndPart();
    }
    entry->Commit();
  }
  run->EndStep();
  EXPECT_EQ(
      EntryText(run.dump(), "Torch.add.0.forward"),
      R"({"input_args": [{"type": "torch.Tensor", "dtype": "torch.float32", "shape": [1], "requires_grad": false, "nan": 0, "inf": 1}], )"
      R"("output": [{"type": "torch.Tensor", "dtype": "torch.float32", "shape": [1], "requires_grad": false}], "is_nan": 0})");
  EXPECT_THAT(EntryText(run.dump(), "Torch.add.1.forward"), testing::EndsWith("\"is_nan\": 1}"));
}

// ---- tensor files
// ----------------------------------------------------------------------------------

std::vector<std::string> TensorFiles(const Session& run) {
  std::vector<std::string> names;
  for (const auto& item :
       std::filesystem::directory_iterator(run.Path("step0/rank/dump_tensor_data")))
    names.push_back(item.path().filename().string());
  std::sort(names.begin(), names.end());
  return names;
}

void SaveAll(config::CollectConfig& config) { config.task = Task::kTensor; }

TEST(TensorFiles, NamesListPositionsAndKeysFromOutsideIn) {
  Session run(SaveAll);
  run.Start();
  auto entry = BeginAdd(run);
  const TensorLeaf& leaf = run.one->leaf;
  entry->BeginPart(Part::kInputArgs);  // ([x, y], z)
  entry->OpenList();
  entry->OpenList();
  entry->Tensor(leaf);
  entry->Tensor(leaf);
  entry->CloseList();
  entry->Tensor(leaf);
  entry->CloseList();
  entry->EndPart();
  entry->BeginPart(Part::kInputKwargs);  // weight=x, more={"k": (y,)}
  entry->OpenObject();
  entry->Key("weight");
  entry->Tensor(leaf);
  entry->Key("more");
  entry->OpenObject();
  entry->Key("k");
  entry->OpenList();
  entry->Tensor(leaf);
  entry->CloseList();
  entry->CloseObject();
  entry->CloseObject();
  entry->EndPart();
  entry->BeginPart(Part::kOutput);  // a list output: [[x, y]]
  entry->OpenList();
  entry->OpenList();
  entry->Tensor(leaf);
  entry->Tensor(leaf);
  entry->CloseList();
  entry->CloseList();
  entry->EndPart();
  entry->Commit();
  entry = BeginAdd(run);
  entry->BeginPart(Part::kOutput);  // a namedtuple output
  entry->OpenObject();
  entry->Key("values");
  entry->Tensor(leaf);
  entry->CloseObject();
  entry->EndPart();
  entry->Commit();
  run->EndStep();
  EXPECT_THAT(
      TensorFiles(run),
      ElementsAre("Torch.add.0.forward.input.0.0.pt", "Torch.add.0.forward.input.0.1.pt",
                  "Torch.add.0.forward.input.1.pt", "Torch.add.0.forward.kwargs.more.k.0.pt",
                  "Torch.add.0.forward.kwargs.weight.pt", "Torch.add.0.forward.output.0.0.pt",
                  "Torch.add.0.forward.output.0.1.pt", "Torch.add.1.forward.output.values.pt"));
  EXPECT_THAT(
      EntryText(run.dump(), "Torch.add.1.forward"),
      HasSubstr(R"("requires_grad": false, "data_name": "Torch.add.1.forward.output.values.pt"})"));
  EXPECT_EQ(Json(run.dump())["dump_data_dir"].GetString(), run.Path("step0/rank/dump_tensor_data"));
}

TEST(TensorFiles, NeitherKeyNorFileWithoutContent) {
  Session run(SaveAll);
  run.Start();
  const auto empty = Host<float>(DType::kF32, {0}, {});
  TensorLeaf meta;
  meta.dtype_text = "torch.float32";
  auto entry = BeginAdd(run);
  entry->BeginPart(Part::kOutput);
  entry->OpenList();
  entry->Tensor(empty->leaf);
  entry->Tensor(meta);
  entry->CloseList();
  entry->EndPart();
  entry->Commit();
  run->EndStep();
  EXPECT_THAT(EntryText(run.dump(), "Torch.add.0.forward"), testing::Not(HasSubstr("data_name")));
  EXPECT_FALSE(PathExists(run.Path("step0/rank/dump_tensor_data")));
}

TEST(TensorFiles, OddCharactersCaseAndLengthInKeys) {
  Session run(SaveAll);
  run.Start();
  const std::string longest(250, 'k');
  auto entry = BeginAdd(run);
  entry->BeginPart(Part::kInputKwargs);
  entry->OpenObject();
  for (const std::string& key :
       {std::string("a/../b c"), std::string("über"), std::string("X"), std::string("x"),
        longest + "1", longest + "2", std::string("~%")}) {
    entry->Key(key);
    entry->Tensor(run.one->leaf);
  }
  entry->CloseObject();
  entry->EndPart();
  entry->Commit();
  run->EndStep();
  const std::string text = EntryText(run.dump(), "Torch.add.0.forward");
  EXPECT_THAT(text, HasSubstr("\"Torch.add.0.forward.kwargs.a%2F..%2Fb%20c.pt\""));
  EXPECT_THAT(text, HasSubstr("\"Torch.add.0.forward.kwargs.\\u00fcber.pt\""));
  EXPECT_THAT(text, HasSubstr("\"Torch.add.0.forward.kwargs.X.pt\""));
  EXPECT_THAT(text, HasSubstr("\"Torch.add.0.forward.kwargs.x~2.pt\""));
  EXPECT_THAT(text, HasSubstr("\"Torch.add.0.forward.kwargs.%7E%25.pt\""));
  const std::vector<std::string> files = TensorFiles(run);
  EXPECT_EQ(files.size(), 7u);
  EXPECT_THAT(files, testing::Contains("Torch.add.0.forward.kwargs.über.pt"));
  for (const std::string& file : files) {
    EXPECT_LE(file.size(), 203u);
    if (file.size() > 100) {
      EXPECT_THAT(file, testing::ContainsRegex("~[0-9a-f]{16}~"));
    }
  }
}

TEST(TensorFiles, TensorListSavesOnlyMatchingEntries) {
  Session run([](config::CollectConfig& config) { config.tensor_list = {"mul"}; });
  run.Start();
  run.Call("Torch", "add");
  run.Call("Torch", "mul");
  run->EndStep();
  EXPECT_THAT(TensorFiles(run),
              ElementsAre("Torch.mul.0.forward.input.0.pt", "Torch.mul.0.forward.output.0.pt"));
  EXPECT_TRUE(Json(run.dump())["dump_data_dir"].IsString());
}

TEST(TensorFiles, AVanishedFolderStopsTensorsWithOneLineAndStatisticsGoOn) {
  Session run(SaveAll);
  run.Start();
  run.Call("Torch", "add");
  run->Stop();  // waits for its files
  run.Start();
  const std::string folder = run.Path("step0/rank/dump_tensor_data");
  std::filesystem::remove_all(folder);
  WriteFile(folder, "no folder any more");
  run.Call("Torch", "add");
  run.Call("Torch", "add");
  run->EndStep();
  EXPECT_EQ(run.log.Count(LogLevel::kError, ""), 1u) << run.log.All();
  EXPECT_EQ(run.log.Count(LogLevel::kError, "statistics go on"), 1u);
  for (const char* name : {"Torch.add.1.forward", "Torch.add.2.forward"}) {
    const std::string text = EntryText(run.dump(), name);
    EXPECT_THAT(text, HasSubstr(R"("Max": 1.0)"));
    EXPECT_THAT(text, testing::Not(HasSubstr("data_name")));
    EXPECT_THAT(text, HasSubstr(R"("input.0": {"code": "write_failed")"));
    EXPECT_THAT(text, HasSubstr(R"("output.0": {"code": "write_failed")"));
  }
  EXPECT_EQ(Json(run.dump())["msprobe"]["counts"]["failed"].GetInt(), 4);
}

}  // namespace
}  // namespace msprobe::collect
