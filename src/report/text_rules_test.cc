#include "report/text_rules.h"

#include <gtest/gtest.h>

#include <string>

#include "report/table.h"

namespace msprobe::report {
namespace {

std::string Xlsx(std::string_view text) {
  std::string out = "left over";
  XlsxText(text, out);
  return out;
}

// compare.md 3.3 and 14.4.
TEST(LooksExecutable, BeginningsAndPieces) {
  for (const char* text :
       {"=1", "+1+cmd", "-x", "%a", "@a", "\uFF1Da", "\uFF0Ba", "\uFF0Da", "\uFF05a", "\uFF20a",
        "a;=b", "a;\uFF20b", "1;-x", " =1", "\t=1", "\r\n@x", "-"}) {
    EXPECT_TRUE(LooksExecutable(text)) << text;
  }
  for (const char* text : {"", "a", "1", "-1", "-1.0", "+5", "-inf", "-1e-05", "1;-2", "-1;2.5",
                           "a=b", "a; =b", "a;b", "inf%", " inf", " -inf", "\uFF01", "\xEF"}) {
    EXPECT_FALSE(LooksExecutable(text)) << text;
  }
}

TEST(XlsxText, OrdinaryTextStays) {
  EXPECT_EQ(Xlsx("Functional.relu.0 µ 和 \t\n _x_ _x00_ _xGGGG_"),
            "Functional.relu.0 µ 和 \t\n _x_ _x00_ _xGGGG_");
  EXPECT_EQ(Xlsx(""), "");
}

// ECMA-376 part 1, 22.9.2.19 (ST_Xstring).
TEST(XlsxText, ControlCharactersAndTextThatLooksEscaped) {
  EXPECT_EQ(Xlsx(std::string_view("a\0b", 3)), "a_x0000_b");
  EXPECT_EQ(Xlsx("\x01\x1F\r"), "_x0001__x001F__x000D_");
  EXPECT_EQ(Xlsx("_x0041_"), "_x005F_x0041_");
  EXPECT_EQ(Xlsx("_x00aF_"), "_x005F_x00aF_");
  EXPECT_EQ(Xlsx("\uFFFE\uFFFF"), "_xFFFE__xFFFF_");
}

TEST(XlsxText, BytesThatAreNoText) {
  EXPECT_EQ(Xlsx("a\xFF"
                 "b\xC3"),
            "a\\xffb\\xc3");
  EXPECT_EQ(Xlsx("\xED\xA0\x80"), "\\ud800");  // a lone surrogate
  EXPECT_EQ(Xlsx("\xC0\xAF"), "\\xc0\\xaf");   // overlong
}

TEST(XlsxText, LongTextsAreCut) {
  EXPECT_EQ(Xlsx(std::string(32767, 'a')), std::string(32767, 'a'));
  // 32,743 units of text are kept, so that "…(+N)" always fits.
  EXPECT_EQ(Xlsx(std::string(32768, 'a')), std::string(32743, 'a') + "\u2026(+25)");
  // A character outside the first plane is two units and is never halved.
  std::string faces;
  for (int i = 0; i < 20000; ++i) faces += "\U0001F600";
  std::string kept;
  for (int i = 0; i < 16371; ++i) kept += "\U0001F600";
  EXPECT_EQ(Xlsx(faces), kept + "\u2026(+3629)");
  // An escape counts with all its characters.
  std::string escaped;
  for (int i = 0; i < 4677; ++i) escaped += "_x0001_";
  EXPECT_EQ(Xlsx(std::string(5000, '\x01')), escaped + "\u2026(+323)");
}

TEST(XlsxText, UnescapeIsTheInverse) {
  EXPECT_EQ(UnescapeXlsxText("a_x0009_b_x005F_x0041_"), "a\tb_x0041_");
  EXPECT_EQ(UnescapeXlsxText("_x00B5__x548C_"), "µ和");
  EXPECT_EQ(UnescapeXlsxText("_x00_x0041_"), "_x00A");
  EXPECT_EQ(UnescapeXlsxText("no escapes"), "no escapes");
  const std::string text = "\x01 _x0041_ _x005F_ \r _x_x0000_";
  EXPECT_EQ(UnescapeXlsxText(Xlsx(text)), text);
}

TEST(CountCharacters, CodePoints) {
  EXPECT_EQ(CountCharacters("aµ和\U0001F600"), 4u);
  EXPECT_EQ(CountCharacters("\xFF\xFE"), 2u);
}

}  // namespace
}  // namespace msprobe::report
