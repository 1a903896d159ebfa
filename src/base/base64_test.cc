#include "base/base64.h"

#include <gtest/gtest.h>

namespace msprobe {
namespace {

std::string Encoded(std::string_view text) {
  std::string out = ">";
  AppendBase64(out, std::as_bytes(std::span(text)));
  return out.substr(1);
}

// RFC 4648, section 10.
constexpr std::pair<std::string_view, std::string_view> kVectors[] = {{"", ""},
                                                                      {"f", "Zg=="},
                                                                      {"fo", "Zm8="},
                                                                      {"foo", "Zm9v"},
                                                                      {"foob", "Zm9vYg=="},
                                                                      {"fooba", "Zm9vYmE="},
                                                                      {"foobar", "Zm9vYmFy"}};

TEST(Base64, VectorsOfTheStandard) {
  for (const auto& [bytes, text] : kVectors) {
    EXPECT_EQ(Encoded(bytes), text);
    const auto decoded = DecodeBase64(text);
    ASSERT_TRUE(decoded.has_value());
    EXPECT_EQ(std::string_view(reinterpret_cast<const char*>(decoded->data()), decoded->size()),
              bytes);
  }
}

TEST(Base64, EveryByte) {
  std::string all(256, '\0');
  for (size_t i = 0; i < all.size(); ++i) all[i] = static_cast<char>(i);
  const auto decoded = DecodeBase64(Encoded(all));
  ASSERT_TRUE(decoded.has_value());
  EXPECT_EQ(std::string(reinterpret_cast<const char*>(decoded->data()), decoded->size()), all);
}

TEST(Base64, OnlyWhatTheWriterWrites) {
  for (const std::string_view text :
       {"Z", "Zg", "Zg=", "Zg==Zg==", "Z===", "====", "=Zg=", "Zg==\n", "Zm9v ", "Zm-v", "Zm_v",
        "Zh==", "Zm9=", "Z\xC3\xA9w"}) {
    EXPECT_FALSE(DecodeBase64(text).has_value()) << text;
  }
}

}  // namespace
}  // namespace msprobe
