#include "json/json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <fstream>

namespace msprobe::json {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Writes down every event as one word.
class Recorder : public Handler {
 public:
  std::vector<std::string> events;
  size_t stop_after = SIZE_MAX;
  bool Note(std::string text) {
    events.push_back(std::move(text));
    return events.size() < stop_after;
  }
  bool Null() override { return Note("null"); }
  bool Bool(bool v) override { return Note(v ? "true" : "false"); }
  bool Int(int64_t v) override { return Note("i" + std::to_string(v)); }
  bool BigInt(std::string_view v) override { return Note("b" + std::string(v)); }
  bool Double(double v) override {
    std::string s = "d";
    AppendDouble(s, v);
    return Note(s);
  }
  bool String(std::string_view v) override { return Note("s" + std::string(v)); }
  bool Key(std::string_view v) override { return Note("k" + std::string(v)); }
  bool StartObject() override { return Note("{"); }
  bool EndObject() override { return Note("}"); }
  bool StartArray() override { return Note("["); }
  bool EndArray() override { return Note("]"); }
};

std::vector<std::string> Events(std::string_view text) {
  Recorder r;
  const auto result = Parse(text, r);
  EXPECT_TRUE(result.ok()) << result.error().ToString();
  return r.events;
}

Error ParseError(std::string_view text, const Limits& limits = {}) {
  Recorder r;
  auto result = Parse(text, r, limits);
  EXPECT_FALSE(result.ok()) << text;
  return result.ok() ? Error() : result.error();
}

class TempFile {
 public:
  explicit TempFile(std::string_view content) {
    char name[] = "/tmp/msprobe_json_XXXXXX";
    const int fd = mkstemp(name);
    close(fd);
    path = name;
    std::ofstream(path, std::ios::binary) << content;
  }
  ~TempFile() { unlink(path.c_str()); }
  std::string path;
};

TEST(JsonParse, EventsComeInDocumentOrder) {
  EXPECT_THAT(Events(R"( {"a": [1, -2.5, true, false, null, "x"], "b": {}, "c": []} )"),
              ElementsAre("{", "ka", "[", "i1", "d-2.5", "true", "false", "null", "sx", "]", "kb",
                          "{", "}", "kc", "[", "]", "}"));
}

TEST(JsonParse, IntegersAndFloatsStayApartAndExact) {
  EXPECT_THAT(
      Events("[0, -0, 9223372036854775807, -9223372036854775808, 9223372036854775808, "
             "-9223372036854775809, 1.0, 1e2, 0.1, 5e-324, 1.7976931348623157e308, 1e-400]"),
      ElementsAre("[", "i0", "i0", "i9223372036854775807", "i-9223372036854775808",
                  "b9223372036854775808", "b-9223372036854775809", "d1.0", "d100.0", "d0.1",
                  "d5e-324", "d1.7976931348623157e+308", "d0.0", "]"));
  // Halfway between two doubles: to even (2^53 + 1 as a float literal).
  EXPECT_THAT(Events("9007199254740993.0"), ElementsAre("d9007199254740992.0"));
}

TEST(JsonParse, PythonNonFiniteTokens) {
  EXPECT_THAT(Events("[NaN, Infinity, -Infinity]"),
              ElementsAre("[", "dNaN", "dInfinity", "d-Infinity", "]"));
  for (const char* text : {"[Inf]", "[-NaN]", "[-Inf]", "[Infinit]", "[nan]"})
    EXPECT_EQ(ParseError(text).code, ErrorCode::kMalformed) << text;
}

TEST(JsonParse, EscapesDecodeToUtf8) {
  EXPECT_THAT(
      Events(R"(["\"\\\/\b\f\n\r\t", "\u0041\u00e9\u4e2d\ud83d\ude00", ""])"),
      ElementsAre("[", "s\"\\/\b\f\n\r\t", "sA\xC3\xA9\xE4\xB8\xAD\xF0\x9F\x98\x80", "s", "]"));
}

TEST(JsonParse, LoneSurrogatesAreKeptAsWtf8) {
  EXPECT_THAT(
      Events(R"(["\ud800", "\uDBFFx", "\udc00", "\ud800\ud800", "\ud800\u0041", "\ud800\n"])"),
      ElementsAre("[", "s\xED\xA0\x80", "s\xED\xAF\xBFx", "s\xED\xB0\x80",
                  "s\xED\xA0\x80\xED\xA0\x80",
                  "s\xED\xA0\x80"
                  "A",
                  "s\xED\xA0\x80\n", "]"));
  EXPECT_THAT(Events(R"(["\\ud800"])"), ElementsAre("[", "s\\ud800", "]"));
  EXPECT_THAT(Events(R"(["\\\ud9ab"])"), ElementsAre("[", "s\\\xED\xA6\xAB", "]"));
}

TEST(JsonParse, InvalidUtf8PassesAsItIs) {
  EXPECT_THAT(Events("\"a\xFF\xC0z\""), ElementsAre("sa\xFF\xC0z"));
}

TEST(JsonParse, ByteOrderMarkIsSkipped) {
  EXPECT_THAT(Events("\xEF\xBB\xBF{}"), ElementsAre("{", "}"));
  const Error e = ParseError("\xEF\xBB\xBF{x}");
  EXPECT_EQ(e.offset, 4u);
  EXPECT_EQ(e.line, 1u);
  EXPECT_EQ(e.column, 2u);
}

TEST(JsonParse, EveryPrefixOfADocumentIsTruncated) {
  const std::string text =
      R"({"a": [1.5, "x\u00e9\ud800", true, null, -Infinity], "b": {"c": false}})";
  for (size_t n = 0; n < text.size(); ++n) {
    const Error e = ParseError(text.substr(0, n));
    EXPECT_EQ(e.code, ErrorCode::kTruncated) << text.substr(0, n);
    EXPECT_EQ(e.offset, n);
  }
}

TEST(JsonParse, MalformedTextNamesItsPlace) {
  const Error e = ParseError("{\n  \"\xC3\xA9\": tru}\n");
  EXPECT_EQ(e.code, ErrorCode::kMalformed);
  EXPECT_EQ(e.offset, 13u);
  EXPECT_EQ(e.line, 2u);
  EXPECT_EQ(e.column, 11u);
  for (const char* text :
       {"[1,]", "{\"a\":1,}", "{\"a\" 1}", "{1:2}", "[1 2]", "{}}", "1 2", "[01]", "[1.]", "[.5]",
        "[+1]", "[1e]", "\"\\x\"", "\"\\u12g4\"", "\"a\nb\"", "]", "'a'", "[/**/1]"})
    EXPECT_EQ(ParseError(text).code, ErrorCode::kMalformed) << text;
}

TEST(JsonParse, NulByteIsMalformedNotTheEnd) {
  const Error e = ParseError(std::string_view("{}\0{}", 5));
  EXPECT_EQ(e.code, ErrorCode::kMalformed);
  EXPECT_EQ(e.offset, 2u);
  EXPECT_EQ(ParseError(std::string_view("[1\0]", 4)).code, ErrorCode::kMalformed);
  EXPECT_EQ(ParseError(std::string_view("\"a\0\"", 4)).code, ErrorCode::kMalformed);
}

TEST(JsonParse, DepthLimitIsExact) {
  const auto nested = [](size_t n) { return std::string(n, '[') + std::string(n, ']'); };
  Recorder r;
  EXPECT_TRUE(Parse(nested(1000), r).ok());
  const Error e = ParseError(nested(1001));
  EXPECT_EQ(e.code, ErrorCode::kTooLarge);
  EXPECT_EQ(e.offset, 1000u);
  Limits deep;
  deep.max_depth = 10'000'000;
  EXPECT_EQ(ParseError(std::string(5'000'000, '['), deep).code, ErrorCode::kTruncated);
}

TEST(JsonParse, LimitsOnStringsNumbersAndBytes) {
  Limits limits;
  limits.max_string_bytes = 4;
  Recorder r;
  EXPECT_TRUE(Parse(R"(["abcd", "a\u00e9b"])", r, limits).ok());
  for (const char* text :
       {R"(["abcde"])", R"(["abc\u00e9"])", R"({"abcde": 1})", R"(["abcdefghijklmnop"])"})
    EXPECT_EQ(ParseError(text, limits).code, ErrorCode::kTooLarge) << text;
  EXPECT_EQ(ParseError("[1e400]").code, ErrorCode::kTooLarge);
  EXPECT_EQ(ParseError("[0." + std::string(2000, '1') + "]").code, ErrorCode::kTooLarge);
  limits.max_bytes = 3;
  EXPECT_EQ(ParseError("[1] ", limits).code, ErrorCode::kTooLarge);
}

TEST(JsonParse, HandlerStopsTheParse) {
  Recorder r;
  r.stop_after = 3;
  const auto result = Parse(R"({"a": 1, "b": )", r);
  ASSERT_TRUE(result.ok());
  EXPECT_TRUE(result->stopped);
  EXPECT_THAT(r.events, ElementsAre("{", "ka", "i1"));
}

TEST(JsonParse, EventsBeforeATearAreDelivered) {
  Recorder r;
  EXPECT_FALSE(Parse(R"({"a": 1, "b": [2, "x)", r).ok());
  EXPECT_THAT(r.events, ElementsAre("{", "ka", "i1", "kb", "[", "i2"));
}

// Tokens of every kind at every position relative to the ends of the blocks that the file is read
// in.
TEST(JsonParseFile, BlockBoundariesDoNotShow) {
  const std::string token =
      R"("\u00e9 plain \ud83d\ude00 \ud800 long enough", -123456789.25, 18446744073709551616, )";
  for (const size_t shift : {0u, 1u, 2u, 3u, 5u, 7u, 11u, 13u, 17u, 40u, 61u}) {
    std::string text = "[" + std::string(shift, ' ');
    while (text.size() < 800'000) text += token;
    text += "null]";
    const size_t tokens = (text.size() - 6 - shift) / token.size();
    Recorder r;
    const TempFile file(text);
    const auto opened = InputFile::Open(file.path);
    ASSERT_TRUE(opened.ok());
    const auto result = ParseFile(*opened, r);
    ASSERT_TRUE(result.ok()) << result.error().ToString();
    EXPECT_EQ(result->bytes, text.size());
    ASSERT_EQ(r.events.size(), 3 * tokens + 3);
    for (size_t i = 1; i + 2 < r.events.size(); i += 3) {
      ASSERT_EQ(r.events[i], "s\xC3\xA9 plain \xF0\x9F\x98\x80 \xED\xA0\x80 long enough");
      ASSERT_EQ(r.events[i + 1], "d-123456789.25");
      ASSERT_EQ(r.events[i + 2], "b18446744073709551616");
    }
  }
}

TEST(JsonParseFile, ErrorNamesFileLineAndColumn) {
  std::string text = "[";
  for (int i = 0; i < 100'000; ++i) text += "\n 12,";
  text += "\n  x]";
  const TempFile file(text);
  const auto opened = InputFile::Open(file.path);
  Recorder r;
  const auto result = ParseFile(*opened, r);
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(result.error().path, file.path);
  EXPECT_EQ(result.error().line, 100'002u);
  EXPECT_EQ(result.error().column, 3u);
  EXPECT_EQ(result.error().offset, text.size() - 2);
}

TEST(JsonDocument, KeepsOrderDuplicatesAndTypes) {
  const auto doc = ParseDocument(R"({"b": 1, "a": [1, 2.0, "x", {"k": null}], "b": true})");
  ASSERT_TRUE(doc.ok());
  const Value& root = doc->root();
  ASSERT_EQ(root.size(), 3u);
  EXPECT_EQ(root.members_begin()[0].key, "b");
  EXPECT_EQ(root.members_begin()[0].value.as_int(), 1);
  EXPECT_TRUE(root.Find("b")->as_bool());
  EXPECT_EQ(doc->duplicate_keys(), 1u);
  const Value& a = *root.Find("a");
  ASSERT_EQ(a.size(), 4u);
  EXPECT_EQ(a[0].type(), Value::Type::kInt);
  EXPECT_EQ(a[1].type(), Value::Type::kDouble);
  EXPECT_EQ(a[2].as_string(), "x");
  EXPECT_TRUE(a[3].Find("k")->is_null());
  EXPECT_EQ(root.Find("missing"), nullptr);
  EXPECT_EQ(a.Find("k"), nullptr);
}

TEST(JsonDocument, LargeObjectsFindTheLastOfEachKey) {
  std::string text = "{";
  for (int i = 0; i < 5000; ++i)
    text += "\"k" + std::to_string(i % 4000) + "\": " + std::to_string(i) + ", ";
  text += "\"end\": 0}";
  const auto doc = ParseDocument(text);
  ASSERT_TRUE(doc.ok());
  EXPECT_EQ(doc->duplicate_keys(), 1000u);
  EXPECT_EQ(doc->root().Find("k0")->as_int(), 4000);
  EXPECT_EQ(doc->root().Find("k999")->as_int(), 4999);
  EXPECT_EQ(doc->root().Find("k1000")->as_int(), 1000);
  EXPECT_EQ(doc->root().Find("k"), nullptr);
  EXPECT_EQ(doc->root().Find("zzz"), nullptr);
  EXPECT_EQ(doc->root().members_begin()[4500].value.as_int(), 4500);
}

TEST(JsonDocument, DeepDocumentsNeedNoStack) {
  Limits deep;
  deep.max_depth = 2'000'000;
  const std::string text = std::string(1'000'000, '[') + std::string(1'000'000, ']');
  const auto doc = ParseDocument(text, deep);
  ASSERT_TRUE(doc.ok());
  EXPECT_EQ(PyRepr(doc->root()), text);
  std::string out;
  Writer(out).Copy(doc->root());
  EXPECT_EQ(out, text);
}

TEST(JsonDocument, BuilderIsReusable) {
  ValueBuilder builder;
  EXPECT_FALSE(builder.complete());
  builder.StartArray();
  builder.Int(1);
  EXPECT_FALSE(builder.complete());
  builder.EndArray();
  EXPECT_TRUE(builder.complete());
  const Document first = builder.Take();
  EXPECT_FALSE(builder.complete());
  builder.String("x");
  const Document second = builder.Take();
  EXPECT_EQ(first.root()[0].as_int(), 1);
  EXPECT_EQ(second.root().as_string(), "x");
}

TEST(JsonDocument, NumbersAsDouble) {
  const auto doc = ParseDocument("[3, 2.5, 18446744073709551616, -1" + std::string(308, '0') + "]");
  ASSERT_TRUE(doc.ok());
  EXPECT_EQ(doc->root()[0].as_double(), 3.0);
  EXPECT_EQ(doc->root()[1].as_double(), 2.5);
  EXPECT_EQ(doc->root()[2].as_double(), 18446744073709551616.0);
  EXPECT_EQ(doc->root()[3].as_double(), -1e308);
}

TEST(JsonDocumentFile, MissingFileIsNotFound) {
  EXPECT_EQ(ParseDocumentFile("/nonexistent/x.json").error().code, ErrorCode::kNotFound);
}

// Expected texts: CPython 3.11, str(json.loads(text)) and repr().
TEST(JsonPython, StrAndRepr) {
  const auto py = [](std::string_view text) {
    const auto doc = ParseDocument(text);
    return doc.ok() ? PyStr(doc->root()) : doc.error().ToString();
  };
  EXPECT_EQ(py("3"), "3");
  EXPECT_EQ(py("1.50"), "1.5");
  EXPECT_EQ(py("1e22"), "1e+22");
  EXPECT_EQ(py("true"), "True");
  EXPECT_EQ(py("null"), "None");
  EXPECT_EQ(py("[NaN, -Infinity]"), "[nan, -inf]");
  EXPECT_EQ(py("[]"), "[]");
  EXPECT_EQ(py("{}"), "{}");
  EXPECT_EQ(py(R"({"a": 1, "b": [2, "it's"], "c": {"d": false}})"),
            R"({'a': 1, 'b': [2, "it's"], 'c': {'d': False}})");
  EXPECT_EQ(py("\"it's\""), "it's");
  EXPECT_EQ(py("123456789012345678901234567890"), "123456789012345678901234567890");
  EXPECT_EQ(PyRepr(ParseDocument(R"("\ud800 \\udced")")->root()), R"('\ud800 \\udced')");
}

TEST(JsonWrite, StringsEscapeAsPythonDoes) {
  const auto quoted = [](std::string_view s) {
    std::string out;
    AppendString(out, s);
    return out;
  };
  // json.dumps of CPython 3.11; undecodable bytes by surrogateescape.
  EXPECT_EQ(quoted("a\"b\\c/\n\r\t\f\b\x01\x7F"), R"("a\"b\\c/\n\r\t\f\b\u0001\u007f")");
  EXPECT_EQ(quoted("\xC3\xA9\xE4\xB8\xAD\xF0\x9F\x98\x80"), R"("\u00e9\u4e2d\ud83d\ude00")");
  EXPECT_EQ(quoted("\xED\xA0\x80\xED\xBF\xBF"), R"("\ud800\udfff")");
  EXPECT_EQ(quoted("\xFF\xC0\xAF\xE4\xB8"), R"("\udcff\udcc0\udcaf\udce4\udcb8")");
  EXPECT_EQ(quoted(std::string_view("\0", 1)), R"("\u0000")");
}

TEST(JsonWrite, DoublesAsPythonDoes) {
  const auto text = [](double v) {
    std::string out;
    AppendDouble(out, v);
    return out;
  };
  EXPECT_EQ(text(1), "1.0");
  EXPECT_EQ(text(1e-5), "1e-05");
  EXPECT_EQ(text(1e16), "1e+16");
  EXPECT_EQ(text(-0.0), "-0.0");
  EXPECT_EQ(text(0.1 + 0.2), "0.30000000000000004");
  EXPECT_EQ(text(std::nan("")), "NaN");
  EXPECT_EQ(text(-HUGE_VAL), "-Infinity");
}

void WriteSample(std::string& out, int indent) {
  Writer w(out, indent);
  w.StartObject().Key("a").StartArray().Int(1).Double(2.5).Bool(true).Null().EndArray();
  w.Key("b").StartObject().EndObject().Key("c").StartArray().EndArray();
  w.Key("d").StartObject().Key("e").String("x").Key("f").Uint(18446744073709551615u).EndObject();
  w.EndObject();
}

// json.dumps({"a": [1, 2.5, True, None], "b": {}, "c": [], "d": {"e": "x", "f": 2**64 - 1}},
// indent=...) of CPython 3.11.
TEST(JsonWrite, LayoutAsPythonDoes) {
  std::string out;
  WriteSample(out, -1);
  EXPECT_EQ(
      out,
      R"({"a": [1, 2.5, true, null], "b": {}, "c": [], "d": {"e": "x", "f": 18446744073709551615}})");
  out.clear();
  WriteSample(out, 1);
  EXPECT_EQ(out,
            "{\n \"a\": [\n  1,\n  2.5,\n  true,\n  null\n ],\n \"b\": {},\n \"c\": [],\n \"d\": "
            "{\n  \"e\": "
            "\"x\",\n  \"f\": 18446744073709551615\n }\n}");
}

TEST(JsonWrite, CopyReproducesPythonsText) {
  const std::string text =
      R"({"a": [1, -2.5, "\u00e9\ud800", {"b": []}], "c": 18446744073709551616, "d": [NaN, -Infinity], "a": null})";
  const auto doc = ParseDocument(text);
  ASSERT_TRUE(doc.ok());
  std::string out;
  Writer(out).Copy(doc->root());
  EXPECT_EQ(out, text);
}

}  // namespace
}  // namespace msprobe::json
