#include <gtest/gtest.h>
#include <libdeflate.h>

#include <cmath>
#include <limits>

#include "report/html_page.h"
#include "report/html_table.h"
#include "report/html_text.h"
#include "report/report_test_util.h"

namespace msprobe::report {
namespace {

// RFC 4648, section 10.
TEST(HtmlText, Base64) {
  EXPECT_EQ(Base64(""), "");
  EXPECT_EQ(Base64("f"), "Zg==");
  EXPECT_EQ(Base64("fo"), "Zm8=");
  EXPECT_EQ(Base64("foo"), "Zm9v");
  EXPECT_EQ(Base64("foobar"), "Zm9vYmFy");
  EXPECT_EQ(Base64("\xff\xfe\xfd"), "//79");
}

TEST(HtmlText, NothingIsMarkup) {
  EXPECT_EQ(HtmlText("</script><img onerror='x' a=\"b\">&amp;"),
            "&lt;/script&gt;&lt;img onerror=&#39;x&#39; a=&quot;b&quot;&gt;&amp;amp;");
  EXPECT_EQ(HtmlText("a\nb"), "a\nb");
  EXPECT_EQ(HtmlText("a\x01\xe2\x80\xae"), "a\\x01\\u202e");
  EXPECT_EQ(ScriptSafe("{\"a\": \"</script>&\"}"), "{\"a\": \"\\u003c/script\\u003e\\u0026\"}");
}

TEST(HtmlTable, ColumnsOfEveryKind) {
  using Kind = HtmlColumn::Kind;
  std::vector<HtmlColumn> columns(3);
  columns[0] = {.key = "name", .title = "", .kind = Kind::kText};
  columns[1] = {.key = "kind", .title = "", .kind = Kind::kCategory};
  columns[2] = {.key = "v", .title = "", .kind = Kind::kNumber};
  HtmlTable table(columns);
  EXPECT_EQ(table.Json(),
            R"({"n":0,"columns":{"name":{"v":[]},"kind":{"d":[],"c":[]},"v":{"v":[]}}})");
  const auto add = [&](std::string_view name, std::string_view kind, Cell value) {
    const std::vector<Cell> cells = {Cell::Text(name), Cell::Text(kind), value};
    table.Row(cells);
  };
  add("a", "x", Cell::Double(0.1));
  add("\"<\xff\xe2\x80\xa8", "y", Cell::Double(std::numeric_limits<double>::infinity()));
  add("c", "x", Cell::Double(std::nan("")));
  add("d", "", Cell());
  add("e", "x", Cell::Int(-9007199254740993));
  add("f", "x", Cell::Uint(9007199254740992u));
  add("g", "x", Cell::Bool(true));
  EXPECT_EQ(table.rows(), 7u);
  EXPECT_EQ(
      table.Json(),
      "{\"n\":7,\"columns\":{\"name\":{\"v\":[\"a\",\"\\\"<\\udcff\\u2028\",\"c\",\"d\",\"e\","
      "\"f\",\"g\"]},\"kind\":{\"d\":[\"x\",\"y\",\"\"],\"c\":[0,1,0,2,0,0,0]},"
      "\"v\":{\"v\":[0.1,\"inf\",\"nan\",null,\"-9007199254740993\",9007199254740992,"
      "\"True\"]}}}");
}

class HtmlPageTest : public ReportTest {};

std::string Between(const std::string& text, const std::string& from, const std::string& to) {
  const size_t a = text.find(from);
  if (a == std::string::npos) return "missing";
  const size_t b = text.find(to, a + from.size());
  return text.substr(a + from.size(), b - a - from.size());
}

HtmlPage HostilePage() {
  HtmlPage page;
  page.title = "<em>t</em>";
  page.tone = HtmlTone::kBad;
  page.answer = "</script><img src=x onerror=alert(1)>";
  page.explanation = "a & b";
  page.facts = {{"k\"", "v'"}};
  page.notes = {{.title = "<i>", .lines = {{.text = "<u>", .more = {"<s>"}}}, .open = true}};
  page.view.verdicts = {{.word = "<e>", .tone = HtmlTone::kBad, .count = 3}};
  page.parts = {{.label = "</script><script>alert(2)</script>",
                 .problem = "",
                 .block = 0,
                 .rows = 1,
                 .note = "",
                 .counts = {3},
                 .first = "\xe2\x80\xa9",
                 .first_row = 0,
                 .strip = {-1, 0, 2.5, std::nan("")}}};
  return page;
}

TEST_F(HtmlPageTest, AllTextsAreEscapedAndTheTableUnpacks) {
  if (!HtmlAvailable()) GTEST_SKIP() << "built without MSPROBE_HTML";
  const std::string path = Path("r.html");
  const std::vector<HtmlColumn> columns = {{.key = "name", .title = "Name"}};
  HtmlTable table(columns);
  const std::vector<Cell> cells = {Cell::Text("</script>")};
  table.Row(cells);
  {
    auto report = HtmlReport::Create(path);
    ASSERT_TRUE(report.ok()) << report.error().ToString();
    const Result<uint32_t> block = (*report)->AddTable(table);
    ASSERT_TRUE(block.ok());
    EXPECT_EQ(*block, 0u);
    EXPECT_FALSE(PathExists(path));
    ASSERT_TRUE((*report)->Finish(HostilePage()).ok());
  }
  const std::string text = *ReadTextFile(path, 1u << 24);
  const std::string body = text.substr(text.find("<body>"));
  const std::string own = body.substr(0, body.find("<script>"));  // before the libraries
  for (const char* bad :
       {"<em>", "<img", "<i>", "<u>", "<s>", "<e>", "</script><", "\xe2\x80\xa9"}) {
    EXPECT_EQ(own.find(bad), std::string::npos) << bad;
  }
  EXPECT_NE(own.find("&lt;/script&gt;&lt;img src=x onerror=alert(1)&gt;"), std::string::npos);
  EXPECT_NE(own.find("\"strip\": [null, 0, 2.5, \"nan\"]"), std::string::npos);
  EXPECT_NE(text.find("default-src 'none'; script-src 'sha256-"), std::string::npos);
  // "eJ" begins every zlib stream in base64 here; the whole of it is what the table gave.
  const std::string packed = Between(text, "id=\"block-0\">", "</script>");
  std::string bytes;
  uint32_t bits = 0;
  int held = 0;
  for (const char c : packed) {
    const std::string letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const size_t v = letters.find(c);
    if (v == std::string::npos) break;
    bits = bits << 6 | static_cast<uint32_t>(v);
    if ((held += 6) >= 8) bytes += static_cast<char>(bits >> (held -= 8) & 255);
  }
  std::string json(200, '\0');
  size_t size = 0;
  libdeflate_decompressor* d = libdeflate_alloc_decompressor();
  ASSERT_EQ(
      libdeflate_zlib_decompress(d, bytes.data(), bytes.size(), json.data(), json.size(), &size),
      LIBDEFLATE_SUCCESS);
  libdeflate_free_decompressor(d);
  EXPECT_EQ(json.substr(0, size), R"({"n":1,"columns":{"name":{"v":["</script>"]}}})");
}

TEST_F(HtmlPageTest, NothingIsLeftWithoutFinish) {
  if (!HtmlAvailable()) GTEST_SKIP() << "built without MSPROBE_HTML";
  {
    auto report = HtmlReport::Create(Path("r.html"));
    ASSERT_TRUE(report.ok());
    const std::vector<HtmlColumn> columns = {{.key = "name", .title = "Name"}};
    ASSERT_TRUE((*report)->AddTable(HtmlTable(columns)).ok());
  }
  EXPECT_TRUE(Files().empty());
}

TEST_F(HtmlPageTest, AMissingFolderIsAnError) {
  const auto report = HtmlReport::Create(Path("none/r.html"));
  ASSERT_FALSE(report.ok());
  EXPECT_EQ(report.error().code, HtmlAvailable() ? ErrorCode::kNotFound : ErrorCode::kUnsupported);
}

}  // namespace
}  // namespace msprobe::report
