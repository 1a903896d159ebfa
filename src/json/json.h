// JSON in and out; the only folder that knows the library behind it (RapidJSON).
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/file.h"
#include "base/result.h"

namespace msprobe::json {

struct Limits {
  uint32_t max_depth = 1000;              // nesting of arrays and objects; beyond: kTooLarge
  uint64_t max_bytes = 10ull << 30;       // of the file
  uint64_t max_string_bytes = 64u << 20;  // of one string
};

// Events of a parse, in document order. Views are valid during the call only. Return false to stop
// (Parse then returns ok with `stopped`).
class Handler {
 public:
  virtual ~Handler() = default;
  virtual bool Null() = 0;
  virtual bool Bool(bool value) = 0;
  virtual bool Int(int64_t value) = 0;               // integers that fit
  virtual bool BigInt(std::string_view digits) = 0;  // integers that do not: the literal
  virtual bool Double(double value) = 0;  // also the bare tokens NaN, Infinity, -Infinity
  virtual bool String(
      std::string_view value) = 0;  // UTF-8; lone surrogates as WTF-8 (ED A0..BF xx)
  virtual bool Key(std::string_view key) = 0;
  virtual bool StartObject() = 0;
  virtual bool EndObject() = 0;
  virtual bool StartArray() = 0;
  virtual bool EndArray() = 0;
};

struct ParseInfo {
  uint64_t bytes = 0;    // consumed
  bool stopped = false;  // by the handler
};

// A byte-order mark at the start is skipped. Errors: kMalformed or kTruncated (the text ends early)
// with offset, line and column; kTooLarge (a limit, or a float literal beyond the range of double,
// where Python reads infinity). Bytes that are no UTF-8 pass as they are. Events already delivered
// stay delivered, which is how torn dumps are recovered.
Result<ParseInfo> Parse(std::string_view text, Handler& handler, const Limits& limits = {});
// The same, reading the file in blocks: memory does not grow with its size.
Result<ParseInfo> ParseFile(const InputFile& file, Handler& handler, const Limits& limits = {});

// A parsed value. Objects keep order and duplicate keys (`duplicates` of Document counts them; Find
// returns the last). Cheap to copy only by pointer; values live in their Document.
class Value {
 public:
  enum class Type : uint8_t { kNull, kBool, kInt, kBigInt, kDouble, kString, kArray, kObject };
  Type type() const { return type_; }
  bool is_null() const { return type_ == Type::kNull; }
  bool is_bool() const { return type_ == Type::kBool; }
  bool is_int() const { return type_ == Type::kInt; }
  bool is_number() const {
    return type_ == Type::kInt || type_ == Type::kDouble || type_ == Type::kBigInt;
  }
  bool is_string() const { return type_ == Type::kString; }
  bool is_array() const { return type_ == Type::kArray; }
  bool is_object() const { return type_ == Type::kObject; }

  bool as_bool() const { return u_.b; }
  int64_t as_int() const { return u_.i; }
  double as_double() const;                                     // of any number
  std::string_view as_string() const { return {u_.s, size_}; }  // kString; kBigInt: the digits

  struct Member;
  size_t size() const { return size_; }            // elements or members
  const Value* begin() const { return u_.array; }  // arrays
  const Value* end() const { return u_.array + size_; }
  const Value& operator[](size_t i) const { return u_.array[i]; }
  const Member* members_begin() const { return u_.members; }  // objects
  const Member* members_end() const;
  const Value* Find(
      std::string_view key) const;  // objects: last with that key, or nullptr; others: nullptr

 private:
  friend class ValueBuilder;
  Type type_ = Type::kNull;
  uint32_t size_ = 0;
  union {
    bool b;
    int64_t i;
    double d;
    const char* s;
    const Value* array;
    const Member* members;
  } u_ = {};
};
struct Value::Member {
  std::string_view key;
  Value value;
};
inline const Value::Member* Value::members_end() const { return u_.members + size_; }

// Builds a Value from events; the memory is one arena. Reusable: Take() hands out value and arena.
class Document {
 public:
  Document();
  Document(Document&&) noexcept;
  Document& operator=(Document&&) noexcept;
  ~Document();
  const Value& root() const;
  uint64_t duplicate_keys() const;  // members that a later one of the same object overrides

 private:
  friend class ValueBuilder;
  struct Rep;
  std::unique_ptr<Rep> rep_;
};

class ValueBuilder final : public Handler {
 public:
  ValueBuilder();
  ~ValueBuilder() override;
  bool Null() override;
  bool Bool(bool value) override;
  bool Int(int64_t value) override;
  bool BigInt(std::string_view digits) override;
  bool Double(double value) override;
  bool String(std::string_view value) override;
  bool Key(std::string_view key) override;
  bool StartObject() override;
  bool EndObject() override;
  bool StartArray() override;
  bool EndArray() override;
  bool complete() const;  // one whole value has been received
  Document Take();        // that value; the builder is empty again

 private:
  struct Rep;
  std::unique_ptr<Rep> rep_;
};

Result<Document> ParseDocument(std::string_view text, const Limits& limits = {});
Result<Document> ParseDocumentFile(const std::string& path, const Limits& limits = {});

// str() / repr() of Python for a parsed value: 3, 1.5, True, None, [2, 3], {'a': 1}. Top-level
// strings bare (str) or quoted (repr).
std::string PyStr(const Value& value);
std::string PyRepr(const Value& value);

// ---- writing
// -------------------------------------------------------------------------------------------------------------

// Appends a JSON string with quotes: ASCII only, \uXXXX beyond, invalid UTF-8 bytes as \udcXX, lone
// surrogates as \udXXX.
void AppendString(std::string& out, std::string_view text);
// Python's json.dumps: 1.0, 1e-05, NaN, Infinity, -Infinity.
void AppendDouble(std::string& out, double value);
void AppendInt(std::string& out, int64_t value);

// Ordered streaming writer into a string. indent < 0: one line, ", " and ": " separators as
// Python's default; indent >= 0: as Python's json.dump(indent=n).
class Writer {
 public:
  explicit Writer(std::string& out, int indent = -1) : out_(out), indent_(indent) {}
  Writer& StartObject();
  Writer& EndObject();
  Writer& StartArray();
  Writer& EndArray();
  Writer& Key(std::string_view key);
  Writer& String(std::string_view value);
  Writer& Int(int64_t value);
  Writer& Uint(uint64_t value);
  Writer& Double(double value);
  Writer& Bool(bool value);
  Writer& Null();
  Writer& Raw(std::string_view json);  // a whole value, as it is
  Writer& Copy(const Value& value);

 private:
  void BeforeValue();
  void NewLine();
  std::string& out_;
  int indent_;
  std::vector<uint8_t> stack_;  // bit 0: object, bit 1: has elements
  bool after_key_ = false;
};

}  // namespace msprobe::json
