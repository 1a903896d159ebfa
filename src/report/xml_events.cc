#include "report/xml_events.h"

#include <expat.h>
#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <type_traits>

namespace msprobe::report {
namespace {

constexpr char kSeparator = '\n';  // cannot occur in a name

struct Session {
  XML_Parser parser;
  XmlHandler& handler;
  std::vector<XmlHandler::Attribute> attributes;
  std::optional<Error> error;

  void Take(Status status) {
    if (status.ok() || error) return;
    error = std::move(status).error();
    XML_StopParser(parser, XML_FALSE);
  }
};

std::string_view LocalName(const char* name) {
  const std::string_view whole(name);
  const size_t separator = whole.rfind(kSeparator);
  return separator == std::string_view::npos ? whole : whole.substr(separator + 1);
}

void OnStart(void* user, const char* name, const char** attributes) {
  auto& session = *static_cast<Session*>(user);
  session.attributes.clear();
  for (; *attributes != nullptr; attributes += 2) {
    session.attributes.push_back({LocalName(attributes[0]), attributes[1]});
  }
  session.Take(session.handler.Start(LocalName(name), session.attributes));
}
void OnEnd(void* user, const char* name) {
  auto& session = *static_cast<Session*>(user);
  session.Take(session.handler.End(LocalName(name)));
}
void OnText(void* user, const char* text, int size) {
  auto& session = *static_cast<Session*>(user);
  session.Take(session.handler.Text({text, static_cast<size_t>(size)}));
}
void OnDoctype(void* user, const char*, const char*, const char*, int) {
  static_cast<Session*>(user)->Take(
      Error(ErrorCode::kMalformed, "a document type declaration, which workbooks do not have"));
}

}  // namespace

std::string_view XmlHandler::Value(const std::vector<Attribute>& attributes,
                                   std::string_view name) {
  for (const Attribute& a : attributes) {
    if (a.name == name) return a.value;
  }
  return {};
}

Status ParseXml(std::string_view text, XmlHandler& handler) {
  const std::unique_ptr<std::remove_pointer_t<XML_Parser>, decltype(&XML_ParserFree)> parser(
      XML_ParserCreateNS(nullptr, kSeparator), &XML_ParserFree);
  if (!parser) return Error(ErrorCode::kInternal, "out of memory");
  Session session{parser.get(), handler, {}, {}};
  XML_SetUserData(parser.get(), &session);
  XML_SetElementHandler(parser.get(), OnStart, OnEnd);
  XML_SetCharacterDataHandler(parser.get(), OnText);
  XML_SetStartDoctypeDeclHandler(parser.get(), OnDoctype);
  constexpr size_t kPiece = 1u << 20;
  for (size_t at = 0;; at += kPiece) {
    const std::string_view piece = text.substr(std::min(at, text.size()), kPiece);
    const bool is_last = at + kPiece >= text.size();
    const XML_Status status =
        XML_Parse(parser.get(), piece.data(), static_cast<int>(piece.size()), is_last);
    if (session.error) return *std::move(session.error);
    if (status != XML_STATUS_OK) {
      return Error(
                 ErrorCode::kMalformed,
                 fmt::format("not valid XML: {}", XML_ErrorString(XML_GetErrorCode(parser.get()))))
          .AtLine(static_cast<uint32_t>(XML_GetCurrentLineNumber(parser.get())),
                  static_cast<uint32_t>(XML_GetCurrentColumnNumber(parser.get()) + 1));
    }
    if (is_last) return {};
  }
}

}  // namespace msprobe::report
