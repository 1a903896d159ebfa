#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidjson/document.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>

#include "base/file.h"
#include "dump/reader.h"
#include "dump/writer.h"

namespace msprobe::dump {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using Pairs = std::vector<std::pair<std::string, std::string>>;

class TempDir {
 public:
  TempDir() {
    std::string pattern = (std::filesystem::temp_directory_path() / "dump_test.XXXXXX").string();
    path_ = mkdtemp(pattern.data());
  }
  ~TempDir() { std::filesystem::remove_all(path_); }
  std::string operator/(std::string_view name) const { return JoinPath(path_, name); }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

void WriteFile(const std::string& path, std::string_view text) {
  std::ofstream(path, std::ios::binary) << text;
}

std::string ReadFile(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

struct Dump {
  Result<ReadInfo> info = Error(ErrorCode::kInternal, "not read");
  Pairs entries;
  std::vector<std::string> names() const {
    std::vector<std::string> out;
    for (const auto& [name, text] : entries) out.push_back(name);
    return out;
  }
};

Dump Read(const std::string& path) {
  Dump dump;
  dump.info = ReadDump(path, [&](std::string_view name, const json::Value& value) {
    dump.entries.emplace_back(name, json::PyRepr(value));
    return true;
  });
  return dump;
}

Dump ReadText(std::string_view text) {
  TempDir dir;
  WriteFile(dir / "dump.json", text);
  return Read(dir / "dump.json");
}

// ---- dump.json
// --------------------------------------------------------------------------------------

TEST(ReadDump, HeaderAndEntriesInFileOrder) {
  const Dump dump = ReadText(
      R"({"task": "tensor", "level": "L1", "framework": "pytorch", "dump_data_dir": "/d/x",
          "data": {"Torch.b.0.forward": {"output": [null, 1.5]}, "Torch.a.0.forward": {}}})");
  ASSERT_TRUE(dump.info.ok());
  const Header& header = dump.info->header;
  EXPECT_EQ(header.task, "tensor");
  EXPECT_EQ(header.level, "L1");
  EXPECT_EQ(header.framework, "pytorch");
  EXPECT_EQ(header.dump_data_dir, "/d/x");
  EXPECT_TRUE(header.has_data);
  EXPECT_FALSE(header.format_version.has_value());
  EXPECT_FALSE(header.complete.has_value());
  EXPECT_FALSE(dump.info->torn);
  EXPECT_EQ(dump.info->entries, 2u);
  EXPECT_EQ(dump.entries,
            (Pairs{{"Torch.b.0.forward", "{'output': [None, 1.5]}"}, {"Torch.a.0.forward", "{}"}}));
}

TEST(ReadDump, HeaderKeysAfterDataAndUnknownKeysAreAccepted) {
  const Dump dump = ReadText(
      R"({"other": [1, {"data": {"no": 1}}], "data": {"a": [1]}, "more": {"task": "wrong"},
          "level": "mix", "task": "statistics", "dump_data_dir": null,
          "msprobe": {"format_version": 1, "complete": true, "counts": {"written": 1}}})");
  ASSERT_TRUE(dump.info.ok());
  EXPECT_EQ(dump.info->header.task, "statistics");
  EXPECT_EQ(dump.info->header.level, "mix");
  EXPECT_EQ(dump.info->header.dump_data_dir, std::nullopt);
  EXPECT_EQ(dump.info->header.format_version, 1);
  EXPECT_EQ(dump.info->header.complete, true);
  EXPECT_EQ(dump.entries, (Pairs{{"a", "[1]"}}));
}

TEST(ReadDump, ScalarMembersAndDuplicatesAreDelivered) {
  const Dump dump = ReadText(R"({"data": {"a": 1, "b": null, "a": {"x": NaN}, "c": "s"}})");
  ASSERT_TRUE(dump.info.ok());
  EXPECT_EQ(dump.entries, (Pairs{{"a", "1"}, {"b", "None"}, {"a", "{'x': nan}"}, {"c", "'s'"}}));
}

TEST(ReadDump, DataThatIsNoObjectIsReportedNotDelivered) {
  for (const char* data : {"[1, {\"a\": 2}]", "null", "7", "\"text\""}) {
    const Dump dump = ReadText(std::string(R"({"task": "tensor", "data": )") + data + "}");
    ASSERT_TRUE(dump.info.ok()) << data;
    EXPECT_FALSE(dump.info->header.has_data) << data;
    EXPECT_EQ(dump.info->header.task, "tensor") << data;
    EXPECT_THAT(dump.entries, IsEmpty()) << data;
  }
  EXPECT_FALSE(ReadText("{}").info->header.has_data);
}

TEST(ReadDump, TopLevelListOrScalarIsRefusedByName) {
  for (const char* text : {"[]", "[{\"data\": {}}]"}) {
    const Dump dump = ReadText(text);
    ASSERT_FALSE(dump.info.ok());
    EXPECT_EQ(dump.info.error().code, ErrorCode::kMalformed);
    EXPECT_THAT(dump.info.error().ToString(), HasSubstr("the top level is a list"));
    EXPECT_THAT(dump.info.error().path, HasSubstr("dump.json"));
  }
  const Dump scalar = ReadText("3");
  ASSERT_FALSE(scalar.info.ok());
  EXPECT_THAT(scalar.info.error().message, HasSubstr("a single value"));
}

TEST(ReadDump, EmptyFileAndMissingFile) {
  const Dump empty = ReadText("");
  ASSERT_FALSE(empty.info.ok());
  EXPECT_EQ(empty.info.error().code, ErrorCode::kTruncated);
  EXPECT_THAT(empty.info.error().message, HasSubstr("empty"));
  TempDir dir;
  const Dump missing = Read(dir / "dump.json");
  ASSERT_FALSE(missing.info.ok());
  EXPECT_EQ(missing.info.error().code, ErrorCode::kNotFound);
}

TEST(ReadDump, ByteOrderMarkIsAccepted) {
  const Dump dump = ReadText("\xEF\xBB\xBF{\"data\": {\"a\": 1}}");
  ASSERT_TRUE(dump.info.ok());
  EXPECT_EQ(dump.entries, (Pairs{{"a", "1"}}));
}

TEST(ReadDump, StopsWhenTheCallerHasEnough) {
  TempDir dir;
  WriteFile(dir / "dump.json", R"({"data": {"a": 1, "b": 2, "c": 3}})");
  int seen = 0;
  const auto info =
      ReadDump(dir / "dump.json", [&](std::string_view, const json::Value&) { return ++seen < 2; });
  ASSERT_TRUE(info.ok());
  EXPECT_EQ(seen, 2);
  EXPECT_EQ(info->entries, 2u);
}

// Cut after any byte, a dump gives exactly the entries whose text was complete.
TEST(ReadDump, CutAtEveryByteKeepsTheCompleteEntries) {
  const std::string text =
      "{\n \"task\": \"statistics\",\n \"data\": {\n"
      "  \"Torch.a.0.forward\": {\"output\": [{\"Max\": 1.5}]},\n"
      "  \"Torch.b.0.forward\": {\"output\": [{\"Max\": \"x]}\"}]},\n"
      "  \"Torch.c.0.forward\": {\"output\": [3]}\n }\n}";
  const size_t end_a = text.find("}]},\n  \"Torch.b") + 3;
  const size_t end_b = text.find("}]},\n  \"Torch.c") + 3;
  const size_t end_c = text.find("[3]}") + 4;
  for (size_t cut = 1; cut < text.size(); ++cut) {
    const Dump dump = ReadText(text.substr(0, cut));
    const auto expected = static_cast<size_t>((cut >= end_a) + (cut >= end_b) + (cut >= end_c));
    ASSERT_EQ(dump.entries.size(), expected) << cut;
    ASSERT_EQ(dump.info.ok(), expected > 0) << cut;
    if (!dump.info.ok()) continue;
    EXPECT_TRUE(dump.info->torn) << cut;
    ASSERT_TRUE(dump.info->tear.has_value()) << cut;
    EXPECT_THAT(dump.info->tear->path, HasSubstr("dump.json"));
    EXPECT_EQ(dump.info->header.task, "statistics");
  }
}

TEST(ReadDump, BytesOverwrittenInTheMiddleKeepWhatCameBefore) {
  const Dump dump = ReadText(R"({"data": {"a": {"x": 1}, "b": {"x": @@@@}, "c": {"x": 2}}})");
  ASSERT_TRUE(dump.info.ok());
  EXPECT_TRUE(dump.info->torn);
  EXPECT_EQ(dump.info->tear->code, ErrorCode::kMalformed);
  EXPECT_THAT(dump.names(), ElementsAre("a"));
}

TEST(ReadDump, NestingBeyondTheLimitIsAnErrorNotATear) {
  std::string deep = R"({"data": {"a": 1, "b": )";
  deep += std::string(1100, '[') + std::string(1100, ']') + "}}";
  const Dump dump = ReadText(deep);
  ASSERT_FALSE(dump.info.ok());
  EXPECT_EQ(dump.info.error().code, ErrorCode::kTooLarge);
}

// ---- stack.json, construct.json
// ---------------------------------------------------------------------

Result<StackTable> StackOf(std::string_view text) {
  TempDir dir;
  WriteFile(dir / "stack.json", text);
  return ReadStack(dir / "stack.json");
}

TEST(ReadStack, NumberedShapeSharesStacks) {
  const auto table = StackOf(R"({"0": [["a", "b"], ["File x", "File y"]], "1": [["c"], []]})");
  ASSERT_TRUE(table.ok());
  ASSERT_NE(table->Find("b"), nullptr);
  EXPECT_EQ(table->Find("a"), table->Find("b"));
  EXPECT_THAT(*table->Find("b"), ElementsAre("File x", "File y"));
  EXPECT_THAT(*table->Find("c"), IsEmpty());
  EXPECT_EQ(table->Find("0"), nullptr);
  EXPECT_EQ(table->skipped, 0u);
}

TEST(ReadStack, OldShapeMapsEntryToLines) {
  const auto table = StackOf(R"({"Torch.a.0.forward": ["l1", "l2"], "b": []})");
  ASSERT_TRUE(table.ok());
  EXPECT_THAT(*table->Find("Torch.a.0.forward"), ElementsAre("l1", "l2"));
  EXPECT_THAT(*table->Find("b"), IsEmpty());
}

TEST(ReadStack, MalformedItemsAreSkippedAndCounted) {
  const auto table = StackOf(
      R"({"0": [["a"], ["l"]], "1": 5, "2": [["b"]], "3": [["c"], [7]], "4": [["d"], ["m"]], "x": ["l"]})");
  ASSERT_TRUE(table.ok());
  EXPECT_THAT(*table->Find("a"), ElementsAre("l"));
  EXPECT_THAT(*table->Find("d"), ElementsAre("m"));
  EXPECT_EQ(table->Find("c"), nullptr);
  EXPECT_EQ(table->Find("x"), nullptr);
  EXPECT_EQ(table->skipped, 4u);  // 5, one-element list, number among the lines, old-shape item
}

TEST(ReadStack, EmptyZeroMeansOldShape) {
  const auto table = StackOf(R"({"0": [], "a": ["l"]})");
  ASSERT_TRUE(table.ok());
  EXPECT_THAT(*table->Find("a"), ElementsAre("l"));
}

TEST(ReadStack, TopLevelListIsRefusedAndTornFileKeepsWholeItems) {
  const auto list = StackOf("[]");
  ASSERT_FALSE(list.ok());
  EXPECT_EQ(list.error().code, ErrorCode::kMalformed);
  const auto torn = StackOf(R"({"0": [["a"], ["l"]], "1": [["b"], ["m)");
  ASSERT_TRUE(torn.ok());
  EXPECT_NE(torn->Find("a"), nullptr);
  EXPECT_EQ(torn->Find("b"), nullptr);
}

TEST(ReadConstruct, ParentsOfEveryGeneration) {
  TempDir dir;
  WriteFile(dir / "construct.json",
            R"({"Module.a.A.forward.0": null, "Torch.x.0.forward": "Module.a.A.forward.0",
                "Torch.y.0.forward": ["Module.a.A.forward.0", 2], "Torch.z.0.forward": [null, 0],
                "megatron_micro_step_number": 3})");
  const auto parents = ReadConstruct(dir / "construct.json");
  ASSERT_TRUE(parents.ok());
  EXPECT_EQ(parents->size(), 4u);
  EXPECT_EQ(parents->at("Module.a.A.forward.0"), "");
  EXPECT_EQ(parents->at("Torch.x.0.forward"), "Module.a.A.forward.0");
  EXPECT_EQ(parents->at("Torch.y.0.forward"), "Module.a.A.forward.0");
  EXPECT_EQ(parents->at("Torch.z.0.forward"), "");
}

// ---- folders
// ----------------------------------------------------------------------------------------

TEST(ListRanks, KnowsThreeFormsAndSortsByNumber) {
  TempDir dir;
  for (const char* name : {"rank10", "rank2", "rank", "proc77", "proc8", "rank02", "rankx", "proc",
                           "rank-1", "other", "rank99999999999999999999"})
    std::filesystem::create_directory(dir / name);
  WriteFile(dir / "rank5", "a file, not a folder");
  const auto ranks = ListRanks(dir.path());
  ASSERT_TRUE(ranks.ok());
  std::vector<std::string> names;
  for (const RankDir& rank : *ranks) names.push_back(rank.name);
  EXPECT_THAT(names, ElementsAre("rank", "rank2", "rank10", "proc8", "proc77"));
  EXPECT_EQ((*ranks)[0].kind, RankDir::Kind::kPlain);
  EXPECT_EQ((*ranks)[2].number, 10);
  EXPECT_EQ((*ranks)[2].path, dir / "rank10");
  EXPECT_EQ((*ranks)[4].kind, RankDir::Kind::kProcess);
  EXPECT_EQ((*ranks)[4].number, 77);
}

TEST(ListSteps, ByNumberAndErrorForAMissingFolder) {
  TempDir dir;
  for (const char* name : {"step10", "step9", "step", "step01", "replaced-20260101000000"})
    std::filesystem::create_directory(dir / name);
  const auto steps = ListSteps(dir.path());
  ASSERT_TRUE(steps.ok());
  ASSERT_EQ(steps->size(), 2u);
  EXPECT_EQ((*steps)[0].name, "step9");
  EXPECT_EQ((*steps)[1].number, 10);
  const auto missing = ListSteps(dir / "nothing");
  ASSERT_FALSE(missing.ok());
  EXPECT_EQ(missing.error().code, ErrorCode::kNotFound);
}

// ---- writer
// -----------------------------------------------------------------------------------------

constexpr char kHead[] = "{\n \"task\": \"statistics\",\n \"data\": {";
constexpr char kTail[] = "}\n}";

GrowingObject Grow(const std::string& path) {
  auto made = GrowingObject::Create(path, kHead, kTail, 2);
  EXPECT_TRUE(made.ok());
  return std::move(made).value();
}

// An independent parser's view: RapidJSON's DOM, strict but for the non-finite tokens.
bool ValidJson(const std::string& text) {
  rapidjson::Document document;
  document.Parse<rapidjson::kParseNanAndInfFlag>(text.c_str());
  return !document.HasParseError();
}

TEST(GrowingObject, TextIsPythonIndentOne) {
  TempDir dir;
  GrowingObject object = Grow(dir / "dump.json");
  EXPECT_EQ(ReadFile(dir / "dump.json"), "{\n \"task\": \"statistics\",\n \"data\": {}\n}");
  object.Append("a\"b", "{\"x\": 1}");
  object.Append("c", "[]");
  EXPECT_EQ(object.members(), 2u);
  ASSERT_TRUE(object.Flush().ok());
  EXPECT_EQ(
      ReadFile(dir / "dump.json"),
      "{\n \"task\": \"statistics\",\n \"data\": {\n  \"a\\\"b\": {\"x\": 1},\n  \"c\": []\n }\n}");
  object.Append("d", "null");
  ASSERT_TRUE(object.Close("},\n \"msprobe\": {\"complete\": true}\n}").ok());
  const std::string text = ReadFile(dir / "dump.json");
  EXPECT_EQ(text,
            "{\n \"task\": \"statistics\",\n \"data\": {\n  \"a\\\"b\": {\"x\": 1},\n  \"c\": [],\n"
            "  \"d\": null\n },\n \"msprobe\": {\"complete\": true}\n}");
  EXPECT_EQ(object.bytes(), text.size());
  EXPECT_FALSE(object.Flush().ok());  // closed
}

TEST(GrowingObject, ValidAfterEveryFlushAndNothingElseInTheFolder) {
  TempDir dir;
  GrowingObject object = Grow(dir / "dump.json");
  ASSERT_TRUE(ValidJson(ReadFile(dir / "dump.json")));
  for (int k = 0; k < 40; ++k) {
    for (int j = 0; j < k % 5; ++j)
      object.Append(
          "entry" + std::to_string(k) + "." + std::to_string(j),
          "{\"Max\": NaN, \"pad\": \"" + std::string(static_cast<size_t>(k * 7), 'x') + "\"}");
    ASSERT_TRUE(object.Flush().ok());
    ASSERT_TRUE(ValidJson(ReadFile(dir / "dump.json"))) << k;
    ASSERT_EQ(Read(dir / "dump.json").entries.size(), object.members()) << k;
  }
  EXPECT_EQ(object.bytes(), std::filesystem::file_size(dir / "dump.json"));
  size_t files = 0;
  for (const auto& item : std::filesystem::directory_iterator(dir.path())) files += item.exists();
  EXPECT_EQ(files, 1u);
}

// A torn write leaves the old members and some prefix of what was being written.
TEST(GrowingObject, AnyPrefixOfAFlushIsRecoverable) {
  TempDir dir;
  GrowingObject object = Grow(dir / "dump.json");
  object.Append("a", "{\"x\": [1, 2]}");
  ASSERT_TRUE(object.Flush().ok());
  const std::string before = ReadFile(dir / "dump.json");
  object.Append("b", "{\"x\": \"y\"}");
  object.Append("c", "{}");
  ASSERT_TRUE(object.Flush().ok());
  const std::string after = ReadFile(dir / "dump.json");
  for (size_t written = 0; written <= after.size(); ++written) {
    // The first `written` bytes reached the file; the rest is what stood there before.
    std::string torn = after.substr(0, written);
    if (torn.size() < before.size()) torn += before.substr(torn.size());
    WriteFile(dir / "torn.json", torn);
    const Dump dump = Read(dir / "torn.json");
    ASSERT_TRUE(dump.info.ok()) << written;
    ASSERT_GE(dump.entries.size(), 1u) << written;
    EXPECT_EQ(dump.entries[0], (std::pair<std::string, std::string>{"a", "{'x': [1, 2]}"}));
  }
}

TEST(GrowingObject, ReplaceChangesAPendingMemberOnly) {
  TempDir dir;
  GrowingObject object = Grow(dir / "dump.json");
  const auto a = object.Append("a", "1");
  const auto b = object.Append("b", "2");
  const auto c = object.Append("c", "3");
  EXPECT_TRUE(object.Replace(a, "a", "[10, 20]"));
  EXPECT_TRUE(object.Replace(c, "c", "30"));
  EXPECT_TRUE(object.Replace(b, "b", "\"long text\""));
  EXPECT_TRUE(object.Replace(c, "c", "31"));
  ASSERT_TRUE(object.Flush().ok());
  EXPECT_FALSE(object.Replace(a, "a", "7"));
  EXPECT_FALSE(object.Replace(c + 1, "d", "7"));
  ASSERT_TRUE(object.Flush().ok());
  EXPECT_EQ(Read(dir / "dump.json").entries,
            (Pairs{{"a", "[10, 20]"}, {"b", "'long text'"}, {"c", "31"}}));
}

TEST(GrowingObject, DropPendingForgetsUnflushedMembers) {
  TempDir dir;
  GrowingObject object = Grow(dir / "dump.json");
  object.Append("a", "1");
  object.DropPending();
  EXPECT_EQ(object.pending_bytes(), 0u);
  object.Append("b", "2");
  ASSERT_TRUE(object.Flush().ok());
  EXPECT_THAT(Read(dir / "dump.json").names(), ElementsAre("b"));
}

TEST(GrowingObject, NoFolderIsNotFound) {
  TempDir dir;
  const auto made = GrowingObject::Create(dir / "no/dump.json", kHead, kTail, 2);
  ASSERT_FALSE(made.ok());
  EXPECT_EQ(made.error().code, ErrorCode::kNotFound);
}

TEST(GrowingObject, RebaseMovesToANewFolderWithANewHead) {
  TempDir dir;
  std::filesystem::create_directory(dir / "rank");
  GrowingObject object = Grow(dir / "rank/dump.json");
  object.Append("a", "1");
  ASSERT_TRUE(object.Flush().ok());
  object.Append("b", "2");
  std::filesystem::rename(dir / "rank", dir / "rank3");
  ASSERT_TRUE(
      object.Rebase(dir / "rank3/dump.json", "{\n \"longer\": \"head than before\",\n \"data\": {")
          .ok());
  EXPECT_THAT(Read(dir / "rank3/dump.json").names(), ElementsAre("a"));
  ASSERT_TRUE(object.Flush().ok());
  EXPECT_EQ(ReadFile(dir / "rank3/dump.json"),
            "{\n \"longer\": \"head than before\",\n \"data\": {\n  \"a\": 1,\n  \"b\": 2\n }\n}");
  EXPECT_EQ(object.path(), dir / "rank3/dump.json");
}

// The smallest real shortage there is without a disk of our own: the file size limit of the
// process.
TEST(GrowingObject, AWriteThatDoesNotFitLeavesTheFileAsItWas) {
  TempDir dir;
  const std::string path = dir / "dump.json";
  GrowingObject object = Grow(path);
  object.Append("a", "1");
  ASSERT_TRUE(object.Flush().ok());
  const std::string before = ReadFile(path);

  rlimit old_limit{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &old_limit), 0);
  const auto old_handler = std::signal(SIGXFSZ, SIG_IGN);
  rlimit limit = old_limit;
  limit.rlim_cur = before.size() + 20;
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &limit), 0);
  object.Append("b", "\"" + std::string(1000, 'x') + "\"");
  const Status failed = object.Flush();
  object.DropPending();
  object.Append("c", "2");
  const Status fits = object.Flush();
  setrlimit(RLIMIT_FSIZE, &old_limit);
  std::signal(SIGXFSZ, old_handler);

  EXPECT_FALSE(failed.ok());
  EXPECT_TRUE(fits.ok());
  EXPECT_THAT(Read(path).names(), ElementsAre("a", "c"));
  EXPECT_TRUE(ValidJson(ReadFile(path)));
}

}  // namespace
}  // namespace msprobe::dump
