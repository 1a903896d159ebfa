// Rank folders, earlier dumps, locks, killed and forked processes (decisions.md 8-10, 20).
#include <fcntl.h>
#include <gmock/gmock.h>
#include <sys/file.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>

#include "collect/session_test.h"

namespace msprobe::collect {
namespace {

using config::Overwrite;
using config::Task;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::UnorderedElementsAre;
using Change = config::CollectConfig&;

// ---- folders
// ---------------------------------------------------------------------------------------

TEST(Ranks, KnownRankNamesTheFolderAndTheFilterDecides) {
  Session run([](Change c) { c.ranks = {1, 3}; });
  run.Start(3);
  EXPECT_EQ(run->rank_dir(), run.Path("step0/rank3"));
  run.Call("Torch", "relu");
  run->EndStep();
  EXPECT_EQ(Json(run.dump("step0/rank3"))["msprobe"]["rank"].GetInt(), 3);
  Session other([](Change c) { c.ranks = {1, 3}; });
  other.Start(2);
  EXPECT_FALSE(other->recording());
  EXPECT_FALSE(PathExists(other.config.dump_path));
  EXPECT_EQ(other.log.warnings(), 0u);
}

TEST(Ranks, UnknownRankCountsAsZeroAndIsSaid) {
  Session zero([](Change c) { c.ranks = {0}; });
  zero.Start();
  EXPECT_TRUE(zero->recording());
  EXPECT_EQ(zero.log.Count(LogLevel::kWarning, "treated as rank 0, which is collected"), 1u);
  Session one([](Change c) { c.ranks = {1}; });
  one.Start();
  one->Stop();
  one.Start();
  EXPECT_FALSE(one->recording());
  EXPECT_EQ(one.log.Count(LogLevel::kWarning, "treated as rank 0, which is not collected"), 1u);
}

TEST(Ranks, FolderFollowsWhenTheRankBecomesKnown) {
  Session run([](Change c) { c.task = Task::kTensor; });
  run.Start();
  run.Call("Torch", "relu");
  run->Stop();
  EXPECT_TRUE(PathExists(run.dump("step0/rank")));
  run.Start(5);
  EXPECT_EQ(run->rank_dir(), run.Path("step0/rank5"));
  EXPECT_FALSE(PathExists(run.Path("step0/rank")));
  run.Call("Torch", "relu");
  run->Stop();
  EXPECT_EQ(Json(run.dump("step0/rank5"))["dump_data_dir"].GetString(),
            run.Path("step0/rank5/dump_tensor_data"));
  run->EndStep();
  EXPECT_THAT(Names(run.dump("step0/rank5")),
              ElementsAre("Torch.relu.0.forward", "Torch.relu.1.forward"));
  EXPECT_TRUE(
      PathExists(run.Path("step0/rank5/dump_tensor_data/Torch.relu.1.forward.output.0.pt")));
  run.Start();  // known from now on
  EXPECT_EQ(run->rank_dir(), run.Path("step1/rank5"));
}

TEST(Folders, AnEarlierDumpIsMovedAsideAndSaidOnce) {
  Session run;
  for (int round = 0; round < 2; ++round) {
    for (int step = 0; step < 2; ++step) {
      run.Start();
      run.Call("Torch", round == 0 ? "old" : "new");
      run->EndStep();
    }
    run.Restart();
  }
  EXPECT_THAT(Names(run.dump()), ElementsAre("Torch.new.0.forward"));
  EXPECT_THAT(Names(run.dump("step1/rank")), ElementsAre("Torch.new.0.forward"));
  std::vector<std::string> found;
  for (const auto& item : std::filesystem::directory_iterator(run.config.dump_path)) {
    const std::string name = item.path().filename().string();
    if (!name.starts_with("replaced-")) continue;
    for (const char* step : {"step0", "step1"}) {
      const std::string file = JoinPath(item.path().string(), JoinPath(step, "rank/dump.json"));
      if (PathExists(file)) found.push_back(Names(file).at(0));
    }
  }
  EXPECT_THAT(found, ElementsAre("Torch.old.0.forward", "Torch.old.0.forward"));
  EXPECT_EQ(run.log.warnings(), 1u) << run.log.All();
  EXPECT_EQ(run.log.Count(LogLevel::kWarning, "held an earlier dump ("), 1u);
}

TEST(Folders, OverwriteReplaceKeepsWhatIsNotOurs) {
  Session run([](Change c) {
    c.task = Task::kTensor;
    c.overwrite = Overwrite::kReplace;
  });
  run.Start();
  run.Call("Torch", "old");
  run->EndStep();
  WriteFile(run.Path("step0/rank/notes.txt"), "mine");
  run.Restart();
  run.Start();
  run.Call("Torch", "new");
  run->EndStep();
  EXPECT_THAT(Names(run.dump()), ElementsAre("Torch.new.0.forward"));
  EXPECT_FALSE(PathExists(run.Path("step0/rank/dump_tensor_data/Torch.old.0.forward.output.0.pt")));
  EXPECT_TRUE(PathExists(run.Path("step0/rank/dump_tensor_data/Torch.new.0.forward.output.0.pt")));
  EXPECT_EQ(ReadFile(run.Path("step0/rank/notes.txt")), "mine");
  size_t children = 0;
  for (const auto& item : std::filesystem::directory_iterator(run.config.dump_path))
    children += item.exists();
  EXPECT_EQ(children, 1u);
}

TEST(Folders, OverwriteRefuseIsAnErrorAtStart) {
  Session run([](Change c) { c.overwrite = Overwrite::kRefuse; });
  run.Start();
  run.Call("Torch", "old");
  run->EndStep();
  run.Restart();
  const Status refused = run->Start({});
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::kMismatch);
  EXPECT_THAT(refused.error().ToString(), HasSubstr("step0/rank: holds an earlier dump"));
  EXPECT_FALSE(run->recording());
  EXPECT_THAT(Names(run.dump()), ElementsAre("Torch.old.0.forward"));
}

TEST(Folders, AFolderInUseByAnotherProcessIsLeftAlone) {
  Session run;
  std::filesystem::create_directories(run.Path("step0/rank"));
  WriteFile(run.dump(), "{\"data\": {\"theirs\": 1}}");
  int ready[2], done[2];
  ASSERT_EQ(pipe(ready), 0);
  ASSERT_EQ(pipe(done), 0);
  const std::string journal = run.Path("step0/rank/.msprobe_journal");
  const pid_t child = fork();
  if (child == 0) {
    const int fd = open(journal.c_str(), O_RDWR | O_CREAT, 0600);
    char byte = flock(fd, LOCK_EX | LOCK_NB) == 0 ? 'y' : 'n';
    if (write(ready[1], &byte, 1) != 1 || read(done[0], &byte, 1) < 0) _exit(1);
    _exit(0);
  }
  char byte = 0;
  ASSERT_EQ(read(ready[0], &byte, 1), 1);
  ASSERT_EQ(byte, 'y');
  run.Start();
  const std::string own = "step0/proc" + std::to_string(getpid());
  EXPECT_EQ(run->rank_dir(), run.Path(own));
  run.Call("Torch", "relu");
  run->EndStep();
  EXPECT_EQ(
      run.log.Count(LogLevel::kWarning, "is in use by another process; this one writes to proc"),
      1u);
  EXPECT_THAT(Names(run.dump()), ElementsAre("theirs"));
  EXPECT_THAT(Names(run.dump(own)), ElementsAre("Torch.relu.0.forward"));
  ASSERT_EQ(write(done[1], &byte, 1), 1);
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
}

TEST(Folders, NothingButTheFilesIsLeftAtACleanEnd) {
  Session run;
  run.Start();
  EXPECT_TRUE(PathExists(run.Path("step0/rank/.msprobe_journal")));
  run.Call("Torch", "relu");
  run->EndStep();
  std::vector<std::string> names;
  for (const auto& item : std::filesystem::directory_iterator(run.Path("step0/rank")))
    names.push_back(item.path().filename().string());
  EXPECT_THAT(names, UnorderedElementsAre("dump.json", "stack.json", "construct.json"));
}

TEST(Folders, DumpPathThatCannotBeIsAnErrorAtTheFirstStart) {
  Session run;
  WriteFile(run.config.dump_path, "a file");
  const Status failed = run->Start({});
  ASSERT_FALSE(failed.ok());
  EXPECT_EQ(failed.error().code, ErrorCode::kNotRegularFile);
  Session empty;
  empty.config.dump_path.clear();
  const auto made = Collector::Create(empty.config, empty.log);
  ASSERT_FALSE(made.ok());
  EXPECT_EQ(made.error().code, ErrorCode::kInvalidArgument);
}

TEST(Folders, ALaterStepThatCannotBeOpenedDoesNotEndTheRun) {
  Session run;
  run.Start();
  run.Call("Torch", "relu");
  run->EndStep();
  WriteFile(run.Path("step1"), "in the way");
  run.Start();
  EXPECT_FALSE(run->recording());
  EXPECT_FALSE(run.Call("Torch", "relu"));
  run->EndStep();
  EXPECT_EQ(run.log.Count(LogLevel::kError, "step 1 is not collected"), 1u);
  run.Start();
  EXPECT_TRUE(run->recording());
}

// ---- processes that end
// ----------------------------------------------------------------------------

TEST(Crash, AKilledProcessLeavesWhatWasFlushedAsValidJson) {
  Session run;
  run.collector.reset();
  const pid_t child = fork();
  if (child == 0) {
    run.Restart();
    run.Start();
    run.Call("Torch", "relu");
    run->Stop();
    run.Start();
    run.Call("Torch", "add");
    kill(getpid(), SIGKILL);
  }
  int status = 0;
  waitpid(child, &status, 0);
  ASSERT_TRUE(WIFSIGNALED(status));
  const auto dump = Json(run.dump());
  EXPECT_TRUE(dump["data"].HasMember("Torch.relu.0.forward"));
  EXPECT_FALSE(dump.HasMember("msprobe"));
}

TEST(Crash, AKilledProcessLosesNothingThatWasRecorded) {
  Session run([](Change c) { c.level = config::Level::kMix; });
  run.collector.reset();
  const pid_t child = fork();
  if (child == 0) {
    run.Restart();
    run.Start();
    const StackId stack = run->AddStack(5, {"File a.py, line 1, in f, \n f()"});
    run.Call("Torch", "flushed", Risk::kFocus, stack);
    run->Stop();
    run.Start();
    run.Module("fc", "Linear", [&] { run.Call("Torch", "late", Risk::kFocus, stack); });
    run.Backward("Torch", "late", 0);
    run.one = Floats({7});
    run.Backward("Torch", "late", 0);
    kill(getpid(), SIGKILL);
  }
  int status = 0;
  waitpid(child, &status, 0);
  ASSERT_TRUE(WIFSIGNALED(status));
  EXPECT_EQ(Json(run.dump())["data"].MemberCount(), 1u);  // the file alone
  EXPECT_THAT(Names(run.dump()),
              ElementsAre("Torch.flushed.0.forward", "Torch.late.0.forward",
                          "Module.fc.Linear.forward.0", "Torch.late.0.backward"));
  const auto stacks = dump::ReadStack(run.Path("step0/rank/stack.json"));
  ASSERT_TRUE(stacks.ok());
  ASSERT_NE(stacks->Find("Torch.late.0.forward"), nullptr);
  EXPECT_THAT(*stacks->Find("Torch.late.0.forward"),
              ElementsAre("File a.py, line 1, in f, \n f()"));
  const auto parents = dump::ReadConstruct(run.Path("step0/rank/construct.json"));
  EXPECT_EQ(parents->at("Torch.late.0.forward"), "Module.fc.Linear.forward.0");

  // The next run in the same place moves the dump aside together with its journal.
  run.Restart();
  run.Start();
  run->EndStep();
  for (const auto& item : std::filesystem::directory_iterator(run.config.dump_path)) {
    const std::string path = item.path().string();
    if (path.find("replaced-") == std::string::npos) continue;
    EXPECT_EQ(Names(JoinPath(path, "step0/rank/dump.json")).size(), 4u);
  }
}

TEST(Crash, AForkedChildRecordsNothingAndLeavesTheParentsFilesAlone) {
  Session run;
  run.Start();
  run.Call("Torch", "relu");
  const pid_t child = fork();
  if (child == 0) {
    run->AfterForkInChild();
    const bool quiet =
        !run->recording() && !run.Call("Torch", "child") && !run.Backward("Torch", "relu", 0);
    run->Stop();
    run->EndStep();
    run->Close();
    _exit(quiet ? 0 : 1);
  }
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  EXPECT_TRUE(PathExists(run.Path("step0/rank/.msprobe_journal")));
  run.Call("Torch", "add");
  run->EndStep();
  EXPECT_THAT(Names(run.dump()), ElementsAre("Torch.relu.0.forward", "Torch.add.0.forward"));
  EXPECT_TRUE(Json(run.dump())["msprobe"]["complete"].GetBool());
}

}  // namespace
}  // namespace msprobe::collect
