#include "compare/piece_journal.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "base/file.h"

namespace msprobe::compare {
namespace {

namespace fs = std::filesystem;

class PieceJournalTest : public testing::Test {
 protected:
  PieceJournalTest() {
    std::string pattern = (fs::temp_directory_path() / "msprobe_journal_XXXXXX").string();
    dir_ = mkdtemp(pattern.data());
    path_ = dir_ + "/journal";
  }
  ~PieceJournalTest() override { fs::remove_all(dir_); }

  static PieceJournal::Key Key(uint64_t n) { return {n, n * 7}; }
  static PairResult Result(uint64_t n) {
    PairResult out;
    out.errors.count = n;
    out.errors.max_abs = 0.5 * static_cast<double>(n);
    out.positions_differ = n % 2 == 1;
    return out;
  }
  // A run that ends before it is complete, after `n` pieces.
  void Interrupted(uint64_t n) {
    const auto journal = PieceJournal::Open(path_, false);
    ASSERT_NE(journal, nullptr);
    for (uint64_t i = 0; i < n; ++i) journal->Add(Key(i), Result(i));
  }

  std::string dir_, path_;
};

TEST_F(PieceJournalTest, WhatWasDoneIsKnownToAResumedRun) {
  Interrupted(100);
  const auto journal = PieceJournal::Open(path_, true);
  ASSERT_NE(journal, nullptr);
  EXPECT_EQ(journal->known(), 100u);
  for (uint64_t i = 0; i < 100; ++i) {
    const auto found = journal->Find(Key(i));
    ASSERT_TRUE(found.has_value()) << i;
    EXPECT_EQ(found->errors.count, i);
    EXPECT_EQ(found->errors.max_abs, 0.5 * static_cast<double>(i));
    EXPECT_EQ(found->positions_differ, i % 2 == 1);
  }
  EXPECT_FALSE(journal->Find(Key(100)).has_value());
}

TEST_F(PieceJournalTest, ARunThatDoesNotResumeStartsAnew) {
  Interrupted(5);
  const auto journal = PieceJournal::Open(path_, false);
  ASSERT_NE(journal, nullptr);
  EXPECT_EQ(journal->known(), 0u);
  EXPECT_EQ(fs::file_size(path_), 0u);
}

TEST_F(PieceJournalTest, ACompleteRunLeavesNothing) {
  {
    const auto journal = PieceJournal::Open(path_, false);
    journal->Add(Key(1), Result(1));
    journal->Remove();
  }
  EXPECT_FALSE(PathExists(path_));
  Interrupted(3);
  PieceJournal::Open(path_, true)->Remove();
  EXPECT_FALSE(PathExists(path_));
}

TEST_F(PieceJournalTest, AnyCutOrChangedByteEndsTheListThere) {
  Interrupted(4);
  std::string whole;
  {
    std::ifstream in(path_, std::ios::binary);
    whole.assign(std::istreambuf_iterator<char>(in), {});
  }
  const size_t record = (whole.size() - whole.find('\n') - 10) / 4;
  for (size_t cut = 0; cut < whole.size(); cut += 13) {
    for (const bool change : {false, true}) {
      std::string text = change ? whole : whole.substr(0, cut);
      if (change) text[cut] = static_cast<char>(text[cut] ^ 0x20);
      std::ofstream(path_, std::ios::binary | std::ios::trunc) << text;
      const auto journal = PieceJournal::Open(path_, true);
      ASSERT_NE(journal, nullptr);
      const size_t header = whole.size() - 4 * record;
      EXPECT_EQ(journal->known(), cut < header ? 0 : (cut - header) / record)
          << cut << " " << change;
      // It goes on after the last whole record.
      journal->Add(Key(9), Result(9));
    }
    EXPECT_TRUE(PieceJournal::Open(path_, true)->Find(Key(9)).has_value()) << cut;
  }
}

TEST_F(PieceJournalTest, AnotherRunThatWritesItIsLeftAlone) {
  const auto first = PieceJournal::Open(path_, false);
  for (uint64_t i = 0; i < 200; ++i) first->Add(Key(i), Result(i));
  EXPECT_EQ(PieceJournal::Open(path_, false), nullptr);
  EXPECT_EQ(PieceJournal::Open(path_, true), nullptr);
}

TEST_F(PieceJournalTest, KeysTellFilesAndRangesApart) {
  const std::string a = dir_ + "/a", b = dir_ + "/b";
  std::ofstream(a) << "1";
  std::ofstream(b) << "1";
  const auto key = PieceJournal::KeyOf(a, b, 0, 10);
  ASSERT_TRUE(key.has_value());
  EXPECT_EQ(key, PieceJournal::KeyOf(a, b, 0, 10));
  EXPECT_NE(key, PieceJournal::KeyOf(b, a, 0, 10));
  EXPECT_NE(key, PieceJournal::KeyOf(a, b, 1, 10));
  EXPECT_NE(key, PieceJournal::KeyOf(a, b, 0, 11));
  std::ofstream(b) << "12";
  EXPECT_NE(key, PieceJournal::KeyOf(a, b, 0, 10));
  EXPECT_EQ(PieceJournal::KeyOf(a, dir_ + "/gone", 0, 10), std::nullopt);
}

TEST_F(PieceJournalTest, AFolderThatCannotBeWrittenCostsTheJournalOnly) {
  const auto journal = PieceJournal::Open(dir_ + "/gone/journal", true);
  ASSERT_NE(journal, nullptr);
  for (uint64_t i = 0; i < 200; ++i) journal->Add(Key(i), Result(i));
  journal->Remove();
  EXPECT_FALSE(PathExists(dir_ + "/gone"));
}

}  // namespace
}  // namespace msprobe::compare
