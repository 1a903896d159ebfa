#include "app/json_turns.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "base/file.h"

namespace msprobe::app {
namespace {

class Turns : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = testing::TempDir() + "turns_" +
              testing::UnitTest::GetInstance()->current_test_info()->name();
    std::filesystem::remove_all(folder_);
    ASSERT_TRUE(CreateDirectories(folder_).ok());
    auto rows = JsonRows::Create(JoinPath(folder_, "rows.jsonl"));
    ASSERT_TRUE(rows.ok());
    rows_ = std::move(*rows);
  }
  static std::function<Status(JsonRows&)> Line(const char* text) {
    return [text](JsonRows& rows) { return rows.Append(std::string(text) + "\n"); };
  }
  std::string Written() {
    EXPECT_TRUE(rows_->Commit().ok());
    const auto text = ReadTextFile(JoinPath(folder_, "rows.jsonl"), 1 << 20);
    return text.ok() ? *text : text.error().ToString();
  }
  std::string folder_;
  std::unique_ptr<JsonRows> rows_;
};

TEST_F(Turns, RowsComeInTheOrderOfTheRanksWhicheverIsDoneFirst) {
  JsonTurns turns(*rows_, folder_, 4);
  EXPECT_TRUE(turns.Add(2, Line("two")).ok());
  EXPECT_TRUE(turns.Ended(2).ok());
  EXPECT_TRUE(turns.Add(1, Line("one")).ok());
  EXPECT_TRUE(turns.Add(0, Line("zero")).ok());
  EXPECT_TRUE(turns.Ended(0).ok());
  EXPECT_TRUE(turns.Ended(1).ok());
  EXPECT_TRUE(turns.Add(3, Line("three")).ok());
  EXPECT_TRUE(turns.Ended(3).ok());
  EXPECT_EQ(Written(), "zero\none\ntwo\nthree\n");
  // What waited is gone.
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder_), {}), 1);
}

TEST_F(Turns, ARankWithoutRowsIsPassedAndWhatWaitsForOneThatNeverEndsIsKept) {
  JsonTurns turns(*rows_, folder_, 4);
  EXPECT_TRUE(turns.Ended(0).ok());
  EXPECT_TRUE(turns.Add(3, Line("three")).ok());
  EXPECT_TRUE(turns.Add(2, Line("two")).ok());
  EXPECT_TRUE(turns.Ended(3).ok());
  EXPECT_TRUE(turns.Ended(2).ok());
  EXPECT_TRUE(turns.Finish().ok());  // rank 1 was cancelled
  EXPECT_EQ(Written(), "two\nthree\n");
}

TEST_F(Turns, WhatCannotBeWrittenIsTold) {
  ASSERT_TRUE(rows_->Commit().ok());
  JsonTurns turns(*rows_, JoinPath(folder_, "rows.jsonl"), 2);  // no folder
  const Status status = turns.Add(1, Line("one"));
  ASSERT_FALSE(status.ok());
  EXPECT_NE(status.error().ToString().find("rows.jsonl"), std::string::npos);
}

}  // namespace
}  // namespace msprobe::app
