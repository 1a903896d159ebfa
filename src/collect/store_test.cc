// Tensor files in the background, the checks that decide which entries and tensors are kept, and
// processes that are ended.
#include <gmock/gmock.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>

#include "collect/session_test.h"
#include "collect/tensor_store.h"
#include "formats/tensor_file.h"

namespace msprobe::collect {
namespace {

using config::SummaryMode;
using config::Task;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;
using testing::UnorderedElementsAre;
using Change = config::CollectConfig&;

constexpr char kTensors[] = "step0/rank/dump_tensor_data";

std::vector<float> Stored(const std::string& path) {
  auto file = formats::TensorFile::Open(path);
  EXPECT_TRUE(file.ok()) << path;
  if (!file.ok() || file->tensors().size() != 1) return {};
  std::vector<float> values(static_cast<size_t>(file->tensors()[0].num_elements));
  EXPECT_TRUE(file->ReadElements(file->tensors()[0], 0, file->tensors()[0].num_elements,
                                 reinterpret_cast<std::byte*>(values.data()))
                  .ok());
  return values;
}

std::vector<std::string> FilesIn(const std::string& folder) {
  std::vector<std::string> names;
  std::error_code error;
  for (const auto& item : std::filesystem::directory_iterator(folder, error))
    names.push_back(item.path().filename().string());
  std::sort(names.begin(), names.end());
  return names;
}

// One call whose input and output are these.
void CallWith(Session& run, std::string name, const HostTensor& input, const HostTensor& output) {
  int64_t number = 0;
  auto entry =
      run->BeginApi(run->RegisterApi("Torch", std::move(name), Risk::kFocus), kNoStack, &number);
  ASSERT_NE(entry, nullptr);
  for (const auto& [part, tensor] :
       {std::pair{Part::kInputArgs, &input}, std::pair{Part::kOutput, &output}}) {
    entry->BeginPart(part);
    entry->OpenList();
    entry->Tensor(tensor->leaf);
    entry->CloseList();
    entry->EndPart();
  }
  entry->Commit();
}

void SaveAll(Change c) { c.task = Task::kTensor; }

TEST(Background, FilesHoldTheValueOfTheMoment) {
  for (const bool async : {false, true}) {
    Session run([&](Change c) {
      c.task = Task::kTensor;
      c.async_dump = async;
    });
    run.Start();
    for (int k = 0; k < 200; ++k) {
      run.one = Floats({static_cast<float>(k)});
      run.Call("Torch", "add");
      reinterpret_cast<float*>(run.one->bytes.data())[0] = -1;  // changed right after the call
    }
    run->EndStep();
    EXPECT_EQ(Names(run.dump()).size(), 200u);
    for (const int k : {0, 1, 57, 199}) {
      const std::string path = run.Path(std::string(kTensors) + "/Torch.add." + std::to_string(k) +
                                        ".forward.output.0.pt");
      EXPECT_THAT(Stored(path), ElementsAre(static_cast<float>(k)));
    }
    EXPECT_EQ(FilesIn(run.Path(kTensors)).size(), 400u);
  }
}

TEST(Background, MoreThanTheQueueHoldsIsWrittenWhole) {
  Session run(SaveAll);
  run.Start();
  // 16 MiB each, in and out: three times the queue.
  constexpr size_t kElements = 4 << 20;
  for (int k = 0; k < 12; ++k) {
    run.one = Floats(std::vector<float>(kElements, static_cast<float>(k)));
    run.Call("Torch", "add");
  }
  run->EndStep();
  EXPECT_EQ(FilesIn(run.Path(kTensors)).size(), 24u);
  const auto last = Stored(run.Path(std::string(kTensors) + "/Torch.add.11.forward.input.0.pt"));
  EXPECT_EQ(last.size(), kElements);
  EXPECT_EQ(last.back(), 11.0f);
}

// Killed at any moment, every file that a record names is there and whole.
TEST(Background, AKilledProcessNamesNoFileThatIsNotThere) {
  for (const int calls : {1, 3, 10, 40}) {
    Session run(SaveAll);
    run.collector.reset();
    const pid_t child = fork();
    if (child == 0) {
      run.Restart();
      run.Start();
      run.one = Floats(std::vector<float>(1 << 18, 5.0f));
      for (int k = 0; k < calls; ++k) run.Call("Torch", "add");
      kill(getpid(), SIGKILL);
    }
    int status = 0;
    waitpid(child, &status, 0);
    ASSERT_TRUE(WIFSIGNALED(status));
    size_t entries = 0, named = 0;
    const auto info = dump::ReadDump(run.dump(), [&](std::string_view, const json::Value& value) {
      ++entries;
      for (const char* part : {"input_args", "output"}) {
        const json::Value* name = (*value.Find(part))[0].Find("data_name");
        if (name == nullptr) continue;
        ++named;
        EXPECT_EQ(Stored(JoinPath(run.Path(kTensors), name->as_string())).size(), size_t{1} << 18);
      }
      return true;
    });
    ASSERT_TRUE(info.ok());
    EXPECT_EQ(entries, static_cast<size_t>(calls));
    EXPECT_LE(named, 2 * entries);
  }
}

TEST(OverflowCheck, OnlyEntriesWithInfinitiesOrNanAndTheirTensorsOfTheMoment) {
  Session run([](Change c) {
    c.task = Task::kOverflowCheck;
    c.overflow_nums = 2;
  });
  const float inf = std::numeric_limits<float>::infinity();
  run.Start();
  const auto finite = Floats({1, 2});
  const auto infinite = Floats({1, inf});
  CallWith(run, "add", *finite, *finite);
  CallWith(run, "exp", *finite, *infinite);
  reinterpret_cast<float*>(infinite->bytes.data())[0] = 9;  // in place, after the call
  CallWith(run, "add", *finite, *finite);
  EXPECT_FALSE(run->terminated());
  CallWith(run, "mul", *infinite, *finite);
  EXPECT_TRUE(run->terminated());
  EXPECT_FALSE(run->recording());
  run->Stop();
  run->EndStep();
  EXPECT_THAT(Names(run.dump()), ElementsAre("Torch.exp.0.forward", "Torch.mul.0.forward"));
  EXPECT_THAT(FilesIn(run.Path(kTensors)),
              ElementsAre("Torch.exp.0.forward.input.0.pt", "Torch.exp.0.forward.output.0.pt",
                          "Torch.mul.0.forward.input.0.pt", "Torch.mul.0.forward.output.0.pt"));
  EXPECT_THAT(Stored(run.Path(std::string(kTensors) + "/Torch.exp.0.forward.output.0.pt")),
              ElementsAre(1.0f, inf));
  EXPECT_EQ(std::string(Json(run.dump())["task"].GetString()), "overflow_check");
  EXPECT_EQ(run.log.Count(LogLevel::kWarning, "an infinity or NaN was found"), 2u);
  EXPECT_EQ(run.log.Count(LogLevel::kInfo, "found 2 entries with infinities or NaN: msprobe"), 1u)
      << run.log.All();
  EXPECT_EQ(run.log.Count(LogLevel::kInfo, "written 2, filtered 2, failed 0"), 1u);
}

// A dump with checksums: `add` gives what it gave, `mul` something else, `exp` has another input.
void Reference3(Session& run, float mul_output, float exp_input) {
  run.Start();
  const auto one = Floats({1}), two = Floats({2});
  CallWith(run, "add", *one, *two);
  CallWith(run, "mul", *one, *Floats({mul_output}));
  CallWith(run, "exp", *Floats({exp_input}), *Floats({exp_input + 7}));
  CallWith(run, "mul", *one, *Floats({mul_output + 1}));
  run->EndStep();
}

TEST(DifferenceCheck, SavesTheTensorsOfCallsThatDifferFromEqualInputs) {
  Session before([](Change c) { c.summary_mode = SummaryMode::kMd5; });
  Reference3(before, 3, 4);
  before->Close();
  Session run([&](Change c) {
    c.task = Task::kTensor;
    c.summary_mode = SummaryMode::kMd5;
    c.bench_path = before.config.dump_path;
    c.diff_nums = 2;
  });
  run.Start();
  const auto one = Floats({1});
  CallWith(run, "add", *one, *Floats({2}));
  CallWith(run, "mul", *one, *Floats({30}));
  CallWith(run, "exp", *Floats({40}), *Floats({47}));
  EXPECT_FALSE(run->terminated());
  CallWith(run, "mul", *one, *Floats({5}));
  EXPECT_TRUE(run->terminated());
  run->EndStep();
  EXPECT_THAT(FilesIn(run.Path(kTensors)),
              ElementsAre("Torch.mul.0.forward.input.0.pt", "Torch.mul.0.forward.output.0.pt",
                          "Torch.mul.1.forward.input.0.pt", "Torch.mul.1.forward.output.0.pt"));
  EXPECT_THAT(EntryText(run.dump(), "Torch.add.0.forward"), Not(HasSubstr("data_name")));
  EXPECT_THAT(EntryText(run.dump(), "Torch.mul.0.forward"),
              HasSubstr("\"data_name\": \"Torch.mul.0.forward.output.0.pt\""));
  EXPECT_EQ(run.log.Count(LogLevel::kWarning,
                          "Torch.mul.0.forward: all inputs are those of the dump in bench_path, "
                          "output.0 is not"),
            1u)
      << run.log.All();
  EXPECT_EQ(run.log.Count(LogLevel::kInfo, "2 calls differ from the dump in bench_path"), 1u);
}

TEST(DifferenceCheck, TheLayoutOfMemoryDoesNotCount) {
  Session before([](Change c) { c.summary_mode = SummaryMode::kMd5; });
  const auto square = Host<float>(DType::kF32, {2, 2}, {1, 2, 3, 4});
  before.Start();
  CallWith(before, "mm", *square, *square);
  before->EndStep();
  before->Close();
  Session run([&](Change c) {
    c.task = Task::kTensor;
    c.summary_mode = SummaryMode::kMd5;
    c.bench_path = before.config.dump_path;
  });
  const auto transposed = Host<float>(DType::kF32, {2, 2}, {1, 3, 2, 4});
  const std::vector<int64_t> strides = {1, 2};
  transposed->view.strides = strides;
  run.Start();
  CallWith(run, "mm", *transposed, *transposed);
  run->EndStep();
  EXPECT_THAT(FilesIn(run.Path(kTensors)), ElementsAre());
  EXPECT_EQ(run.log.warnings(), 0u) << run.log.All();
}

TEST(DifferenceCheck, AReferenceThatCannotBeUsedIsOneLine) {
  Session before;  // statistics, no checksums
  before.Start();
  before.Call("Torch", "add");
  before->EndStep();
  before->Close();
  for (const bool missing : {false, true}) {
    Session run([&](Change c) {
      c.task = Task::kTensor;
      c.summary_mode = SummaryMode::kMd5;
      c.bench_path = missing ? before.Path("nothing") : before.config.dump_path;
    });
    run.Start();
    EXPECT_FALSE(run->recording());
    run->EndStep();
    EXPECT_EQ(run.log.Count(LogLevel::kError, missing ? "nothing/step0" : "has a checksum"), 1u)
        << run.log.All();
    EXPECT_FALSE(PathExists(run.config.dump_path));
  }
}

TEST(Requests, RowsOfTheRequestAreTheirOffsetInTheBatch) {
  Session run([](Change c) { c.request_id = "b"; });
  StartOptions options;
  options.scheduled_tokens = {{"a", 2}, {"b", 3}, {"c", 1}};
  ASSERT_TRUE(run->Start(options).ok());
  const auto batch = Host<float>(DType::kF32, {6, 1}, {0, 1, 2, 3, 4, 5});
  const auto other = Floats({7, 8});  // not of the batch: its length is another
  CallWith(run, "add", *batch, *other);
  run->EndStep();
  const std::string text = EntryText(run.dump(), "Torch.add.0.forward");
  EXPECT_THAT(text, HasSubstr(R"("shape": [3, 1], "Max": 4.0, "Min": 2.0)"));
  EXPECT_THAT(text, HasSubstr(R"("shape": [2], "Max": 8.0, "Min": 7.0)"));
  options.scheduled_tokens = {{"a", 2}};
  ASSERT_TRUE(run->Start(options).ok());
  EXPECT_FALSE(run->recording());
  EXPECT_EQ(run.log.Count(LogLevel::kWarning, "has no request \"b\""), 1u);
  run->EndStep();
  run.Start();
  EXPECT_TRUE(run->recording());
  EXPECT_EQ(run.log.Count(LogLevel::kWarning, "whole batches are recorded"), 1u);
}

// ---- SIGTERM
// ------------------------------------------------------------------------------------------

int StatusOf(pid_t child) {
  int status = 0;
  waitpid(child, &status, 0);
  return status;
}

TEST(Termination, WhatIsRecordedIsFlushedAndTheProcessEndsAsBefore) {
  Session run(SaveAll);
  run.collector.reset();
  const pid_t child = fork();
  if (child == 0) {
    run.Restart();
    run.Start();
    for (int k = 0; k < 30; ++k) run.Call("Torch", "add");
    kill(getpid(), SIGTERM);
    for (;;) pause();
  }
  const int status = StatusOf(child);
  ASSERT_TRUE(WIFSIGNALED(status));
  EXPECT_EQ(WTERMSIG(status), SIGTERM);
  EXPECT_EQ(Json(run.dump())["data"].MemberCount(), 30u);  // the file alone
  EXPECT_FALSE(Json(run.dump()).HasMember("msprobe"));     // it was cut off
  EXPECT_EQ(FilesIn(run.Path(kTensors)).size(), 60u);
}

TEST(Termination, AHandlerOfTheProgramStaysInForce) {
  Session run;
  run.collector.reset();
  const pid_t child = fork();
  if (child == 0) {
    std::signal(SIGTERM, [](int) { _exit(7); });
    run.Restart();
    run.Start();
    run.Call("Torch", "add");
    kill(getpid(), SIGTERM);
    for (;;) pause();
  }
  const int status = StatusOf(child);
  ASSERT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 7);
}

TEST(Termination, AForkedChildDiesAtOnce) {
  Session run;
  run.collector.reset();
  const pid_t child = fork();
  if (child == 0) {
    run.Restart();
    run.Start();
    run.Call("Torch", "add");
    const pid_t grandchild = fork();
    if (grandchild == 0) {
      run->AfterForkInChild();
      kill(getpid(), SIGTERM);
      _exit(1);
    }
    const int status = StatusOf(grandchild);
    run.Call("Torch", "mul");
    run->Close();
    _exit(WIFSIGNALED(status) && WTERMSIG(status) == SIGTERM ? 0 : 2);
  }
  EXPECT_EQ(StatusOf(child), 0);
  EXPECT_THAT(Names(run.dump()), ElementsAre("Torch.add.0.forward", "Torch.mul.0.forward"));
}

// memory_limit: callers wait for room, also those that would not wait without it.
TEST(TensorFiles, QueuedCopiesStayWithinTheMemoryLimit) {
  constexpr size_t kLimit = 1 << 20;
  const TempDir dir;
  KeptLog log;
  TensorStore store(true, log, kLimit);
  store.Open(dir.path());
  for (int i = 0; i < 40; ++i) {
    const auto tensor = Floats(std::vector<float>(kLimit / 16, static_cast<float>(i)));
    ASSERT_TRUE(store.Queue("small" + std::to_string(i), tensor->view).ok());
    ASSERT_LE(store.queued_bytes(), kLimit);
  }
  // One that is larger than all of it goes through alone.
  const auto large = Floats(std::vector<float>(kLimit, 7.0f));
  ASSERT_TRUE(store.Queue("large", large->view).ok());
  EXPECT_LE(store.queued_bytes(), 4 * kLimit);
  store.Drain();
  EXPECT_EQ(store.queued_bytes(), 0u);
  for (int i = 0; i < 40; ++i) {
    const auto values = Stored(dir.path() + "/small" + std::to_string(i) + ".pt");
    ASSERT_EQ(values.size(), kLimit / 16);
    EXPECT_EQ(values.back(), static_cast<float>(i));
  }
  EXPECT_EQ(Stored(dir.path() + "/large.pt").size(), kLimit);
}

}  // namespace
}  // namespace msprobe::collect
