// XML as events, for parts of workbooks that may be hostile.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace msprobe::report {

// Names come without name space. Return an error to stop.
class XmlHandler {
 public:
  struct Attribute {
    std::string_view name, value;
  };
  virtual ~XmlHandler() = default;
  virtual Status Start(std::string_view name, const std::vector<Attribute>& attributes) = 0;
  virtual Status End(std::string_view name) = 0;
  virtual Status Text(std::string_view text) = 0;  // may come in pieces

  static std::string_view Value(const std::vector<Attribute>& attributes,
                                std::string_view name);  // "" when absent
};

// Document type declarations are refused (kMalformed), so there are no entities but the five of
// XML. Errors: kMalformed with line and column; what the handler returns.
Status ParseXml(std::string_view text, XmlHandler& handler);

}  // namespace msprobe::report
