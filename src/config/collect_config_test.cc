#include "config/collect_config.h"

#include "config/collect_config_test.h"
#include "json/json.h"

namespace msprobe::config {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// ---- what files say -----------------------------------------------------------------------------

TEST_F(CollectConfigTest, TheShippedKindOfFile) {
  CollectArguments arguments;
  arguments.config_path = Data("statistics.json");
  const auto c = ReadCollectConfig(arguments, log_);
  ASSERT_TRUE(c.ok()) << c.error().ToString();
  EXPECT_EQ(c->path, Data("statistics.json"));
  EXPECT_EQ(c->task, Task::kStatistics);
  EXPECT_EQ(c->level, Level::kL1);
  EXPECT_EQ(c->dump_path, "/home/data_dump");
  EXPECT_THAT(c->ranks, IsEmpty());
  EXPECT_THAT(c->steps, IsEmpty());
  EXPECT_FALSE(c->async_dump);
  EXPECT_TRUE(c->extra_info);
  EXPECT_EQ(c->dump_enable, std::nullopt);
  EXPECT_EQ(c->risk_level, RiskLevel::kFocus);
  EXPECT_TRUE(c->data_mode_all && c->forward && c->backward && c->input && c->output);
  EXPECT_EQ(c->summary_mode, SummaryMode::kStatistics);
  EXPECT_EQ(c->buffer_size, 4194304);
  EXPECT_EQ(c->memory_limit, 0);
  EXPECT_EQ(c->overwrite, Overwrite::kKeep);
  EXPECT_THAT(log_.warnings, IsEmpty());
}

TEST_F(CollectConfigTest, AFileOfAnOlderRelease) {
  CollectArguments arguments;
  arguments.config_path = Data("older_release.json");
  const auto c = ReadCollectConfig(arguments, log_);
  ASSERT_TRUE(c.ok()) << c.error().ToString();
  EXPECT_EQ(c->task, Task::kOverflowCheck);
  EXPECT_EQ(c->level, Level::kL0);
  EXPECT_THAT(c->ranks, ElementsAre(0, 2, 3, 4));
  EXPECT_THAT(c->steps, ElementsAre(3, 10, 11, 12));
  EXPECT_EQ(c->overflow_nums, -1);
  ASSERT_EQ(log_.warnings.size(), 1u);
  EXPECT_THAT(log_.warnings[0],
              HasSubstr(":8:45 overflow_check.check_mode: this key has no effect"));
}

TEST_F(CollectConfigTest, EveryKey) {
  CollectArguments arguments;
  arguments.config_path = Data("every_key.json");
  const auto c = ReadCollectConfig(arguments, log_);
  ASSERT_TRUE(c.ok()) << c.error().ToString();
  EXPECT_EQ(c->task, Task::kTensor);
  EXPECT_EQ(c->level, Level::kMix);
  EXPECT_THAT(c->ranks, ElementsAre(0, 1, 2, 7));
  EXPECT_THAT(c->steps, ElementsAre(0, 5));
  EXPECT_TRUE(c->async_dump);
  EXPECT_TRUE(c->high_precision);
  EXPECT_EQ(c->dump_enable, true);
  EXPECT_FALSE(c->extra_info);
  EXPECT_EQ(c->risk_level, RiskLevel::kEvery);
  EXPECT_THAT(*c->custom_op_namespaces, ElementsAre("_C_ascend", "mine"));
  EXPECT_EQ(c->buffer_size, 65536);
  EXPECT_EQ(c->memory_limit, 33554432);
  EXPECT_EQ(c->overwrite, Overwrite::kRefuse);
  EXPECT_TRUE(c->strict);
  EXPECT_TRUE(c->compiled_as_leaf);
  EXPECT_TRUE(c->reuse_statistics);
  ASSERT_EQ(c->added_apis.size(), 1u);
  EXPECT_EQ(c->added_apis[0].first, "my.kernels");
  EXPECT_EQ(c->added_apis[0].second, std::vector<std::string>({"attention", "norm"}));
  EXPECT_EQ(c->removed_apis, std::vector<std::string>({"Functional.relu"}));
  EXPECT_EQ(c->evidence, Evidence::kFull);
  EXPECT_EQ(c->backward_layout, BackwardLayout::kArguments);
  EXPECT_EQ(c->device_statistics, DeviceStatistics::kForce);
  EXPECT_THAT(c->scope, ElementsAre("Module.encoder.Linear.forward.0", "Torch.matmul.3.backward"));
  EXPECT_THAT(c->list, ElementsAre("relu", "Module.decoder"));
  EXPECT_FALSE(c->data_mode_all);
  EXPECT_TRUE(c->forward && c->input);
  EXPECT_FALSE(c->backward || c->output);
  EXPECT_EQ(c->summary_mode, SummaryMode::kHash64);
  EXPECT_THAT(c->slice, ElementsAre(SliceItem{1, -4, 8, 16}, SliceItem{}));
  EXPECT_EQ(c->request_id, "r-17");
  EXPECT_EQ(c->diff_nums, -1);
  EXPECT_THAT(log_.warnings, ElementsAre(HasSubstr("async_dump never waits for the disk")));
}

TEST_F(CollectConfigTest, DefaultsWithoutAFile) {
  const auto c = ReadCollectConfig({}, log_);
  ASSERT_TRUE(c.ok());
  EXPECT_EQ(c->path, "");
  EXPECT_EQ(c->task, Task::kStatistics);
  EXPECT_EQ(c->level, Level::kL1);
  EXPECT_EQ(c->dump_path, "./dump_path");
}

// "Also for null and empty" of dump.md 3.1.
TEST_F(CollectConfigTest, NullAndEmptyMeanTheDefault) {
  const auto c =
      Read(R"({"dump_path": "d", "task": null, "level": "", "risk_level": null, "dump_enable": null,
                         "custom_op_namespaces": null, "statistics": {"data_mode": [], "diff_nums": null, "bench_path": ""}})");
  ASSERT_TRUE(c.ok()) << c.error().ToString();
  EXPECT_EQ(c->task, Task::kStatistics);
  EXPECT_EQ(c->level, Level::kL1);
  EXPECT_EQ(c->risk_level, RiskLevel::kAll);
  EXPECT_EQ(c->dump_enable, std::nullopt);
  EXPECT_EQ(c->custom_op_namespaces, std::nullopt);
  EXPECT_TRUE(c->data_mode_all);
  EXPECT_EQ(c->diff_nums, 1);
}

// dump.md 9.4: what is not named is added in pairs.
TEST_F(CollectConfigTest, DataMode) {
  const auto mode = [&](const std::string& words) {
    const auto c = With("", "\"data_mode\": [" + words + "]");
    EXPECT_TRUE(c.ok());
    return std::vector<bool>{c->forward, c->backward, c->input, c->output};
  };
  EXPECT_THAT(mode("\"input\""), ElementsAre(true, true, true, false));
  EXPECT_THAT(mode("\"backward\""), ElementsAre(false, true, true, true));
  EXPECT_THAT(mode("\"forward\", \"output\""), ElementsAre(true, false, false, true));
  EXPECT_THAT(mode("\"forward\", \"backward\", \"input\", \"output\""),
              ElementsAre(true, true, true, true));
}

TEST_F(CollectConfigTest, ArgumentsWinOverTheFile) {
  CollectArguments arguments;
  arguments.task = "tensor";
  arguments.level = "L0";
  arguments.dump_path = "elsewhere";
  arguments.steps_json = "[4, \"1-2\"]";
  const auto c =
      Read(R"({"task": "no such task", "level": 3, "step": ["x"], "tensor": {"list": ["relu"]}})",
           arguments);
  ASSERT_TRUE(c.ok()) << c.error().ToString();
  EXPECT_EQ(c->task, Task::kTensor);
  EXPECT_EQ(c->level, Level::kL0);
  EXPECT_EQ(c->dump_path, "elsewhere");
  EXPECT_THAT(c->steps, ElementsAre(1, 2, 4));
  EXPECT_THAT(c->list, ElementsAre("relu"));
}

TEST_F(CollectConfigTest, EmptyArgumentsAreNotGiven) {
  CollectArguments arguments;
  arguments.task = arguments.level = arguments.dump_path = "";
  arguments.steps_json = "null";
  const auto c = Read(R"({"task": "structure", "level": "L0", "dump_path": "d"})", arguments);
  ASSERT_TRUE(c.ok());
  EXPECT_EQ(c->task, Task::kStructure);
  EXPECT_EQ(c->level, Level::kL0);
  EXPECT_EQ(c->dump_path, "d");
}

// ---- errors of arguments ------------------------------------------------------------------------

TEST_F(CollectConfigTest, WrongArguments) {
  const auto error = [&](CollectArguments a) {
    const auto c = ReadCollectConfig(a, log_);
    return c.ok() ? "no error" : c.error().ToString();
  };
  CollectArguments a;
  a.task = "statistic";
  EXPECT_EQ(error(a),
            "PrecisionDebugger task: the value \"statistic\" is not known; expected "
            "\"statistics\", \"tensor\", \"structure\", "
            "\"nan_check\" or \"overflow_check\"");
  a = {};
  a.level = "l1";
  EXPECT_EQ(error(a),
            "PrecisionDebugger level: the value \"l1\" is not known; expected \"L0\", \"L1\", "
            "\"mix\" or \"debug\"");
  a = {};
  a.steps_json = "[1, -1]";
  EXPECT_EQ(error(a),
            "PrecisionDebugger step[1]: the element -1 is not a number or range; expected a list "
            "of integers from 0 to 1000000 "
            "and ranges like \"3-7\"");
  a.steps_json = "3";
  EXPECT_THAT(error(a),
              HasSubstr("PrecisionDebugger step: the value 3 is an integer; expected a list"));
  a = {};
  a.dump_path = std::string("a\0b", 3);
  EXPECT_THAT(error(a),
              HasSubstr("PrecisionDebugger dump_path: the path contains a null character"));
  EXPECT_EQ(ReadCollectConfig(a, log_).error().code, ErrorCode::kInvalidArgument);
}

TEST_F(CollectConfigTest, WrongConfigPath) {
  CollectArguments a;
  a.config_path = folder_ + "/none.json";
  EXPECT_EQ(ReadCollectConfig(a, log_).error().code, ErrorCode::kNotFound);
  std::filesystem::create_directory(folder_ + "/folder.json");
  a.config_path = folder_ + "/folder.json";
  EXPECT_EQ(ReadCollectConfig(a, log_).error().code, ErrorCode::kNotRegularFile);
  a.config_path = Write("config.yaml", "{}");
  EXPECT_THAT(ReadCollectConfig(a, log_).error().ToString(),
              HasSubstr("config.yaml: the name does not end in .json"));
}

TEST_F(CollectConfigTest, NotAJsonObject) {
  EXPECT_EQ(
      ErrorText(Read("3")),
      ": the file holds an integer; expected an object with keys like \"task\" and \"dump_path\"");
  const auto trailing_comma = Read("{\n  \"task\": \"statistics\",\n}");
  ASSERT_FALSE(trailing_comma.ok());
  EXPECT_EQ(trailing_comma.error().code, ErrorCode::kMalformed);
  EXPECT_EQ(trailing_comma.error().line, 3u);
  EXPECT_EQ(trailing_comma.error().column, 1u);
}

// ---- keys of the first level: one smallest wrong input each -------------------------------------

TEST_F(CollectConfigTest, Task) {
  EXPECT_EQ(ErrorText(Read("{\"dump_path\": \"d\",\n \"task\": \"tensors\"}")),
            ":2:2 task: the value \"tensors\" is not known; expected \"statistics\", \"tensor\", "
            "\"structure\", \"nan_check\" or "
            "\"overflow_check\"");
  EXPECT_THAT(ErrorText(Read(R"({"dump_path": "d", "task": 1})")),
              HasSubstr(":1:20 task: the value 1 is an integer; expected \"statistics\""));
}

TEST_F(CollectConfigTest, TasksOfOtherToolsAreRefusedWithTheReason) {
  const auto refused = [&](const std::string& task) {
    const auto c = Read("{\"dump_path\": \"d\", \"task\": \"" + task + "\"}");
    EXPECT_FALSE(c.ok()) << task;
    EXPECT_EQ(c.error().code, ErrorCode::kUnsupported) << task;
    return ErrorText(c);
  };
  EXPECT_EQ(refused("run_ut"),
            ":1:20 task: \"run_ut\" is refused: this task configures the offline pre-check and "
            "collects nothing; run "
            "`msprobe -f pytorch run_ut`, or choose \"statistics\" or \"tensor\" here");
  EXPECT_THAT(refused("acc_check"), HasSubstr("configures the offline pre-check"));
  EXPECT_THAT(refused("diff_check"), HasSubstr("chosen by the key \"bench_path\""));
  EXPECT_THAT(refused("free_benchmark"), HasSubstr("was removed from the tool"));
  EXPECT_THAT(refused("grad_probe"), HasSubstr("was removed from the tool"));
  EXPECT_THAT(refused("exception_dump"), HasSubstr("exists for MindSpore only"));
}

TEST_F(CollectConfigTest, Level) {
  EXPECT_EQ(
      KeyError("\"level\": \"L3\""),
      ":2:1 level: the value \"L3\" is not known; expected \"L0\", \"L1\", \"mix\" or \"debug\"");
  EXPECT_THAT(KeyError("\"level\": \"L2\""),
              HasSubstr(":2:1 level: \"L2\" is refused: this level dumps the kernels of an NPU"));
  EXPECT_EQ(SectionError("", "nan_check", "\"level\": \"debug\""),
            ":2:1 level: the level \"debug\" does not go with the task \"nan_check\"; expected "
            "\"L0\", \"L1\" or \"mix\"");
}

TEST_F(CollectConfigTest, DumpPath) {
  EXPECT_EQ(ErrorText(Read("{}")),
            " dump_path: the key is missing; expected the folder to write dumps to, here or as "
            "argument of PrecisionDebugger");
  EXPECT_THAT(ErrorText(Read(R"({"dump_path": null})")),
              HasSubstr("dump_path: the key is missing"));
  EXPECT_THAT(ErrorText(Read(R"({"dump_path": ""})")),
              HasSubstr(":1:2 dump_path: the path is empty"));
  EXPECT_EQ(ErrorText(Read(R"({"dump_path": ["d"]})")),
            ":1:2 dump_path: the value [\"d\"] is a list; expected a string");
  EXPECT_EQ(ErrorText(Read(R"({"dump_path": "a\u0000"})")),
            ":1:2 dump_path: the value \"a\\u0000\" contains a null character");
}

// dump.md 3.2.
TEST_F(CollectConfigTest, NumbersOfRanksAndSteps) {
  EXPECT_THAT(With("\"step\": [\"3\", 1000000, \"0-1\", 1]")->steps, ElementsAre(0, 1, 3, 1000000));
  for (const std::string bad :
       {"-1", "1000001", "true", "1.5", "null", "\"\"", "\"a\"", "\"3-\"", "\"-3\"", "\"5-4\"",
        "\"1-1000001\"", "\" 1\"", "\"1-2-3\"", "\"+1\"", "\"99999999999999999999\"", "[1]"}) {
    EXPECT_EQ(
        KeyError("\"rank\": [0, " + bad + "]"),
        ":2:13 rank[1]: the element " + bad +
            " is not a number or range; expected a list of integers from 0 to 1000000 and ranges "
            "like \"3-7\"");
  }
  EXPECT_THAT(KeyError("\"step\": \"1-2\""),
              HasSubstr(":2:1 step: the value \"1-2\" is a string; expected a list"));
}

TEST_F(CollectConfigTest, ManyOverlappingRangesAreCheap) {
  std::string ranges;
  for (int i = 0; i < 10000; ++i) ranges += i > 0 ? ",\"0-1000000\"" : "\"0-1000000\"";
  EXPECT_EQ(With("\"step\": [" + ranges + "]")->steps.size(), 1000001u);
}

TEST_F(CollectConfigTest, TooManyElements) {
  std::string zeros = "0";
  for (int i = 0; i < 1000000; ++i) zeros += ",0";
  EXPECT_EQ(KeyError("\"step\": [" + zeros + "]"),
            ":2:1 step: the list has 1000001 elements; expected at most 1000000");
}

TEST_F(CollectConfigTest, Switches) {
  EXPECT_EQ(KeyError("\"async_dump\": null"),
            ":2:1 async_dump: the value null is null; expected true or false");
  EXPECT_EQ(KeyError("\"extra_info\": \"true\""),
            ":2:1 extra_info: the value \"true\" is a string; expected true or false");
  EXPECT_EQ(KeyError("\"dump_enable\": 1"),
            ":2:1 dump_enable: the value 1 is an integer; expected true or false");
  EXPECT_EQ(KeyError("\"enable_dataloader\": 0"),
            ":2:1 enable_dataloader: the value 0 is an integer; expected true or false");
  EXPECT_EQ(KeyError("\"precision\": \"medium\""),
            ":2:1 precision: the value \"medium\" is not known; expected \"low\" or \"high\"");
  EXPECT_EQ(KeyError("\"risk_level\": \"LOW\""),
            ":2:1 risk_level: the value \"LOW\" is not known; expected \"CORE\", \"FOCUS\", "
            "\"ALL\" or \"EVERY\"");
  EXPECT_EQ(KeyError("\"custom_op_namespaces\": \"a\""),
            ":2:1 custom_op_namespaces: the value \"a\" is a string; expected a list of strings");
  EXPECT_EQ(KeyError("\"custom_op_namespaces\": [\"a\", 2]"),
            ":2:31 custom_op_namespaces[1]: the value 2 is an integer; expected a list of strings");
}

TEST_F(CollectConfigTest, KeysOfOurOwn) {
  EXPECT_EQ(KeyError("\"buffer_size\": 65535"),
            ":2:1 buffer_size: the value 65535 is out of range; expected an integer from 65536 to "
            "1073741824");
  EXPECT_EQ(KeyError("\"buffer_size\": 1e6"),
            ":2:1 buffer_size: the value 1000000.0 is a number; expected an integer from 65536 to "
            "1073741824");
  EXPECT_EQ(
      KeyError("\"memory_limit\": 1000"),
      ":2:1 memory_limit: the value 1000 is out of range; expected an integer from 1048576 to "
      "1099511627776");
  EXPECT_EQ(KeyError("\"overwrite\": \"yes\""),
            ":2:1 overwrite: the value \"yes\" is not known; expected \"keep\", \"replace\" or "
            "\"refuse\"");
  EXPECT_EQ(KeyError("\"strict\": 1"),
            ":2:1 strict: the value 1 is an integer; expected true or false");
  EXPECT_EQ(KeyError("\"compiled\": \"graph\""),
            ":2:1 compiled: the value \"graph\" is not known; expected \"eager\" or \"leaf\"");
  EXPECT_EQ(KeyError("\"reuse\": true"),
            ":2:1 reuse: the value true is a boolean; expected \"off\" or \"version\"");
  EXPECT_EQ(
      KeyError("\"evidence\": \"all\""),
      ":2:1 evidence: the value \"all\" is not known; expected \"none\", \"light\" or \"full\"");
  EXPECT_EQ(KeyError("\"api_list\": [\"relu\"]"),
            ":2:1 api_list: the value [\"relu\"] is a list; expected an object with \"add\" and "
            "\"remove\"");
  EXPECT_EQ(KeyError("\"api_list\": {\"remov\": []}"),
            ":2:14 api_list.remov: unknown key; did you mean \"remove\"?");
  EXPECT_EQ(KeyError("\"api_list\": {\"add\": {\"m\": \"f\"}}"),
            ":2:22 api_list.add.m: the value \"f\" is a string; expected a list of strings");
  EXPECT_EQ(KeyError("\"backward_layout\": 1"),
            ":2:1 backward_layout: the value 1 is an integer; expected \"node\" or \"arguments\"");
  EXPECT_EQ(
      KeyError("\"device_statistics\": \"cpu\""),
      ":2:1 device_statistics: the value \"cpu\" is not known; expected \"device\", \"host\" or "
      "\"force\"");
}

// decisions.md 12.
TEST_F(CollectConfigTest, CommentKeysAreForReaders) {
  const auto c = With("\"_comment\": [\"why\"], \"_comment_task\": 1", "\"_comment\": {}");
  ASSERT_TRUE(c.ok());
  EXPECT_TRUE(c->unknown_keys.empty());
}

TEST_F(CollectConfigTest, UnknownKeys) {
  EXPECT_EQ(KeyError("\"dump_pth\": \"x\""),
            ":2:1 dump_pth: unknown key; did you mean \"dump_path\"?");
  EXPECT_EQ(KeyError("\"Rank\": []"), ":2:1 Rank: unknown key; did you mean \"rank\"?");
  EXPECT_EQ(SectionError("\"summarymode\": \"md5\""),
            ":2:16 statistics.summarymode: unknown key; did you mean \"summary_mode\"?");
  EXPECT_EQ(SectionError("\"slice\": [{\"sizes\": 1}]"),
            ":2:27 statistics.slice[0].sizes: unknown key; did you mean \"size\"?");
  const auto c = With("\"a key of another release\": 1", "\"colour\": 2");
  ASSERT_TRUE(c.ok());
  EXPECT_THAT(
      c->unknown_keys,
      ElementsAre(folder_ + "/config.json:2:1 a key of another release: unknown key, ignored",
                  folder_ + "/config.json:3:16 statistics.colour: unknown key, ignored"));
  EXPECT_EQ(log_.warnings, c->unknown_keys);
}

TEST_F(CollectConfigTest, SectionsOfOtherTasksAreNotLookedAt) {
  EXPECT_TRUE(With("\"tensor\": 3, \"run_ut\": {\"wite_list\": 1}").ok());
}

TEST_F(CollectConfigTest, KnownKeysWithoutEffectAreWarnings) {
  ASSERT_TRUE(With("\"enable_dataloader\": true",
                   "\"file_format\": \"npy\", \"list\": [\"name-regex(a)\", \"\"]")
                  .ok());
  EXPECT_THAT(
      log_.warnings,
      ElementsAre(
          HasSubstr(
              ":2:1 enable_dataloader: this key has no effect: call start(), stop() and step()"),
          HasSubstr("statistics.list: empty elements are ignored"),
          HasSubstr("statistics.list: \"name-regex(a)\" is a form for MindSpore"),
          HasSubstr("statistics.file_format: this key has no effect: it is for MindSpore")));
}

// ---- the section of the task --------------------------------------------------------------------

TEST_F(CollectConfigTest, SectionIsAnObject) {
  EXPECT_EQ(ErrorText(Read(R"({"dump_path": "d", "statistics": []})")),
            ":1:20 statistics: the value [] is a list; expected an object");
}

TEST_F(CollectConfigTest, Lists) {
  EXPECT_EQ(SectionError("\"list\": \"relu\""),
            ":2:16 statistics.list: the value \"relu\" is a string; expected a list of strings");
  EXPECT_EQ(
      SectionError("\"tensor_list\": [1]"),
      ":2:32 statistics.tensor_list[0]: the value 1 is an integer; expected a list of strings");
  EXPECT_EQ(SectionError("\"scope\": null"),
            ":2:16 statistics.scope: the value null is null; expected a list of strings");
}

TEST_F(CollectConfigTest, DataModeErrors) {
  const std::string expected =
      "; expected [\"all\"], or some of \"forward\", \"backward\", \"input\" and \"output\"";
  EXPECT_EQ(SectionError("\"data_mode\": [\"inputs\"]"),
            ":2:30 statistics.data_mode[0]: the value \"inputs\" is not known" + expected);
  EXPECT_EQ(SectionError("\"data_mode\": [\"all\", \"input\"]"),
            ":2:16 statistics.data_mode: \"all\" stands beside other words" + expected);
  EXPECT_EQ(SectionError("\"data_mode\": [\"input\", \"input\", \"input\", \"input\", \"input\"]"),
            ":2:16 statistics.data_mode: the list has 5 elements" + expected);
  EXPECT_EQ(SectionError("\"data_mode\": [\"input\"]", "nan_check"),
            ":2:15 nan_check.data_mode: \"input\" without \"output\" leaves nothing to check; "
            "expected \"output\" too");
}

TEST_F(CollectConfigTest, SummaryModeErrors) {
  EXPECT_EQ(SectionError("\"summary_mode\": \"MD5\""),
            ":2:16 statistics.summary_mode: the value \"MD5\" is not known; expected "
            "\"statistics\", \"md5\", \"xor\", \"hash64\" or \"sketch\"");
  EXPECT_EQ(SectionError("\"summary_mode\": [\"sketch\", 1]"),
            ":2:43 statistics.summary_mode[1]: the value 1 is an integer; expected \"statistics\", "
            "\"md5\", \"xor\", \"hash64\" or \"sketch\"");
  for (const char* list : {"[\"md5\", \"hash64\"]", "[\"sketch\", \"xor\"]",
                           "[\"sketch\", \"sketch\"]", "[\"sketch\", \"md5\", \"hash64\"]"}) {
    EXPECT_EQ(SectionError(std::string("\"summary_mode\": ") + list),
              ":2:16 statistics.summary_mode: these do not go together; expected one word, or "
              "\"sketch\" beside \"statistics\", \"md5\" or \"hash64\"")
        << list;
  }
}

TEST_F(CollectConfigTest, SliceErrors) {
  EXPECT_THAT(
      SectionError("\"slice\": {}"),
      HasSubstr(":2:16 statistics.slice: the value {} is an object; expected a list of objects"));
  EXPECT_THAT(
      SectionError("\"slice\": [1]"),
      HasSubstr(":2:26 statistics.slice[0]: the value 1 is an integer; expected an object"));
  EXPECT_EQ(SectionError("\"slice\": [{}, {\"dim\": -1}]"),
            ":2:31 statistics.slice[1].dim: the value -1 is out of range; expected an integer of "
            "at least 0");
  EXPECT_THAT(
      SectionError("\"slice\": [{\"size\": \"4\"}]"),
      HasSubstr("statistics.slice[0].size: the value \"4\" is a string; expected an integer"));
  EXPECT_EQ(SectionError("\"request_id\": 4"),
            ":2:16 statistics.request_id: the value 4 is an integer; expected a string");
}

TEST_F(CollectConfigTest, SlicesNeedTensors) {
  const auto c = With("\"level\": \"debug\"", "\"slice\": [{\"dim\": 1}], \"request_id\": \"a\"");
  ASSERT_TRUE(c.ok());
  EXPECT_THAT(c->slice, IsEmpty());
  EXPECT_EQ(c->request_id, std::nullopt);
  EXPECT_THAT(log_.warnings, ElementsAre(HasSubstr("slice: this key has no effect: it needs"),
                                         HasSubstr("request_id: this key has no effect")));
}

TEST_F(CollectConfigTest, DifferenceCheck) {
  const auto good =
      With("", "\"bench_path\": \"" + folder_ + "\", \"summary_mode\": \"md5\", \"diff_nums\": 0",
           "tensor");
  ASSERT_TRUE(good.ok()) << good.error().ToString();
  EXPECT_EQ(good->bench_path, folder_);
  EXPECT_EQ(good->diff_nums, 1);
  EXPECT_EQ(SectionError("\"bench_path\": \"/no/such\", \"summary_mode\": \"md5\"", "tensor"),
            ":2:12 tensor.bench_path: \"/no/such\" is not a folder; expected the folder of an "
            "earlier dump with summary_mode \"md5\"");
  EXPECT_EQ(SectionError("\"bench_path\": \"" + folder_ + "\"", "tensor"),
            ":2:12 tensor.bench_path: the comparison with an earlier dump is by checksums; "
            "expected summary_mode \"md5\" beside it");
  EXPECT_EQ(SectionError("\"bench_path\": 1", "tensor"),
            ":2:12 tensor.bench_path: the value 1 is an integer; expected a string");
  EXPECT_EQ(
      SectionError("\"diff_nums\": -2", "tensor"),
      ":2:12 tensor.diff_nums: the value -2 is out of range; expected an integer of at least -1");
  const auto statistics = With("", "\"bench_path\": \"/no/such\"");
  ASSERT_TRUE(statistics.ok());
  EXPECT_EQ(statistics->bench_path, std::nullopt);
}

TEST_F(CollectConfigTest, OverflowCheck) {
  EXPECT_EQ(With("", "", "overflow_check")->overflow_nums, 1);
  EXPECT_EQ(With("", "", "nan_check")->overflow_nums, -1);
  EXPECT_EQ(With("", "\"overflow_nums\": 3", "overflow_check")->overflow_nums, 3);
  EXPECT_EQ(SectionError("\"overflow_nums\": 0", "overflow_check"),
            ":2:20 overflow_check.overflow_nums: the value 0 is out of range; expected -1 or a "
            "positive integer");
}

// dump.md 3.4.
TEST_F(CollectConfigTest, StructureWorksAtLevelsL0AndMix) {
  EXPECT_EQ(With("\"level\": \"L1\"", "", "structure")->level, Level::kMix);
  EXPECT_THAT(log_.warnings, ElementsAre(HasSubstr("level \"L1\" becomes \"mix\"")));
  EXPECT_EQ(With("\"level\": \"L0\"", "", "structure")->level, Level::kL0);
}

TEST_F(CollectConfigTest, AsynchronousCollection) {
  EXPECT_EQ(SectionError("", "tensor", "\"async_dump\": true"),
            " tensor.list: the list is empty, but asynchronous collection of tensors needs one; "
            "expected the names whose tensors are to be "
            "saved");
  EXPECT_EQ(SectionError("\"summary_mode\": \"md5\"", "statistics", "\"async_dump\": true"),
            ":2:1 async_dump: asynchronous collection does not go with summary_mode \"md5\"; "
            "expected false, or summary_mode "
            "\"statistics\", \"xor\", \"hash64\" or \"sketch\"");
  const auto debug =
      With("\"async_dump\": true, \"level\": \"debug\"", "\"list\": [\"a\"]", "tensor");
  ASSERT_TRUE(debug.ok());
  EXPECT_THAT(debug->list, IsEmpty());
}

TEST_F(CollectConfigTest, TensorListIsForStatistics) {
  EXPECT_THAT(With("", "\"tensor_list\": [\"relu\"]")->tensor_list, ElementsAre("relu"));
  EXPECT_THAT(With("", "\"tensor_list\": [\"relu\"]", "tensor")->tensor_list, IsEmpty());
  EXPECT_THAT(With("\"level\": \"debug\"", "\"tensor_list\": [\"relu\"]")->tensor_list, IsEmpty());
  EXPECT_THAT(
      log_.warnings,
      ElementsAre(
          HasSubstr("tensor.tensor_list: this key has no effect: the task \"tensor\" saves all"),
          HasSubstr("statistics.tensor_list: this key has no effect: the level is \"debug\"")));
}

TEST_F(CollectConfigTest, Scope) {
  const auto scope = [&](const std::string& level, const std::string& names) {
    return ErrorText(With("\"level\": \"" + level + "\"", "\"scope\": [" + names + "]"));
  };
  const std::string api = "\"Torch.add.0.forward\"", module = "\"Module.a.Linear.backward.1\"";
  EXPECT_EQ(scope("L1", api + "," + api), "no error");
  EXPECT_EQ(scope("L0", module + "," + module), "no error");
  EXPECT_EQ(scope("mix", api + "," + module), "no error");
  EXPECT_EQ(scope("L1", api),
            ":3:16 statistics.scope: the list has 1 elements; expected no element, or the names of "
            "the first and the last call");
  EXPECT_EQ(scope("L1", api + "," + module),
            ":3:48 statistics.scope[1]: \"Module.a.Linear.backward.1\" is not the name of a call "
            "at level \"L1\"; expected a name like "
            "\"Functional.relu.0.forward\"");
  EXPECT_EQ(scope("L0", api + "," + module),
            ":3:26 statistics.scope[0]: \"Torch.add.0.forward\" is not the name of a call at level "
            "\"L0\"; expected a name like "
            "\"Module.encoder.Linear.forward.0\"");
  EXPECT_THAT(
      scope("mix", "\"relu\"," + api),
      HasSubstr(
          "expected a name like \"Functional.relu.0.forward\" or a name like \"Module.encoder"));
  log_.warnings.clear();
  EXPECT_EQ(scope("L1", "\"my.lib.op.0.forward\", \"my.lib.op.1.forward\""), "no error");
  EXPECT_THAT(log_.warnings,
              ElementsAre(HasSubstr("scope[0]: \"my.lib.op.0.forward\" begins with no prefix"),
                          HasSubstr("scope[1]")));
}

// ---- several problems, and the echo -------------------------------------------------------------

TEST_F(CollectConfigTest, AllProblemsAtOnceUpToTwenty) {
  const auto two = Read("{\"dump_path\": 1,\n\"level\": 2}");
  ASSERT_FALSE(two.ok());
  EXPECT_EQ(
      ErrorText(two),
      ":2:1 level: the value 2 is an integer; expected \"L0\", \"L1\", \"mix\" or \"debug\"\n" +
          folder_ + "/config.json:1:2 dump_path: the value 1 is an integer; expected a string");
  std::string bad;
  for (int i = 0; i < 25; ++i) bad += i > 0 ? ",\"x\"" : "\"x\"";
  const std::string many = KeyError("\"step\": [" + bad + "]");
  EXPECT_EQ(std::count(many.begin(), many.end(), '\n'), 20);
  EXPECT_THAT(many, HasSubstr("step[19]"));
  EXPECT_THAT(many, HasSubstr("\nand 1 more problems"));
}

}  // namespace
}  // namespace msprobe::config
