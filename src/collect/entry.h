// The builder behind EntryBuilder: JSON text appended once, positions kept for file names.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "collect/collector.h"
#include "collect/leaf.h"
#include "collect/tensor_store.h"

namespace msprobe::collect {

class Origins;

// Memory that entries use and give back, so that a call costs no allocations once the pool is warm.
struct EntryMemory {
  struct Frame {
    bool object = false;
    bool after_key = false;  // objects: a key stands there without its value
    uint64_t values = 0;
    size_t path_size = 0;  // of `path` before this frame's own part
    size_t key_begin = 0;  // objects: the current key in `keys`
  };
  std::string name, text, path, keys, absent, extra;
  std::vector<Frame> frames;
  void Clear();
};

// What an entry is, for the owner that files it.
struct EntryTag {
  enum class Kind : uint8_t {
    kApi,
    kApiBackward,
    kModule,
    kModuleBackward,
    kParameterGrad,  // a fragment
    kDebug,
    kDebugGrad,
    kDebugSlot,  // a fragment
  };
  Kind kind = Kind::kApi;
  Direction direction = Direction::kForward;
  uint32_t id = 0;  // API or module
  int64_t number = 0;
  StackId stack = kNoStack;
  uint32_t parent_module = UINT32_MAX;  // the module call running when it began
  int64_t parent_number = 0;
  uint32_t phase = UINT32_MAX;  // optimizer phase running when it began
  uint64_t epoch = 0;
};

struct EntryStyle {
  LeafStyle leaf;
  const std::vector<config::SliceItem>* slice = nullptr;
  bool input = true, output = true;  // parts that are written
  bool with_flag = false;            // nan_check: "is_nan" after the parts
  TensorStore* tensors = nullptr;    // nullptr: no files
  bool background = false;           // files are queued; TakeFiles() says which
  bool hold = false;                 // files are queued at Commit(), if the owner wants them
  Origins* origins = nullptr;        // nullptr: "from" is neither written nor learned
  bool from = false;                 // "from" is written
  bool reuse = false;                // statistics of unchanged memory are used again
  int64_t step = 0;
};

// A null in an entry's text that is filled later.
struct EntrySlot {
  size_t at = 0;     // of the null in the text
  std::string path;  // position, for file names and "absent"
};

// A tensor file of an entry that is not on disk yet.
struct EntryFile {
  TensorStore::Ticket ticket = 0;
  std::string name;
  std::string path;  // of the leaf, for "absent"
  TensorCopy copy;   // while it is held
};

// The text of an entry without the members "data_name" for which `keep` says no. (A user's own text
// cannot look like one: its quotes are escaped.)
std::string WithoutFileNames(std::string_view text,
                             const std::function<bool(std::string_view name)>& keep);

class Entry;
class EntryOwner {
 public:
  virtual ~EntryOwner() = default;
  virtual bool WantsHeldFiles(const Entry& entry) = 0;  // its text is complete
  virtual void Finish(Entry& entry, bool commit) = 0;   // then the memory may be taken back
};

class Entry final : public EntryBuilder {
 public:
  Entry(EntryOwner& owner, EntryMemory memory, const EntryTag& tag, const EntryStyle& style);
  // A fragment: only the value of one member (parameter gradients). `path` takes the place of part
  // and positions.
  void BeginFragment(std::string_view path);
  ~Entry() override;

  void BeginPart(Part part) override;
  void EndPart() override;
  void OpenList() override { Open(false); }
  void CloseList() override { Close(false); }
  void OpenObject() override { Open(true); }
  void Key(std::string_view key) override;
  void CloseObject() override { Close(true); }
  void Tensor(const TensorLeaf& leaf) override;
  Deferral CanDefer() const override;
  uint32_t DeferredTensor(const TensorLeaf& leaf) override;
  void Settle(uint32_t number, const metrics::TensorStats& statistics) override;
  void Settle(uint32_t number, const TensorView& elements) override;
  void Null() override;
  void AbsentLeaf(Absent code, std::string_view reason) override;
  void Scalar(std::string_view type, std::string_view value_json) override;
  uint32_t Slot() override;
  void Raw(std::string_view json) override;
  void Extra(std::string_view key, std::string_view json) override;
  void Commit() override;
  void Discard() override;
  const std::string& name() const override { return memory_.name; }

  const EntryTag& tag() const { return tag_; }
  bool has_parts() const { return parts_ > 0; }
  uint64_t failed_leaves() const { return failed_leaves_; }
  bool non_finite_output() const { return flag_ == 1; }
  bool non_finite() const { return non_finite_; }  // anywhere
  std::vector<EntryFile> TakeFiles() { return std::move(files_); }
  // Of the text: what comes before "absent" and the closing brace.
  size_t body_size() const { return body_size_; }
  // Of a committed entry: the whole value. Of a fragment: the value, without braces.
  const std::string& text() const { return memory_.text; }
  std::string_view fragment_path() const { return memory_.path; }
  const std::string& absent() const { return memory_.absent; }
  std::vector<EntrySlot> TakeSlots() { return std::move(slots_); }
  EntryMemory TakeMemory();

 private:
  void Open(bool object);
  void Close(bool object);
  bool Place();  // separator and position for one value; false: there is no room for it here
  void AppendPosition();   // the current position to `path`
  std::string LeafPath();  // of the value about to be placed or just placed
  void CompleteKey();
  void NoteAbsent(Absent code, std::string_view reason) { NoteAbsent(LeafPath(), code, reason); }
  void NoteAbsent(std::string_view path, Absent code, std::string_view reason);
  void CloseText();
  bool Saves(const TensorView* view) const;
  std::string SaveTensor(const TensorView& view, std::string path);
  std::string SaveLater(std::string stem, std::string path, const TensorView& view);
  void SettleHeldFiles();
  void MeasureTensor(const TensorLeaf& leaf, std::string_view data_name,
                     std::span<const int64_t> shape, Gap* gap = nullptr);
  void NoteOrigin(const MemoryId& memory, std::span<const int64_t> shape,
                  const metrics::TensorStats* statistics);

  EntryOwner& owner_;
  EntryMemory memory_;
  EntryTag tag_;
  EntryStyle style_;
  bool in_part_ = false, skipping_ = false, fragment_ = false, whole_ = false, done_ = false;
  bool output_part_ = false;
  bool produces_ = false;  // leaves of this part are results of the call
  bool root_filled_ = false;
  uint32_t parts_ = 0;
  uint32_t dropped_depth_ = 0;  // containers open that have no place
  uint64_t failed_leaves_ = 0;
  std::vector<EntrySlot> slots_;
  // Of leaves whose elements come later: their places, paths and texts.
  std::vector<Gap> gaps_;
  std::vector<std::string> gap_paths_;
  std::vector<GapTexts> gap_texts_;
  std::vector<EntryFile> files_;
  size_t body_size_ = 0;
  bool non_finite_ = false;
  int flag_ = -1;  // nan_check: -1 nothing could be looked at, else whether an output is not finite
};

}  // namespace msprobe::collect
