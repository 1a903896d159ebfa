#include "app/engine.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <functional>
#include <set>

#include "app/compare_app.h"
#include "app/compare_fields.h"
#include "app/compare_items.h"
#include "app/item_stream.h"
#include "base/file.h"
#include "formats/tensor_file.h"

namespace msprobe::app {
namespace {

TEST(Wire, GivesBackWhatWasPacked) {
  compare::FirstBad bad = {"entry", std::string("row\0\xff", 5), "why", UINT64_MAX};
  std::vector<std::pair<std::string, double>> numbers = {{"a", -0.5}, {"b", 1e300}};
  std::string bytes;
  Packer pack(bytes);
  pack(bad, numbers);
  compare::FirstBad bad_back;
  std::vector<std::pair<std::string, double>> numbers_back;
  Unpacker unpack(bytes);
  unpack(bad_back, numbers_back);
  EXPECT_TRUE(unpack.done());
  EXPECT_EQ(bad_back.row, bad.row);
  EXPECT_EQ(bad_back.row_index, UINT64_MAX);
  EXPECT_EQ(numbers_back, numbers);
}

TEST(Wire, EveryPrefixAndEveryLengthThatLiesIsRefused) {
  std::vector<std::string> list = {"x", "yz"};
  const std::string bytes = Packed(list);
  for (size_t n = 0; n < bytes.size(); ++n) {
    EXPECT_FALSE(Unpacked<std::vector<std::string>>(bytes.substr(0, n))) << n;
  }
  EXPECT_FALSE(Unpacked<std::vector<std::string>>(bytes + "x"));
  EXPECT_FALSE(Unpacked<std::vector<std::string>>(std::string(8, '\xff')));
}

TEST(Wire, WordsThatNoEnumerationHasAreRefused) {
  const auto blob = [](uint64_t kind) {
    std::string bytes;
    for (const uint64_t word : {uint64_t{1}, kind, uint64_t{0}, uint64_t{5}}) {
      AppendWord(bytes, word);
    }
    return Unpacked<std::vector<BlobHead>>(bytes);
  };
  ASSERT_TRUE(blob(3));
  EXPECT_EQ(blob(3)->front().kind, BlobKind::kTests);
  EXPECT_FALSE(blob(4));
  EXPECT_FALSE(blob(256));  // which would be kFile in eight bits
  EXPECT_FALSE(blob(UINT64_MAX));
}

class Collector final : public ResultReader::Taker {
 public:
  Result<std::vector<BlobHead>> Head(std::string_view head) override {
    auto blobs = Unpacked<std::vector<BlobHead>>(head);
    if (!blobs) return Error(ErrorCode::kMalformed, "no heads");
    return *blobs;
  }
  Status Blob(const BlobHead& blob, std::string_view bytes) override {
    got += blob.name + "=" + std::string(bytes) + ";";
    return {};
  }
  std::string got;
};

std::string Stream(const std::vector<std::string>& texts) {
  std::string out;
  const std::function<Status(std::string_view)> emit = [&](std::string_view b) -> Status {
    out += b;
    return {};
  };
  ResultWriter writer(emit);
  std::vector<BlobHead> heads;
  for (const std::string& t : texts) heads.push_back({BlobKind::kFile, "f", t.size()});
  EXPECT_TRUE(writer.Head(Packed(heads)).ok());
  for (const std::string& t : texts) EXPECT_TRUE(writer.Text(t).ok());
  EXPECT_TRUE(writer.Finish().ok());
  return out;
}

TEST(ItemStream, ComesInAnyPieces) {
  const std::string bytes = Stream({"abc", "", "de"});
  for (const size_t piece : {size_t{1}, size_t{7}, bytes.size()}) {
    Collector taker;
    ResultReader reader(taker);
    for (size_t i = 0; i < bytes.size(); i += piece) {
      ASSERT_TRUE(reader.Add(std::string_view(bytes).substr(i, piece)).ok());
    }
    EXPECT_TRUE(reader.Finish().ok());
    std::string got;
    for (const char c : taker.got) got += c == 'f' || c == '=' || c == ';' ? "" : std::string(1, c);
    EXPECT_EQ(got, "abcde");
  }
}

TEST(ItemStream, WhatIsCutOrChangedIsRefused) {
  const std::string bytes = Stream({"abc"});
  const auto ok = [](const std::string& b) {
    Collector taker;
    ResultReader reader(taker);
    return reader.Add(b).ok() && reader.Finish().ok();
  };
  ASSERT_TRUE(ok(bytes));
  for (size_t i = 0; i < bytes.size(); ++i) {
    EXPECT_FALSE(ok(bytes.substr(0, i))) << i;
    std::string changed = bytes;
    changed[i] = static_cast<char>(changed[i] ^ 1);
    EXPECT_FALSE(ok(changed)) << i;
  }
  EXPECT_FALSE(ok(bytes + "x"));
}

// Runs items here, one after the other. An item that reads `poison` takes its worker down: that is
// found by running it with and without the file.
class HereEngine final : public Engine {
 public:
  HereEngine(CompareOptions options, std::string scratch)
      : options_(std::move(options)), scratch_(std::move(scratch)) {}
  std::string poison;
  unsigned slots = 1;
  size_t blocks = 0, given_up = 0;

  Result<unsigned> Slots() override { return slots; }
  Status Run(std::span<const WorkItem> items, ItemSink& sink, const CancelToken*) override {
    std::set<size_t> inputs;
    for (const WorkItem& item : items) inputs.insert(item.inputs.begin(), item.inputs.end());
    std::vector<std::string> results(items.size());
    for (size_t i = 0; i < items.size(); ++i) {
      std::vector<std::string> given;
      for (const size_t k : items[i].inputs) given.push_back(results[k]);
      std::optional<std::string> bytes = One(items[i].payload, given);
      if (bytes && !poison.empty()) {
        std::filesystem::rename(poison, poison + ".away");
        const std::optional<std::string> without = One(items[i].payload, given);
        std::filesystem::rename(poison + ".away", poison);
        if (without != bytes) bytes.reset();
      }
      given_up += !bytes;
      if (inputs.contains(i)) {
        ++blocks;
        results[i] = bytes.value_or("");
        continue;
      }
      if (!bytes) {
        MSPROBE_TRY(sink.Failed(i, "its worker was lost"));
        continue;
      }
      for (size_t at = 0; at < bytes->size(); at += 100) {
        MSPROBE_TRY(sink.Chunk(i, std::string_view(*bytes).substr(at, 100)));
      }
      MSPROBE_TRY(sink.Done(i));
    }
    return {};
  }

 private:
  std::optional<std::string> One(const std::string& payload,
                                 const std::vector<std::string>& given) {
    std::string bytes;
    std::filesystem::remove_all(scratch_);
    std::filesystem::create_directories(scratch_);
    ItemContext context = {given, scratch_, [&](std::string_view b) -> Status {
                             bytes += b;
                             return {};
                           }};
    if (!RunCompareItem(options_, payload, context).ok()) return std::nullopt;
    return bytes;
  }
  CompareOptions options_;
  std::string scratch_;
};

class EngineRun : public testing::Test {
 protected:
  static constexpr int kTensors = 8;
  void SetUp() override {
    folder_ = testing::TempDir() + "engine_" +
              testing::UnitTest::GetInstance()->current_test_info()->name();
    std::filesystem::remove_all(folder_);
    for (const char* side : {"t", "g"}) WriteSide(JoinPath(folder_, side), side[0] == 't');
  }
  static std::string File(int i) { return "Functional.relu." + std::to_string(i) + ".npy"; }
  static void WriteSide(const std::string& folder, bool target, const char* name = "rank0") {
    const std::string rank = JoinPath(folder, name);
    ASSERT_TRUE(CreateDirectories(JoinPath(rank, "dump_tensor_data")).ok());
    std::string data;
    for (int i = 0; i < kTensors; ++i) {
      const float wrong = target && i == 3 ? 2.0F : 1.0F;
      const std::array<float, 4> values = {1.0F * wrong, 2, 3, static_cast<float>(i)};
      const std::array<int64_t, 1> shape = {4};
      ASSERT_TRUE(formats::WriteNpy(JoinPath(rank, "dump_tensor_data/" + File(i)), DType::kF32,
                                    shape, std::as_bytes(std::span(values)))
                      .ok());
      data += (i == 0 ? "" : ",") + ("\"Functional.relu." + std::to_string(i)) +
              R"(.forward": {"input_args": [], "input_kwargs": {}, "output": [
                {"type": "torch.Tensor", "dtype": "torch.float32", "shape": [4], "Max": 3.0,
                 "Min": 1.0, "Mean": 2.0, "Norm": 4.0, "requires_grad": false,
                 "data_name": ")" +
              File(i) + "\"}]}";
    }
    auto file = AtomicFile::Create(JoinPath(rank, "dump.json"));
    ASSERT_TRUE(file.ok());
    ASSERT_TRUE(
        file->Write(R"({"task": "tensor", "level": "L1", "framework": "pytorch", "data": {)" +
                    data + "}}")
            .ok());
    ASSERT_TRUE(file->Commit().ok());
  }
  CompareOptions Options(const std::string& out) {
    CompareOptions options;
    options.target = JoinPath(folder_, "t");
    options.golden = JoinPath(folder_, "g");
    options.output_dir = JoinPath(folder_, out);
    options.culprit = CulpritChoice::kOff;
    options.rules = compare::RuleSet::kBase;
    options.json_path = JoinPath(folder_, out + ".jsonl");
    return options;
  }
  static Result<CompareRun> Run(const CompareOptions& options) {
    return Compare(options, NullLog(), NullProgress(), nullptr);
  }
  static std::string Csv(const CompareRun& run) {
    const auto text = ReadTextFile(run.ranks.at(0).reports.at(0), 1 << 20);
    return text.ok() ? *text : text.error().ToString();
  }
  std::string folder_;
};

TEST_F(EngineRun, GivesTheReportsOfThisProcessInBlocksToo) {
  const auto here = Run(Options("here"));
  ASSERT_TRUE(here.ok()) << here.error().ToString();
  EXPECT_EQ(here->counts.total, static_cast<uint64_t>(kTensors));
  CompareOptions options = Options("there");
  HereEngine engine(options, JoinPath(folder_, "scratch"));
  engine.slots = 4;
  options.engine = &engine;
  options.block_bytes = 300;  // of about 1.2 kB
  const auto there = Run(options);
  ASSERT_TRUE(there.ok()) << there.error().ToString();
  EXPECT_GT(engine.blocks, 1u);
  EXPECT_EQ(Csv(*there), Csv(*here));
  EXPECT_EQ(there->ranks[0].first_bad->entry, here->ranks[0].first_bad->entry);
  EXPECT_EQ(*ReadTextFile(options.json_path, 1 << 20),
            *ReadTextFile(Options("here").json_path, 1 << 20));
}

TEST_F(EngineRun, ATensorThatTakesItsWorkerDownBecomesARowWithTheReason) {
  CompareOptions options = Options("there");
  HereEngine engine(options, JoinPath(folder_, "scratch"));
  engine.poison = JoinPath(folder_, "t/rank0/dump_tensor_data/" + File(5));
  options.engine = &engine;
  const auto run = Run(options);
  ASSERT_TRUE(run.ok()) << run.error().ToString();
  EXPECT_EQ(run->counts.total, static_cast<uint64_t>(kTensors));
  EXPECT_EQ(run->counts.unmatched, 1u);
  ASSERT_EQ(run->ranks[0].not_compared.size(), 1u);
  EXPECT_EQ(run->ranks[0].not_compared[0].entries,
            std::vector<std::string>{"Functional.relu.5.forward"});
  EXPECT_NE(Csv(*run).find(File(5) + ": the worker that compared this tensor died each time"),
            std::string::npos);
}

TEST_F(EngineRun, APairThatDiesWithoutItsTensorsTooIsNamedAndTheOtherIsCompared) {
  for (const char* side : {"t", "g"}) {
    WriteSide(JoinPath(folder_, side), side[0] == 't', "rank1");
  }
  CompareOptions options = Options("there");
  HereEngine engine(options, JoinPath(folder_, "scratch"));
  engine.poison = JoinPath(folder_, "t/rank1/dump.json");  // read whatever is left out
  options.engine = &engine;
  MessageList log;
  const auto run = Compare(options, log, NullProgress(), nullptr);
  ASSERT_TRUE(run.ok()) << run.error().ToString();
  EXPECT_FALSE(run->ranks[0].error);
  ASSERT_TRUE(run->ranks[1].error);
  EXPECT_EQ(run->ranks[1].error->message, "its worker was lost");
  std::vector<std::string> told;
  for (const Message& m : log.Take()) {
    if (m.level == LogLevel::kError) told.push_back(m.text);
  }
  ASSERT_EQ(told.size(), 1u);
  EXPECT_NE(told[0].find("rank1"), std::string::npos) << told[0];
  EXPECT_NE(told[0].find("not compared: "), std::string::npos) << told[0];
}

TEST_F(EngineRun, APairThatIsWrongSaysSoItself) {
  std::filesystem::remove(JoinPath(folder_, "g/rank0/dump.json"));
  auto file = AtomicFile::Create(JoinPath(folder_, "g/rank0/dump.json"));
  ASSERT_TRUE(file.ok() && file->Write("{\"task\": 5}").ok() && file->Commit().ok());
  const auto here = Run(Options("here"));
  CompareOptions options = Options("there");
  HereEngine engine(options, JoinPath(folder_, "scratch"));
  options.engine = &engine;
  const auto there = Run(options);
  ASSERT_FALSE(here.ok());
  ASSERT_FALSE(there.ok());
  EXPECT_EQ(there.error().ToString(), here.error().ToString());
}

TEST(CompareItems, APayloadOfAnotherKindIsRefused) {
  const ItemContext context = {{}, "/nowhere", [](std::string_view) { return Status(); }};
  EXPECT_FALSE(RunCompareItem({}, "not an item", context).ok());
  EXPECT_FALSE(RunOverflowItem("", context).ok());
  EXPECT_FALSE(RunDifferenceItem({}, "x", context).ok());
}

}  // namespace
}  // namespace msprobe::app
