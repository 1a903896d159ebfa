#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <limits>
#include <mutex>
#include <set>
#include <thread>
#include <vector>

#include "base/bytes.h"
#include "base/checked.h"
#include "base/file.h"
#include "base/text.h"
#include "base/thread_pool.h"
#include "base/time.h"

namespace msprobe {
namespace {

class TempDir {
 public:
  TempDir() {
    char name[] = "/tmp/msprobe_base_XXXXXX";
    path_ = mkdtemp(name);
  }
  ~TempDir() { std::filesystem::remove_all(path_); }
  std::string operator/(std::string_view name) const { return JoinPath(path_, name); }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

void WriteFile(const std::string& path, std::string_view text) {
  const int fd = open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0644);
  ASSERT_GE(fd, 0);
  ASSERT_TRUE(WriteAll(fd, text).ok());
  close(fd);
}

TEST(Error, ShowsPlaceKeyMessageAndHint) {
  const Error at_line = Error(ErrorCode::kConfig, "unknown task \"x\"")
                            .At("c.json")
                            .AtLine(3, 7)
                            .Key("task")
                            .Hint("one of statistics, tensor");
  EXPECT_EQ(at_line.ToString(), "c.json:3:7 task: unknown task \"x\"; one of statistics, tensor");
  EXPECT_EQ(Error(ErrorCode::kTruncated, "ends early").At("a.pt").AtOffset(12).ToString(),
            "a.pt@12: ends early");
  EXPECT_EQ(Error(ErrorCode::kIo, "bad \x1b[31m").At("n\xffme").ToString(),
            "n\\xffme: bad \\x1b[31m");
}

TEST(Error, OnlyProblemsOfAConfigurationAreSeveralLines) {
  EXPECT_EQ(Error(ErrorCode::kMalformed, "entry a\nmsprobe: pass 1").ToString(),
            "entry a\\x0amsprobe: pass 1");
  EXPECT_EQ(Error(ErrorCode::kConfig, "one\ntwo\x1b").ToString(), "one\ntwo\\x1b");
  EXPECT_EQ(VisibleText("a\nb"), "a\\x0ab");
}

TEST(Text, FloatsAreWrittenAsPythonWritesThem) {
  // Each expectation is what CPython 3.11 prints.
  const std::vector<std::pair<double, std::string>> cases = {
      {1.0, "1.0"},
      {-0.0, "-0.0"},
      {0.1, "0.1"},
      {1e-4, "0.0001"},
      {1e-5, "1e-05"},
      {1e15, "1000000000000000.0"},
      {1e16, "1e+16"},
      {1.5e300, "1.5e+300"},
      {5e-324, "5e-324"},
      {2251799813685248.0, "2251799813685248.0"},
      {1.4142135381698608, "1.4142135381698608"},
      {123456789012345680.0, "1.2345678901234568e+17"}};
  for (const auto& [value, text] : cases) EXPECT_EQ(PyFloatRepr(value), text);
  EXPECT_EQ(PyFloatRepr(std::numeric_limits<double>::infinity()), "inf");
  EXPECT_EQ(PyFloatRepr(std::nan("")), "nan");
}

TEST(Text, StringReprChoosesQuotesAsPython) {
  EXPECT_EQ(PyStringRepr("a.pt"), "'a.pt'");
  EXPECT_EQ(PyStringRepr("it's"), "\"it's\"");
  EXPECT_EQ(PyStringRepr("'\""), "'\\'\"'");
  EXPECT_EQ(PyStringRepr("a\n\tb\\\x01"), "'a\\n\\tb\\\\\\x01'");
  EXPECT_EQ(PyStringRepr("层"), "'层'");
}

TEST(Text, VisibleTextHidesNothing) {
  EXPECT_EQ(VisibleText("a\x1b[2Jb"), "a\\x1b[2Jb");
  EXPECT_EQ(VisibleText("\xE2\x80\xAE"
                        "abc"),
            "\\u202eabc");                                    // right-to-left override
  EXPECT_EQ(VisibleText("\xC0\xAF"), "\\xc0\\xaf");           // overlong slash
  EXPECT_EQ(VisibleText("\xED\xA0\x80"), "\\xed\\xa0\\x80");  // lone surrogate
  EXPECT_EQ(VisibleText("é层"), "é层");
}

TEST(Text, Utf8Validity) {
  EXPECT_TRUE(IsValidUtf8("é层😀"));
  EXPECT_FALSE(IsValidUtf8("\xF4\x90\x80\x80"));  // beyond U+10FFFF
  EXPECT_FALSE(IsValidUtf8("\xE5\xB1"));          // cut off
}

TEST(Text, NearestNamesOnlyWhatIsNear) {
  const std::array<std::string_view, 3> names = {"compare", "overflow_check", "merge_result"};
  EXPECT_EQ(Nearest("comprae", names), "compare");
  EXPECT_EQ(Nearest("overflow-check", names), "overflow_check");
  EXPECT_EQ(Nearest("xyz", names), "");
  EXPECT_EQ(EditDistance("kitten", "sitting"), 3u);
}

TEST(Text, ParsePyFloat) {
  double v = 0;
  EXPECT_TRUE(ParsePyFloat("-1.5e3", v) && v == -1500.0);
  EXPECT_TRUE(ParsePyFloat("-Infinity", v) && v < 0 && std::isinf(v));
  EXPECT_TRUE(ParsePyFloat("NaN", v) && std::isnan(v));
  EXPECT_TRUE(ParsePyFloat("1e999", v) && std::isinf(v));
  EXPECT_FALSE(ParsePyFloat("", v));
  EXPECT_FALSE(ParsePyFloat("1.5x", v));
  EXPECT_FALSE(ParsePyFloat("--1", v));
  EXPECT_FALSE(ParsePyFloat("True", v));
}

TEST(ByteReader, NeverReadsPastTheEnd) {
  ByteReader r(AsBytes("\x01\x02\x03rest\n"));
  EXPECT_EQ(r.Read<uint16_t>(), 0x0201);
  EXPECT_EQ(r.Read<uint64_t>(), std::nullopt);
  EXPECT_EQ(r.position(), 2u);
  EXPECT_EQ(r.TakeUntil('\n'), "\x03rest");
  EXPECT_EQ(r.TakeUntil('\n'), std::nullopt);
  EXPECT_EQ(r.Take(1), std::nullopt);
  EXPECT_FALSE(r.Seek(9));
}

TEST(Checked, OverflowIsNoValue) {
  EXPECT_EQ(CheckedMul<int64_t>(1ll << 32, 1ll << 31), std::nullopt);
  EXPECT_EQ(CheckedMul<int64_t>(3, 4), 12);
  EXPECT_EQ(CheckedAdd<uint64_t>(UINT64_MAX, 1), std::nullopt);
}

TEST(InputFile, RefusesWhatIsNoRegularFile) {
  const TempDir dir;
  EXPECT_EQ(InputFile::Open(dir / "none").error().code, ErrorCode::kNotFound);
  EXPECT_EQ(InputFile::Open(dir.path()).error().code, ErrorCode::kNotRegularFile);
  ASSERT_EQ(mkfifo((dir / "fifo").c_str(), 0600), 0);
  EXPECT_EQ(InputFile::Open(dir / "fifo").error().code,
            ErrorCode::kNotRegularFile);  // and does not hang
  EXPECT_EQ(InputFile::Open("/dev/null").error().code, ErrorCode::kNotRegularFile);
}

TEST(InputFile, AShrunkenFileIsTruncatedNotASignal) {
  const TempDir dir;
  WriteFile(dir / "f", "0123456789");
  const auto file = InputFile::Open(dir / "f");
  ASSERT_TRUE(file.ok());
  ASSERT_EQ(truncate((dir / "f").c_str(), 4), 0);
  std::array<std::byte, 8> buffer;
  const Status status = file->ReadAt(0, buffer);
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error().code, ErrorCode::kTruncated);
  EXPECT_EQ(status.error().offset, 4u);
}

TEST(ReadTextFile, LimitsSize) {
  const TempDir dir;
  WriteFile(dir / "f", "abcdef");
  EXPECT_EQ(*ReadTextFile(dir / "f", 6), "abcdef");
  EXPECT_EQ(ReadTextFile(dir / "f", 5).error().code, ErrorCode::kTooLarge);
}

TEST(AtomicFile, AppearsCompleteOrNotAtAll) {
  const TempDir dir;
  {
    auto file = AtomicFile::Create(dir / "a");
    ASSERT_TRUE(file.ok());
    ASSERT_TRUE(file->Write("half").ok());
    ASSERT_TRUE(file->Flush().ok());
    EXPECT_FALSE(PathExists(dir / "a"));
  }
  EXPECT_TRUE(std::filesystem::is_empty(dir.path()));
  auto file = AtomicFile::Create(dir / "a");
  ASSERT_TRUE(file.ok());
  const std::string big(3 << 20, 'x');
  ASSERT_TRUE(file->Write("head").ok());
  ASSERT_TRUE(file->Write(big).ok());
  ASSERT_TRUE(file->Commit().ok());
  EXPECT_EQ(*ReadTextFile(dir / "a", 1 << 30), "head" + big);
}

TEST(AtomicFile, SaysWhyItCannotBeCreated) {
  const TempDir dir;
  EXPECT_EQ(AtomicFile::Create(dir / "no/such").error().code, ErrorCode::kNotFound);
  EXPECT_EQ(AtomicFile::Create(dir.path()).error().code, ErrorCode::kNotRegularFile);
  // A FIFO stands for every kind of device: it must not be replaced by a file.
  const std::string fifo = dir / "fifo";
  ASSERT_EQ(mkfifo(fifo.c_str(), 0600), 0);
  const auto refused = AtomicFile::Create(fifo);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().ToString(),
            fifo + ": is a FIFO; the name of a file is expected, new or old");
  struct stat after = {};
  ASSERT_EQ(stat(fifo.c_str(), &after), 0);
  EXPECT_TRUE(S_ISFIFO(after.st_mode));
}

TEST(Directories, CreatedRecursivelyOrRefused) {
  const TempDir dir;
  EXPECT_TRUE(CreateDirectories(dir / "a/b/c").ok());
  EXPECT_TRUE(CreateDirectories(dir / "a/b/c/").ok());
  EXPECT_TRUE(IsDirectory(dir / "a/b/c"));
  WriteFile(dir / "file", "");
  EXPECT_EQ(CreateDirectories(dir / "file/x").error().code, ErrorCode::kNotRegularFile);
  EXPECT_EQ(CreateDirectories("").error().code, ErrorCode::kInvalidArgument);
}

TEST(ResolveInside, NothingLeadsOut) {
  const TempDir dir;
  ASSERT_TRUE(CreateDirectories(dir / "root/sub").ok());
  WriteFile(dir / "secret", "s");
  WriteFile(dir / "root/sub/in", "i");
  ASSERT_EQ(symlink("../secret", (dir / "root/link").c_str()), 0);
  ASSERT_EQ(symlink("sub/in", (dir / "root/inner").c_str()), 0);
  const std::string root = dir / "root";
  for (const char* bad : {"../secret", "/etc/passwd", "sub/../../secret", "link", ""})
    EXPECT_EQ(ResolveInside(root, bad).error().code, ErrorCode::kPathEscape) << bad;
  EXPECT_EQ(ResolveInside(root, "absent").error().code, ErrorCode::kNotFound);
  EXPECT_TRUE(ResolveInside(root, "sub/in").ok());
  EXPECT_TRUE(ResolveInside(root, "inner").ok());
}

TEST(Time, StampMovesOnWhileTaken) {
  const TempDir dir;
  WriteFile(dir / ("r_" + LocalTimestamp(1000) + ".csv"), "");
  WriteFile(dir / ("s_" + LocalTimestamp(1001) + ".json"), "");
  EXPECT_EQ(FreeTimestamp(dir.path(), {"r_{ts}.csv", "s_{ts}.json"}, 1000), 1002);
  EXPECT_EQ(IsoUtc(0), "1970-01-01T00:00:00Z");
}

TEST(Time, NoTwoAtATimeHaveOneStamp) {
  const TempDir dir;
  const auto stamp = [&] { return FreeTimestamp(dir.path(), {"r_{ts}.csv"}, 5000); };
  EXPECT_EQ(stamp(), 5000);
  EXPECT_EQ(stamp(), 5000);  // the one who has it may ask again
  int64_t other = 0;
  std::thread([&] { other = stamp(); }).join();
  EXPECT_EQ(other, 5001);
  int pipes[2];
  ASSERT_EQ(pipe(pipes), 0);
  const TempDir another;
  const pid_t child = fork();
  if (child == 0) {
    // The child knows the claims of its parent, but not those that came afterwards.
    char go = 0;
    const bool begun = read(pipes[0], &go, 1) == 1;
    _exit(begun && FreeTimestamp(another.path(), {"r_{ts}.csv"}, 7000) == 7001 ? 0 : 1);
  }
  EXPECT_EQ(FreeTimestamp(another.path(), {"r_{ts}.csv"}, 7000), 7000);
  EXPECT_EQ(write(pipes[1], "g", 1), 1);
  int status = -1;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  close(pipes[0]);
  close(pipes[1]);
}

TEST(ParallelFor, EveryItemOnce) {
  std::vector<std::atomic<int>> seen(1000);
  ParallelFor(seen.size(), 4, [&](size_t i) { ++seen[i]; });
  for (const auto& n : seen) EXPECT_EQ(n.load(), 1);
  ParallelFor(0, 4, [&](size_t) { FAIL(); });
}

TEST(CorePool, EveryItemOnceAndTheThreadsComeBack) {
  CorePool pool(3);
  std::vector<std::atomic<int>> seen(1000);
  ParallelFor(seen.size(), pool, [&](size_t i) { ++seen[i]; });
  for (const auto& s : seen) EXPECT_EQ(s, 1);
  ParallelFor(0, pool, [&](size_t) { FAIL(); });
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(pool.TryTake());
  EXPECT_FALSE(pool.TryTake());
}

TEST(CorePool, WorkInsideWorkSharesTheThreads) {
  constexpr unsigned kThreads = 4;
  CorePool pool(kThreads - 1);
  std::atomic<int> items{0}, busy{0}, most{0};
  ParallelFor(8, pool, [&](size_t outer) {
    ParallelFor(outer == 0 ? 500 : 2, pool, [&](size_t) {
      const int now = ++busy;
      for (int seen = most; now > seen && !most.compare_exchange_weak(seen, now);) {
      }
      ++items;
      --busy;
    });
  });
  EXPECT_EQ(items, 500 + 7 * 2);
  EXPECT_LE(most, static_cast<int>(kThreads));
  for (unsigned i = 1; i < kThreads; ++i) EXPECT_TRUE(pool.TryTake());
}

// The long one of two takes over the thread of the short one.
TEST(CorePool, AThreadThatIsDoneHelpsTheOthers) {
  CorePool pool(1);
  std::atomic<bool> short_is_done{false};
  std::mutex mutex;
  std::set<std::thread::id> threads;
  CancelToken helped;
  ParallelFor(2, pool, [&](size_t outer) {
    if (outer == 1) {
      short_is_done = true;
      return;
    }
    ParallelFor(
        5000000, pool,
        [&](size_t) {
          while (!short_is_done) std::this_thread::yield();
          const std::lock_guard lock(mutex);
          threads.insert(std::this_thread::get_id());
          if (threads.size() == 2) helped.Cancel();
        },
        &helped);
  });
  EXPECT_EQ(threads.size(), 2u);
}

TEST(CorePool, NothingBeginsAfterCancel) {
  CorePool pool(2);
  CancelToken cancel;
  std::atomic<int> begun{0};
  ParallelFor(
      100000, pool,
      [&](size_t) {
        if (++begun == 10) cancel.Cancel();
      },
      &cancel);
  EXPECT_GE(begun, 10);
  EXPECT_LT(begun, 100000);
}

TEST(ParallelFor, NothingBeginsAfterCancel) {
  CancelToken cancel;
  std::atomic<int> runs{0};
  ParallelFor(
      1000, 1,
      [&](size_t i) {
        ++runs;
        if (i == 9) cancel.Cancel();
      },
      &cancel);
  EXPECT_EQ(runs.load(), 10);
}

}  // namespace
}  // namespace msprobe
