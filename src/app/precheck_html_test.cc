#include "app/precheck_html.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "base/file.h"
#include "report/html_page.h"

namespace msprobe::app {
namespace {

class PrecheckPage : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string name = ::testing::TempDir() + "msprobe-page-XXXXXX";
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    folder_ = name;
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  std::string Write(const std::string& name, const std::string& content) const {
    std::ofstream(folder_ + "/" + name) << content;
    return folder_ + "/" + name;
  }
  std::string folder_;
};

std::string Row(const std::string& name, const std::string& status, const std::string& message) {
  std::string out = name + ",torch.float64,torch.float32,\"(4, 33)\",1,0.5";
  for (int i = 0; i < 15; ++i) out += ", ";
  return out + "," + status + ",\"" + message + "\"\n";
}

std::string Header() {
  std::string out = "API Name";
  for (int i = 1; i < 23; ++i) out += ",c" + std::to_string(i);
  return out + "\n";
}

TEST_F(PrecheckPage, NamesTheFirstWrongApiAndCounts) {
  if (!report::HtmlAvailable()) GTEST_SKIP() << "built without MSPROBE_HTML";
  const std::string details =
      Write("accuracy_checking_details_20260101000000.csv",
            Header() + Row("Torch.abs.0.forward.output.0", "pass", "") +
                Row("Torch.sin.0.backward.output.0", "ERROR", "off by <b>2</b>") +
                Row("Torch.cos.0.forward.output.0", "SKIP", "no kernel") +
                Row("Torch.tan.0.forward.output.0", "error", ""));
  const auto page = WritePrecheckPage(details);
  ASSERT_TRUE(page.ok()) << page.error().ToString();
  EXPECT_EQ(BaseName(*page), "accuracy_checking_report_20260101000000.html");
  const std::string text = *ReadTextFile(*page, 1 << 24);
  EXPECT_NE(text.find("First API that is wrong by itself: Torch.sin.0.backward"),
            std::string::npos);
  EXPECT_NE(text.find("off by &lt;b&gt;2&lt;/b&gt; 1 result was not checked"), std::string::npos);
  EXPECT_NE(text.find("\"counts\": [2, 0, 1, 1]"), std::string::npos);
  EXPECT_NE(text.find("\"first_row\": 1"), std::string::npos);
}

TEST_F(PrecheckPage, RefusesWhatIsNoDetailsFile) {
  const auto page = WritePrecheckPage(Write("x.csv", "a,b\n1,2\n"));
  ASSERT_FALSE(page.ok());
  EXPECT_EQ(page.error().code, ErrorCode::kMalformed);
  EXPECT_FALSE(WritePrecheckPage(folder_ + "/none.csv").ok());
}

TEST_F(PrecheckPage, FindsTheFilesOfTheRun) {
  const std::string old = Write("accuracy_checking_details_20260101000000.csv", "");
  const NewDetails fresh(folder_, "");
  const NewDetails resumed("elsewhere", folder_ + "/accuracy_checking_result_20260101000000.csv");
  EXPECT_EQ(fresh.Find(), std::vector<std::string>{});
  const std::string made = Write("accuracy_checking_details_20260101000001.csv", "");
  Write("other.csv", "");
  EXPECT_EQ(fresh.Find(), std::vector<std::string>{made});
  EXPECT_EQ(resumed.Find(), (std::vector<std::string>{old, made}));
}

}  // namespace
}  // namespace msprobe::app
