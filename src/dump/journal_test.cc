#include "dump/journal.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "base/file.h"
#include "dump/reader.h"

namespace msprobe::dump {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

class JournalFolder : public testing::Test {
 protected:
  JournalFolder() {
    std::string pattern = (std::filesystem::temp_directory_path() / "journal_test.XXXXXX").string();
    dir_ = mkdtemp(pattern.data());
    fd_ = open(Path(kJournalName).c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  }
  ~JournalFolder() override {
    close(fd_);
    std::filesystem::remove_all(dir_);
  }
  std::string Path(std::string_view name) const { return JoinPath(dir_, name); }
  void Write(std::string_view name, std::string_view text) const {
    std::ofstream(Path(name), std::ios::binary) << text;
  }
  std::string Read(std::string_view name) const {
    std::ifstream in(Path(name), std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }
  JournalWriter Writer(size_t capacity, uint64_t dump_size) const {
    auto made = JournalWriter::Create(fd_, capacity, dump_size);
    EXPECT_TRUE(made.ok());
    return std::move(made).value();
  }
  std::vector<std::string> Names() const {
    std::vector<std::string> names;
    const auto journal = ReadJournal(dir_);
    EXPECT_TRUE(journal.ok());
    for (const JournalRecord& record : journal->records) names.push_back(record.name);
    return names;
  }
  // "name=value" of each entry that ReadDump delivers.
  std::vector<std::string> Entries(Result<ReadInfo>* info = nullptr) const {
    std::vector<std::string> out;
    auto read = ReadDump(Path("dump.json"), [&](std::string_view name, const json::Value& value) {
      out.push_back(std::string(name) + "=" + json::PyRepr(value));
      return true;
    });
    if (info != nullptr) *info = std::move(read);
    return out;
  }

  std::string dir_;
  int fd_ = -1;
};

TEST_F(JournalFolder, RecordsAreReadableWhileTheWriterLives) {
  JournalWriter writer = Writer(1000, 77);
  EXPECT_TRUE(writer.Append(RecordKind::kEntry, "a", "{\"x\": 1}"));
  EXPECT_TRUE(writer.Append(RecordKind::kConstruct, "", ""));
  EXPECT_TRUE(writer.Append(RecordKind::kStack, "c", std::string(300, 'v')));
  const auto journal = ReadJournal(dir_);
  ASSERT_TRUE(journal.ok());
  EXPECT_EQ(journal->dump_size, 77u);
  ASSERT_EQ(journal->records.size(), 3u);
  EXPECT_EQ(journal->records[0].kind, RecordKind::kEntry);
  EXPECT_EQ(journal->records[0].name, "a");
  EXPECT_EQ(journal->records[0].value, "{\"x\": 1}");
  EXPECT_EQ(journal->records[1].kind, RecordKind::kConstruct);
  EXPECT_EQ(journal->records[1].name, "");
  EXPECT_EQ(journal->records[2].value, std::string(300, 'v'));
}

TEST_F(JournalFolder, ResetForgetsAndOldRecordsNeverComeBack) {
  JournalWriter writer = Writer(1000, 1);
  for (const char* name : {"a", "b", "c"}) writer.Append(RecordKind::kEntry, name, "1");
  writer.Reset(2);
  EXPECT_THAT(Names(), IsEmpty());
  EXPECT_EQ(ReadJournal(dir_)->dump_size, 2u);
  writer.Append(RecordKind::kEntry, "d",
                "1");  // stands where "a" stood; "b" and "c" follow on disk
  EXPECT_THAT(Names(), ElementsAre("d"));
  writer.Reset(3);
  EXPECT_EQ(ReadJournal(dir_)->dump_size, 3u);
}

TEST_F(JournalFolder, WithoutRoomNothingIsWritten) {
  JournalWriter writer = Writer(64, 0);
  EXPECT_TRUE(writer.Append(RecordKind::kEntry, "a", "12345678"));  // 8 + 8 + 9, padded to 32
  EXPECT_FALSE(writer.Append(RecordKind::kEntry, "b", std::string(17, 'x')));  // 8 + 26 -> 40
  EXPECT_TRUE(writer.Append(RecordKind::kEntry, "c", std::string(15, 'x')));   // 32: exactly full
  EXPECT_FALSE(writer.Append(RecordKind::kEntry, "", ""));
  EXPECT_THAT(Names(), ElementsAre("a", "c"));
  writer.Reset(0);
  EXPECT_TRUE(writer.Append(RecordKind::kEntry, "b", std::string(17, 'x')));
  EXPECT_THAT(Names(), ElementsAre("b"));
}

TEST_F(JournalFolder, AnyChangedByteEndsTheListThere) {
  {
    JournalWriter writer = Writer(256, 5);
    writer.Append(RecordKind::kEntry, "first", "11");
    writer.Append(RecordKind::kEntry, "second", "22");
  }
  const std::string good = Read(kJournalName);
  ASSERT_THAT(Names(), ElementsAre("first", "second"));
  // Record 1: 64..88 (8 + 8 + 7 padded), record 2 from 88: 8 + 8 + 8.
  for (size_t at = 64; at < 112; ++at) {
    if (at == 87) continue;  // padding of record 1
    std::string bad = good;
    bad[at] = static_cast<char>(bad[at] ^ 0x40);
    Write(kJournalName, bad);
    EXPECT_EQ(Names().size(), at < 88 ? 0u : 1u) << at;
  }
  for (size_t size = 0; size < 112; ++size) {
    Write(kJournalName, good.substr(0, size));
    EXPECT_EQ(Names().size(), size < 87 ? 0u : 1u) << size;
  }
}

TEST_F(JournalFolder, StrangeFilesAreNoJournal) {
  Write(kJournalName, "");
  EXPECT_THAT(Names(), IsEmpty());
  Write(kJournalName, std::string(200, 'x'));
  EXPECT_THAT(Names(), IsEmpty());
  std::string lying =
      "MSPJRNL1" + std::string(56, '\0') + "\xFF\xFF\xFF\xFF" + std::string(60, 'y');
  Write(kJournalName, lying);
  EXPECT_THAT(Names(), IsEmpty());
  std::filesystem::remove(Path(kJournalName));
  EXPECT_THAT(Names(), IsEmpty());
  ASSERT_EQ(mkfifo(Path(kJournalName).c_str(), 0600), 0);
  EXPECT_FALSE(ReadJournal(dir_).ok());
  Write("dump.json", "{\"data\": {\"a\": 1}}");
  EXPECT_THAT(Entries(), ElementsAre("a=1"));
}

TEST_F(JournalFolder, DumpIsFilePlusJournalAndTheLaterOfANameWins) {
  const std::string text = "{\"data\": {\"a\": 1, \"b\": 2}}";
  Write("dump.json", text);
  JournalWriter writer = Writer(1000, text.size());
  writer.Append(RecordKind::kConstruct, "zz", "null");
  writer.Append(RecordKind::kEntry, "c", "3");
  writer.Append(RecordKind::kEntry, "d", "{\"x\": [1]}");
  writer.Append(RecordKind::kEntry, "broken", "{");
  writer.Append(RecordKind::kEntry, "c", "30");
  writer.Append(RecordKind::kEntry, "b", "20");  // fired again after it was flushed
  Result<ReadInfo> info = Error();
  EXPECT_THAT(Entries(&info), ElementsAre("a=1", "b=2", "d={'x': [1]}", "c=30", "b=20"));
  ASSERT_TRUE(info.ok());
  EXPECT_EQ(info->entries, 5u);
  EXPECT_EQ(info->journal_entries, 3u);
  EXPECT_FALSE(info->torn);
}

// Killed within a flush: the file is longer than the journal knows, some of its records are in it
// already, its end is torn.
TEST_F(JournalFolder, AFlushThatWasUnderWayGivesEachEntryOnce) {
  const std::string before = "{\"data\": {\"a\": 1}}";
  JournalWriter writer = Writer(1000, before.size());
  writer.Append(RecordKind::kEntry, "b", "2");
  writer.Append(RecordKind::kEntry, "c", "3");
  Write("dump.json", "{\"data\": {\"a\": 1, \"b\": 2, \"c\"");
  Result<ReadInfo> info = Error();
  EXPECT_THAT(Entries(&info), ElementsAre("a=1", "b=2", "c=3"));
  EXPECT_TRUE(info->torn);
  EXPECT_EQ(info->journal_entries, 1u);
  Write("dump.json", "{\"data\": {\"a\": 1, \"b\": 2, \"c\": 3}}");
  EXPECT_THAT(Entries(&info), ElementsAre("a=1", "b=2", "c=3"));
  EXPECT_EQ(info->journal_entries, 0u);
}

TEST_F(JournalFolder, ATornHeaderIsNoErrorWhenTheJournalHasEntries) {
  JournalWriter writer = Writer(1000, 3);
  writer.Append(RecordKind::kEntry, "b", "2");
  Write("dump.json", "{\"d");
  Result<ReadInfo> info = Error();
  EXPECT_THAT(Entries(&info), ElementsAre("b=2"));
  EXPECT_TRUE(info.ok() && info->torn);
}

TEST_F(JournalFolder, StacksAndParentsComeFromItToo) {
  Write("stack.json", "{\"0\": [[\"a\"], [\"l\"]]}");
  Write("construct.json", "{\"a\": null}");
  JournalWriter writer = Writer(1000, 0);
  writer.Append(RecordKind::kFrames, "7", "[\"m\", \"n\"]");
  writer.Append(RecordKind::kStack, "b", "7");
  writer.Append(RecordKind::kStack, "c", "7");
  writer.Append(RecordKind::kStack, "d", "8");  // frames never seen
  writer.Append(RecordKind::kConstruct, "b", "\"a\"");
  const auto stacks = ReadStack(Path("stack.json"));
  ASSERT_TRUE(stacks.ok());
  EXPECT_THAT(*stacks->Find("a"), ElementsAre("l"));
  EXPECT_THAT(*stacks->Find("b"), ElementsAre("m", "n"));
  EXPECT_EQ(stacks->Find("b"), stacks->Find("c"));
  EXPECT_EQ(stacks->Find("d"), nullptr);
  const auto parents = ReadConstruct(Path("construct.json"));
  ASSERT_TRUE(parents.ok());
  EXPECT_EQ(parents->at("b"), "a");
}

TEST_F(JournalFolder, OnlyTheFileOfThatNameHasAJournal) {
  JournalWriter writer = Writer(1000, 3);
  writer.Append(RecordKind::kEntry, "b", "2");
  Write("other.json", "{\"data\": {\"a\": 1}}");
  int entries = 0;
  ASSERT_TRUE(ReadDump(Path("other.json"), [&](std::string_view, const json::Value&) {
                return ++entries > 0;
              }).ok());
  EXPECT_EQ(entries, 1);
}

}  // namespace
}  // namespace msprobe::dump
