// Rank folders, earlier dumps, locks, killed and forked processes (decisions.md 8-10, 20).
#include <fcntl.h>
#include <gmock/gmock.h>
#include <sys/file.h>
#include <sys/resource.h>
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
  run->Close();
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

TEST(Folders, DumpPathThatCannotBeIsOneLineAndTheProgramGoesOn) {
  Session run;
  WriteFile(run.config.dump_path, "a file");
  for (int step = 0; step < 5; ++step) {
    EXPECT_TRUE(run->Start({}).ok());
    EXPECT_FALSE(run->recording());
    EXPECT_FALSE(run.Call("Torch", "relu"));
    run->Stop();
    run->EndStep();
  }
  EXPECT_EQ(run.log.Count(LogLevel::kError, ""), 1u) << run.log.All();
  EXPECT_EQ(run.log.Count(LogLevel::kError, "step 0 is not collected: "), 1u);
  run->Close();
  EXPECT_EQ(run.log.Count(LogLevel::kWarning, "5 steps were not collected: "), 1u);
  EXPECT_EQ(run.log.warnings(), 1u) << run.log.All();
  EXPECT_EQ(ReadFile(run.config.dump_path), "a file");

  Session empty;
  empty.config.dump_path.clear();
  const auto made = Collector::Create(empty.config, empty.log);
  ASSERT_FALSE(made.ok());
  EXPECT_EQ(made.error().code, ErrorCode::kInvalidArgument);
}

std::vector<std::string> Children(const std::string& folder) {
  std::vector<std::string> names;
  for (const auto& item : std::filesystem::directory_iterator(folder))
    names.push_back(item.path().filename().string());
  return names;
}

TEST(Folders, AShorterRunLeavesNothingOfALongerOneBeside) {
  Session run;
  for (const int steps : {5, 2, 1}) {
    run.Restart();
    for (int step = 0; step < steps; ++step) {
      run.Start(0);
      run.Call("Torch", "run" + std::to_string(steps));
      run->EndStep();
    }
    run->Close();
  }
  // The last run's step alone is in its place; each run before has one folder with all its steps.
  std::vector<std::string> replaced;
  for (const std::string& name : Children(run.config.dump_path)) {
    if (name.starts_with("replaced-"))
      replaced.push_back(name);
    else
      EXPECT_EQ(name, "step0");
  }
  std::sort(replaced.begin(), replaced.end());
  ASSERT_EQ(replaced.size(), 2u);
  EXPECT_THAT(Children(run.Path(replaced[0])),
              UnorderedElementsAre("step0", "step1", "step2", "step3", "step4"));
  EXPECT_THAT(Children(run.Path(replaced[1])), UnorderedElementsAre("step0", "step1"));
  EXPECT_THAT(Names(run.dump("step0/rank0")), ElementsAre("Torch.run1.0.forward"));
  EXPECT_THAT(Names(run.dump(replaced[0] + "/step4/rank0")), ElementsAre("Torch.run5.0.forward"));
  EXPECT_EQ(run.log.Count(LogLevel::kWarning, "5 steps of rank0); it was moved to"), 1u)
      << run.log.All();
  EXPECT_EQ(run.log.warnings(), 2u) << run.log.All();
}

TEST(Folders, RanksOfOneRunShareOneFolderOfReplacedDumps) {
  Session run;
  for (int round = 0; round < 2; ++round) {
    for (const int rank : {0, 1}) {
      run.Restart();
      for (int step = 0; step < 2; ++step) {
        run.Start(rank);
        run.Call("Torch", "relu");
        run->EndStep();
      }
    }
  }
  run.collector.reset();
  size_t replaced = 0;
  for (const std::string& name : Children(run.config.dump_path)) {
    if (!name.starts_with("replaced-")) continue;
    ++replaced;
    for (const char* step : {"step0", "step1"})
      EXPECT_THAT(Children(run.Path(JoinPath(name, step))), UnorderedElementsAre("rank0", "rank1"));
  }
  EXPECT_EQ(replaced, 1u);
}

TEST(Folders, LeftoversThatThisRunWillNotWriteAreNamed) {
  Session run;
  run.Start(3);
  run.Call("Torch", "relu");
  run->EndStep();
  run.Restart();
  Environment environment;
  environment.world_size = 2;
  run->SetEnvironment(environment);
  run.Start(0);
  EXPECT_EQ(run.log.Count(LogLevel::kWarning, "also holds step0/rank3, which this run will not"),
            1u);
  run.Restart();
  run.Start();  // no rank: every numbered folder is somebody else's
  EXPECT_EQ(run.log.Count(LogLevel::kWarning, "also holds step0/rank0, step0/rank3, which"), 1u)
      << run.log.All();
}

// A name is its process's own between two steps as well: a process that comes later must not take
// the steps that this one has finished for those of an earlier run.
TEST(Folders, ANameStaysItsProcesssOwnBetweenSteps) {
  Session run;
  run.Start();
  run.Call("Torch", "first");
  run->EndStep();  // no folder is open now
  Session other([&](Change c) { c.dump_path = run.config.dump_path; });
  other.Start();
  EXPECT_EQ(other->rank_dir(), run.Path("step0/proc" + std::to_string(getpid())));
  other->EndStep();
  EXPECT_THAT(Names(run.dump()), ElementsAre("Torch.first.0.forward"));
  run->Close();
  other.Restart();
  other.Start();  // now it is free
  EXPECT_EQ(other->rank_dir(), run.Path("step0/rank"));
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

// ---- disks that are full, files that vanish
// ----------------------------------------------------------------------------

// Runs `body` in a process whose files may not grow beyond `bytes`: the smallest shortage there is
// without a disk of our own. What the process logged is returned.
std::string WithFileLimit(rlim_t bytes, Session& run, const std::function<void()>& body) {
  run.collector.reset();
  const pid_t child = fork();
  if (child == 0) {
    std::signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{bytes, bytes};
    if (setrlimit(RLIMIT_FSIZE, &limit) != 0) _exit(1);
    run.Restart();
    body();
    run->Close();
    std::string log = run.log.All();
    log.resize(std::min<size_t>(log.size(), bytes));
    WriteFile(run.dir / "log", log);
    _exit(0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  return ReadFile(run.dir / "log");
}

size_t Occurrences(std::string_view text, std::string_view part) {
  size_t n = 0;
  for (size_t at = text.find(part); at != text.npos; at = text.find(part, at + 1)) ++n;
  return n;
}

TEST(FullDisk, WhatIsCountedAsWrittenCanBeRead) {
  Session run([](Change c) { c.extra_info = false; });
  const std::string log = WithFileLimit(100 << 10, run, [&] {
    run.Start(0);
    for (int k = 0; k < 3000; ++k) run.Call("Torch", "relu");
    run->EndStep();
  });
  EXPECT_EQ(Occurrences(log, "collection stops, the program goes on"), 1u) << log;
  const auto names = Names(run.dump("step0/rank0"));
  EXPECT_GT(names.size(), 100u);
  EXPECT_LT(names.size(), 3000u);
  // The call that found journal and disk full is the one that is lost.
  EXPECT_THAT(log, HasSubstr("written " + std::to_string(names.size()) + ", filtered 0, failed 1"));
  EXPECT_TRUE(Json(run.dump("step0/rank0")).IsObject());  // the file alone stays valid
}

TEST(FullDisk, WithoutRoomForTheSmallestJournalNothingBegins) {
  Session run;
  const std::string log = WithFileLimit(20 << 10, run, [&] {
    for (int step = 0; step < 3; ++step) {
      run.Start(0);
      run.Call("Torch", "relu");
      run->EndStep();
    }
  });
  EXPECT_EQ(Occurrences(log, "step 0 is not collected"), 1u) << log;
  EXPECT_EQ(Occurrences(log, "is not collected"), 1u) << log;
  EXPECT_EQ(Occurrences(log, "3 steps were not collected"), 1u) << log;
  EXPECT_THAT(Children(run.config.dump_path), ElementsAre());  // no empty folders
}

TEST(FullDisk, AVanishedFolderIsCountedAsLost) {
  Session run;
  run.Start(0);
  for (int k = 0; k < 7; ++k) run.Call("Torch", "relu");
  run->Stop();
  std::filesystem::remove_all(run.config.dump_path);
  run.Start(0);
  run.Call("Torch", "relu");
  run->EndStep();
  EXPECT_EQ(run.log.Count(LogLevel::kError, "was removed while it was being written"), 1u);
  EXPECT_EQ(run.log.Count(LogLevel::kError, ""), 1u);
  EXPECT_EQ(run.log.Count(LogLevel::kInfo, "step 0: written 0, filtered 0, failed 8, "), 1u)
      << run.log.All();
  for (int step = 1; step < 4; ++step) {
    run.Start(0);
    run.Call("Torch", "relu");
    run->EndStep();
  }
  EXPECT_EQ(run.log.Count(LogLevel::kError, ""), 1u);
  EXPECT_FALSE(PathExists(run.config.dump_path));  // who removed it does not want it
  std::filesystem::create_directories(run.config.dump_path);
  run.Start(0);
  EXPECT_TRUE(run->recording());
  EXPECT_EQ(run.log.Count(LogLevel::kInfo, "step 4: collection goes on"), 1u);
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
