// The running side of collection, without PyTorch: names, counters, filters, steps and ranks,
// description of leaves, writing. Called with Python's global lock held; a call's builder belongs
// to one thread at a time.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/log.h"
#include "base/result.h"
#include "config/collect_config.h"
#include "metrics/tensor_stats.h"
#include "tensor/view.h"

namespace msprobe::collect {

enum class Risk : uint8_t { kCore, kFocus, kLow };
enum class Direction : uint8_t { kForward, kBackward };
// Parts of an entry, in the order in which they are written.
// kMutated: an object of leaves by position ("input.0"): arguments that the call changed in place.
enum class Part : uint8_t {
  kInputArgs,
  kInputKwargs,
  kInput,
  kOutput,
  kParameters,
  kMutated,
  kWhole
};

// Why a leaf is null (decisions.md 18).
enum class Absent : uint8_t {
  kFiltered,
  kUnsupported,
  kNoStorage,
  kInplaceReplaced,
  kOutOfBudget,
  kWriteFailed,
  kInternal
};
std::string_view AbsentName(Absent a);

// Which memory a tensor is: `storage` names it for as long as the storage lives (0: unknown), and
// belongs to no other while the collector was not told to forget it. `version` counts the writes
// that PyTorch saw; `address` is that of the first element; `strides` in elements.
struct MemoryId {
  uint64_t storage = 0;
  int64_t version = 0;
  const void* address = nullptr;
  std::span<const int64_t> strides;
  DType dtype = DType::kF32;
};

// A tensor as the capture side sees it. Memory is read before the call returns.
struct TensorLeaf {
  std::string_view type = "torch.Tensor";
  std::string_view dtype_text;  // "torch.float32"
  std::span<const int64_t> shape;
  bool requires_grad = false;
  const TensorView* view = nullptr;  // host memory; nullptr: statistics null
  std::string_view
      extra_json;   // further members after requires_grad ("\"device_mesh\": …"), or empty
  MemoryId memory;  // for "from"
  const metrics::TensorStats* statistics = nullptr;  // measured elsewhere: `view` is not read
  std::string_view from_json;  // evidence instead of what the collector says of `memory`: what
                               // OriginText() said when a gradient was asked for, or "derived"
};

// What a leaf must have when its elements come later.
enum class Deferral : uint8_t {
  kNone,  // they cannot
  kStatistics,
  kElements,  // checksums, hashes, sketches, files, slices
};

// Builds the JSON of one entry. Lists and objects nest; each leaf call places one value at the
// current position and, when tensors are saved, a file under the path of positions and keys
// (dump.md 10.2): the path lists every position and key below the part, so a tuple of outputs (root
// list of leaves) gives output.0, output.1, one list output (root list holding a list) output.0.0,
// a dict output (root list holding an object) output.0.key, a namedtuple output (root object)
// output.key. Calls that do not fit (a key outside an object, a second value at a part's root, an
// unclosed list) never spoil the JSON: they are completed or dropped. Values deeper than 400 levels
// become null with a reason. A builder destroyed without Commit is discarded. Parts that data_mode
// leaves out may be described; they are dropped (WantsPart() saves the trouble).
class EntryBuilder {
 public:
  virtual ~EntryBuilder() = default;
  virtual void BeginPart(
      Part part) = 0;  // opens the part's value: a list or object follows, then EndPart
  virtual void EndPart() = 0;
  virtual void OpenList() = 0;
  virtual void CloseList() = 0;
  virtual void OpenObject() = 0;
  virtual void Key(std::string_view key) = 0;
  virtual void CloseObject() = 0;

  virtual void Tensor(const TensorLeaf& leaf) = 0;
  // A tensor whose elements come later, by Settle() before Commit(): memory that only its device
  // reads. How this entry can have such leaves at this place:
  virtual Deferral CanDefer() const = 0;
  virtual uint32_t DeferredTensor(const TensorLeaf& leaf) = 0;  // its number; UINT32_MAX: no place
  virtual void Settle(uint32_t number, const metrics::TensorStats& statistics) = 0;
  // With a copy of the elements in host memory: everything that Tensor() would have said and saved.
  virtual void Settle(uint32_t number, const TensorView& elements) = 0;
  virtual void Null() = 0;  // Python's None
  virtual void AbsentLeaf(Absent code,
                          std::string_view reason) = 0;  // null, explained in the entry's "absent"
  virtual void Scalar(std::string_view type,
                      std::string_view value_json) = 0;  // {"type": type, "value": value}
  // Null for now, to be filled by DebugGrad(); only in entries of BeginDebugGrad(). Slots count
  // from 0.
  virtual uint32_t Slot() = 0;
  virtual void Raw(std::string_view json) = 0;  // any whole leaf

  // Extra members of the entry after the parts ("recompute_of", "qualified"): appended in order.
  virtual void Extra(std::string_view key, std::string_view json) = 0;

  // Hands the entry to the file writer; the builder is dead afterwards. Discard: nothing is
  // written; the forward counter goes back if it is still the last one given out.
  virtual void Commit() = 0;
  virtual void Discard() = 0;
  virtual const std::string& name() const = 0;
};

// Call stacks are interned by a key that the capture side forms (hash of code objects and offsets).
using StackId = uint32_t;
inline constexpr StackId kNoStack = UINT32_MAX;

struct Counts {
  uint64_t written = 0, filtered = 0, failed = 0, bytes = 0;
};

struct StartOptions {
  std::optional<int64_t> rank;  // detected or given; nullopt = unknown
  // Requests of the batch in their order, with the number of rows of each (for request_id).
  std::optional<std::vector<std::pair<std::string, int64_t>>> scheduled_tokens = std::nullopt;
};

// What the footer says about the run (architecture.md 6). Empty or absent: null there.
struct Environment {
  std::string torch_version, python_version;
  std::optional<int64_t> world_size;
};

class Collector {
 public:
  static Result<std::unique_ptr<Collector>> Create(const config::CollectConfig& config,
                                                   LogSink& log);
  virtual ~Collector() = default;

  // ---- life cycle (dump.md 5) ----
  // Opens the folder of the current step at the first effective start; recording() says whether
  // this step and rank are collected.
  virtual Status Start(const StartOptions& options) = 0;
  virtual void Stop() = 0;     // flush; counters go on
  virtual void EndStep() = 0;  // step(): finish files, print the closing line, next step
  virtual void Close() = 0;    // at exit: finish whatever is open
  virtual bool recording() const = 0;
  virtual int64_t step() const = 0;
  virtual void SetInitStep(int64_t step) = 0;
  virtual bool wants_modules() const = 0;  // level L0 or mix
  virtual bool wants_apis() const = 0;     // level L1 or mix
  virtual bool wants_backward() const = 0;
  virtual bool wants_stacks() const = 0;
  virtual bool wants_parameters() const = 0;
  // While on, modules are recorded at every level (dump.md 2.3: module_dump).
  virtual void SetUnit(bool on) = 0;
  virtual const Counts& counts() const = 0;
  virtual const std::string& rank_dir() const = 0;  // of the open step; empty before Start
  virtual void SetEnvironment(const Environment& environment) = 0;  // any time before the step ends
  virtual bool terminated()
      const = 0;  // past the last configured step: nothing will be recorded any more
  // Rises at each EndStep. A hook that was placed in an earlier epoch must not report into this one
  // (the numbers start anew).
  virtual uint64_t epoch() const = 0;
  virtual bool wants_parameter_grads() const = 0;  // ParameterGrad() may record something
  virtual config::Evidence evidence() const = 0;
  virtual bool reuses_statistics() const = 0;
  virtual bool gradients_by_argument() const = 0;  // backward_layout
  virtual config::DeviceStatistics device_statistics() const = 0;
  // Whether parameter gradients may come later, and what of them.
  virtual Deferral defers_parameter_grads() const = 0;
  // `"from": {…}` of a tensor as things stand, or empty.
  virtual std::string OriginText(const MemoryId& memory, std::span<const int64_t> shape) const = 0;
  virtual bool wants_every() const = 0;  // functions that no list names, too
  // What the state of the program was when the step began (JSON of one value): goes to the footer.
  virtual void SetState(std::string json) = 0;
  // Memory that is gone; its numbers may come again.
  virtual void ForgetStorages(std::span<const uint64_t> storages) = 0;
  virtual bool WantsPart(Part part,
                         Direction direction) const = 0;  // data_mode and task leave it in
  // Goes on where `before`, a collector of the same process with other settings, stands: its step
  // is finished, its names of rank folders, step numbers and rank are taken over. `before` records
  // nothing any more.
  virtual void TakeOver(Collector& before) = 0;
  // In a forked child: closes what is open without writing; nothing is recorded any more. The
  // parent is not affected.
  virtual void AfterForkInChild() = 0;

  // ---- APIs ----
  virtual uint32_t RegisterApi(std::string prefix, std::string name,
                               Risk risk) = 0;  // same pair: same id
  // Takes the next number. nullptr: filtered (counted); *number is set either way.
  virtual std::unique_ptr<EntryBuilder> BeginApi(uint32_t api, StackId stack, int64_t* number) = 0;
  // Gives a number back when the call raised.
  virtual void AbandonApi(uint32_t api, int64_t number) = 0;
  virtual std::unique_ptr<EntryBuilder> BeginApiBackward(uint32_t api, int64_t number) = 0;
  virtual bool ApiPasses(uint32_t api, int64_t number, Direction direction) = 0;

  // While a phase is open on this thread, APIs have it as their parent in construct.json
  // ("optimizer", "clip_grad").
  virtual void EnterPhase(std::string_view name) = 0;
  virtual void LeavePhase() = 0;

  // ---- modules: `path` "layers.0.fc", `class_name` "Linear"; an empty path is the root itself
  // ----
  virtual uint32_t RegisterModule(std::string path, std::string class_name) = 0;
  struct ModuleCall {
    uint32_t module = 0;
    int64_t number = 0;
    bool described = false;  // builder wanted
    uint64_t token = 0;      // of the module stack
  };
  virtual ModuleCall EnterModule(uint32_t module,
                                 StackId stack) = 0;  // pushes on this thread's stack
  virtual void LeaveModule(
      const ModuleCall& call) = 0;  // pops (and whatever is above, if calls went missing)
  virtual std::unique_ptr<EntryBuilder> BeginModule(const ModuleCall& call) = 0;
  virtual std::unique_ptr<EntryBuilder> BeginModuleBackward(uint32_t module, int64_t number) = 0;
  virtual void EnterModuleBackward(uint32_t module, int64_t number) = 0;  // for construct.json
  virtual void LeaveModuleBackward(uint32_t module, int64_t number) = 0;
  // One accumulated gradient of a module's own parameter. Rounds are counted as dump.md 7.2 says.
  // The callback describes the leaf.
  virtual void ParameterGrad(uint32_t module, std::string_view parameter,
                             const std::function<void(EntryBuilder&)>& describe) = 0;

  // ---- level debug (dump.md 14.3): no Start() or Stop(), EndStep() separates steps ----
  // One save(): takes the next number of `name` in this step and opens the step's folder if need
  // be. The variable is described as one value (BeginPart(Part::kWhole)). nullptr: nothing is to be
  // recorded (level, task, step, rank, or a failure that was logged).
  virtual std::unique_ptr<EntryBuilder> BeginDebug(std::string_view name,
                                                   const StartOptions& options,
                                                   int64_t* number) = 0;
  // Its gradients: the same structure with Slot() for each tensor that requires grad and Null() for
  // every other leaf.
  virtual std::unique_ptr<EntryBuilder> BeginDebugGrad(std::string_view name, int64_t number) = 0;
  // The gradient of one slot has arrived; `describe` places one leaf. A later one for the same slot
  // replaces it.
  virtual void DebugGrad(std::string_view name, int64_t number, uint32_t slot,
                         const std::function<void(EntryBuilder&)>& describe) = 0;

  // ---- stacks ----
  virtual std::optional<StackId> FindStack(uint64_t key) const = 0;
  virtual StackId AddStack(uint64_t key, std::vector<std::string> frame_lines) = 0;

  // One log line per kind of failure and step; counts it (decisions: a failure never reaches the
  // user's program).
  virtual void ReportFailure(std::string_view kind, std::string_view detail) = 0;
};

}  // namespace msprobe::collect
