// One side of the search for the culprit: the entries of a dump in order of execution, their
// leaves, and who produced what. Numbers are as recorded; nothing is read from tensor files here.
#pragma once

#include <cstdint>
#include <deque>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "base/result.h"
#include "metrics/sketch.h"
#include "tensor/view.h"

namespace msprobe::culprit {

inline constexpr uint32_t kNowhere = std::numeric_limits<uint32_t>::max();
inline constexpr double kUnknown = std::numeric_limits<double>::quiet_NaN();

enum class Kind : uint8_t {
  kApiForward,
  kApiBackward,
  kModuleForward,
  kModuleBackward,
  kParameterGrad,
  kOther,
};

enum class Role : uint8_t { kInput, kOutput, kParameter, kMutated };

enum class LeafKind : uint8_t { kNull, kTensor, kNumber, kText, kOpaque };

// Where the memory of an input came from, by `from` of the record.
struct Origin {
  std::string entry, leaf;
  std::string view;           // offset and strides as JSON; empty: the whole leaf
  bool repeats = false;       // some stride is 0: elements of the producer several times
  bool written = false;       // written to since by nobody that was recorded
  bool earlier_step = false;  // the producer is of an earlier step
};

struct Leaf {
  std::string name;        // "input.0", "input.dim", "output.0", "parameters.weight"
  std::string_view type;   // "torch.Tensor", "float", "int"
  std::string_view dtype;  // "torch.float32"; empty unless a tensor
  Role role = Role::kInput;
  LeafKind kind = LeafKind::kNull;
  int8_t requires_grad = -1;  // -1: not recorded
  bool floating = false;      // a tensor of a floating or complex type
  bool sixteen = false;       // of a 16-bit (or 8-bit) floating type
  bool has_key = false;       // `key` holds the content
  bool derived = false;       // made by differentiable code that was not recorded: no parameter
  uint64_t key = 0;           // of the content: hash64, or what stands for it (Run::KeyKind)
  Shape shape;
  int64_t elements = 0;
  double max = kUnknown, min = kUnknown, mean = kUnknown, norm = kUnknown;
  int64_t nan = -1, inf = -1;  // counts; -1: not recorded
  std::string data_name;
  double number = kUnknown;    // kNumber
  std::string text;            // kNumber, kText: as it is printed
  uint32_t sketch = kNowhere;  // index in Run::sketches
  uint32_t origin = kNowhere;  // index in Run::origins
};

struct Entry {
  std::string name;       // Functional.linear.3.forward
  std::string_view base;  // Functional.linear.3; Module.b.0.Linear and the number
  std::string_view api;   // Functional.linear; Module.b.0.Linear
  std::string_view last;  // linear: the last part of an API's name
  std::string parent;     // of construct.json; empty: none
  Kind kind = Kind::kOther;
  uint32_t first = 0, count = 0;  // leaves [first, first + count)
  bool arguments_layout = false;  // backward: gradients by argument, not by node
};

// What stands for the content of a tensor.
enum class KeyKind : uint8_t { kNone, kHash64, kChecksum, kStatistics };

struct Run {
  std::string path, folder;  // dump.json, and the folder of tensor files; "" without files
  std::vector<Entry> entries;
  std::vector<Leaf> leaves;
  std::deque<metrics::Sketch> sketches;
  std::deque<Origin> origins;
  std::unordered_map<std::string_view, uint32_t> by_name;  // entries
  std::unordered_map<std::string, std::string> code;       // entry -> "file:line", by stack.json
  bool has_files = false, has_sketches = false, has_hash64 = false, has_statistics = false;
  bool sixteen = false;  // some API returned a 16-bit tensor
  bool torn = false;
  int64_t step = 0;  // of the folder "step<N>" that the dump lies in; 0: none
  uint64_t malformed = 0;

  uint32_t Find(std::string_view entry) const;  // kNowhere: not there
  const Leaf* FindLeaf(uint32_t entry, Role role, std::string_view name) const;

 private:
  friend class RunReader;
  std::unordered_set<std::string> pool_;
};

// Reads dump.json with construct.json and stack.json beside it (both may be missing). Errors:
// those of dump::ReadDump. Malformed leaves are skipped and counted. With `prefix`: only entries
// whose names begin so, without what lies beside the dump.
Result<std::unique_ptr<Run>> ReadRun(const std::string& dump_json, std::string_view prefix = {});

// The parts of an entry's name. Never fails: what has no known form is kOther.
struct NameParts {
  Kind kind = Kind::kOther;
  std::string_view base, api, last;
};
NameParts PartsOf(std::string_view name);

// Fills `key` of all tensors with what both runs have: recorded hash64, checksums, the content of
// the files (hash64 of it), or the recorded statistics. Files that cannot be read leave no key.
KeyKind FillKeys(Run& target, Run& golden);
// The same of one run by itself: recorded hash64, else the content of the files.
void FillKeys(Run& run);

// The first frame of a recorded stack that is no library's: "file:line". Empty: none.
std::string CodeOf(const std::vector<std::string>& stack);

}  // namespace msprobe::culprit
