// The collector: one object per debugger. Everything is guarded by one mutex that is held for table
// work only; tensors are read and tensor files written outside it.
#pragma once

#include <atomic>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "collect/collector.h"
#include "collect/entry.h"
#include "collect/filter.h"
#include "collect/folders.h"
#include "collect/origins.h"
#include "collect/reference.h"
#include "collect/step_files.h"
#include "collect/tensor_store.h"

namespace msprobe::collect {

// One call of a module, or none.
struct CallRef {
  uint32_t module = UINT32_MAX;
  int64_t number = 0;
  bool none() const { return module == UINT32_MAX; }
};

// A module call that is running on some thread.
struct OpenCall {
  CallRef call;
  uint64_t token = 0;
  bool opened_list = false;  // its name matched `list`: everything inside is collected
};

// Per thread; owned by the collector, found through a thread-local cache.
struct ThreadState {
  std::vector<OpenCall> forward, backward;
  std::vector<uint32_t> phases;
  int inside_listed = 0;
};

struct ApiState {
  std::string prefix;  // "Functional.linear."
  std::string bare;    // "Functional.linear"
  Risk risk = Risk::kFocus;
  bool removed = false;  // by api_list
  // Of the current step:
  int64_t calls = 0;
  std::vector<CallRef> parents;            // by number; level mix only
  std::vector<uint64_t> backward_members;  // by number: member of dump.json + 1, 0 = none
  uint64_t last_construct = 0;             // member + 1 of a filtered call, for AbandonApi
};

struct GradRound {
  std::string first;  // parameter that fired first in this step
  int64_t number = 0;
  std::vector<std::pair<std::string, std::string>> leaves;  // parameter, JSON; in order of firing
  std::string absent;
  uint64_t member = 0;  // of dump.json + 1, 0 = not appended yet
};

struct ModuleState {
  std::string path;
  std::string prefix;  // "Module.fc.Linear."
  // Of the current step:
  int64_t calls = 0;
  std::vector<CallRef> parents;  // by number
  std::vector<uint64_t> backward_members;
  std::vector<uint8_t> backward_flags;  // by number: kEntered, kPassed
  bool backward_collected = false;
  GradRound grads;
};

// The `_grad` entry of a save(): its text with a null at each slot, and what has arrived.
struct DebugGrads {
  std::string text;
  std::vector<EntrySlot> slots;
  std::vector<std::string> leaves;  // by slot; empty: not yet
  size_t missing = 0;
  uint64_t member = 0;  // of debug.json + 1, 0 = not appended yet
};

// An entry that is in memory and waits for its tensor files.
struct WaitingEntry {
  uint64_t member = 0;  // of dump.json
  std::string name, body, absent;
  std::vector<EntryFile> files;
};

// How many entries were compared with the reference, by answer.
struct ReferenceCounts {
  uint64_t unknown = 0, inputs = 0, equal = 0, different = 0;
};

template <class T>
T& At(std::vector<T>& values, int64_t number) {
  const auto k = static_cast<size_t>(number);
  if (k >= values.size()) values.resize(k + 1);
  return values[k];
}

class CollectorImpl final : public Collector, public EntryOwner {
 public:
  CollectorImpl(const config::CollectConfig& config, LogSink& log);
  ~CollectorImpl() override;
  Status Check() const;  // of the configuration

  Status Start(const StartOptions& options) override;
  void Stop() override;
  void EndStep() override;
  void Close() override;
  bool recording() const override { return recording_.load(std::memory_order_relaxed); }
  int64_t step() const override;
  void SetInitStep(int64_t step) override;
  bool wants_modules() const override { return modules_; }
  bool wants_apis() const override { return apis_; }
  void SetUnit(bool on) override {
    unit_ = on;
    had_unit_ = had_unit_ || on;
  }
  bool wants_backward() const override { return config_.backward; }
  bool wants_stacks() const override { return config_.extra_info && !debug_; }
  bool wants_parameters() const override;
  bool wants_parameter_grads() const override;
  bool WantsPart(Part part, Direction direction) const override;
  const Counts& counts() const override { return counts_; }
  const std::string& rank_dir() const override { return rank_dir_; }
  void SetEnvironment(const Environment& environment) override;
  bool terminated() const override { return terminated_; }
  config::Evidence evidence() const override { return config_.evidence; }
  bool reuses_statistics() const override { return config_.reuse_statistics; }
  bool gradients_by_argument() const override {
    return config_.backward_layout == config::BackwardLayout::kArguments;
  }
  std::string OriginText(const MemoryId& memory, std::span<const int64_t> shape) const override;
  Deferral defers_parameter_grads() const override;
  config::DeviceStatistics device_statistics() const override { return config_.device_statistics; }
  bool wants_every() const override { return config_.risk_level == config::RiskLevel::kEvery; }
  void SetState(std::string json) override;
  void ForgetStorages(std::span<const uint64_t> storages) override { origins_.Forget(storages); }
  uint64_t epoch() const override { return epoch_; }
  void AfterForkInChild() override;
  void TakeOver(Collector& before) override;

  uint32_t RegisterApi(std::string prefix, std::string name, Risk risk) override;
  std::unique_ptr<EntryBuilder> BeginApi(uint32_t api, StackId stack, int64_t* number) override;
  void AbandonApi(uint32_t api, int64_t number) override;
  std::unique_ptr<EntryBuilder> BeginApiBackward(uint32_t api, int64_t number) override;
  bool ApiPasses(uint32_t api, int64_t number, Direction direction) override;
  void EnterPhase(std::string_view name) override;
  void LeavePhase() override;

  uint32_t RegisterModule(std::string path, std::string class_name) override;
  ModuleCall EnterModule(uint32_t module, StackId stack) override;
  void LeaveModule(const ModuleCall& call) override;
  std::unique_ptr<EntryBuilder> BeginModule(const ModuleCall& call) override;
  std::unique_ptr<EntryBuilder> BeginModuleBackward(uint32_t module, int64_t number) override;
  void EnterModuleBackward(uint32_t module, int64_t number) override;
  void LeaveModuleBackward(uint32_t module, int64_t number) override;
  void ParameterGrad(uint32_t module, std::string_view parameter,
                     const std::function<void(EntryBuilder&)>& describe) override;

  std::unique_ptr<EntryBuilder> BeginDebug(std::string_view name, const StartOptions& options,
                                           int64_t* number) override;
  std::unique_ptr<EntryBuilder> BeginDebugGrad(std::string_view name, int64_t number) override;
  void DebugGrad(std::string_view name, int64_t number, uint32_t slot,
                 const std::function<void(EntryBuilder&)>& describe) override;

  std::optional<StackId> FindStack(uint64_t key) const override;
  StackId AddStack(uint64_t key, std::vector<std::string> frame_lines) override;
  void ReportFailure(std::string_view kind, std::string_view detail) override;

  void Finish(Entry& entry, bool commit) override;
  bool WantsHeldFiles(const Entry& entry) override;

 private:
  // All of these expect the mutex to be held.
  ThreadState& Thread();
  bool structure() const { return config_.task == config::Task::kStructure; }
  std::string ApiName(const ApiState& api, int64_t number, Direction direction) const;
  std::string ModuleName(CallRef call, Direction direction) const;
  std::unique_ptr<Entry> NewEntry(std::string name, const EntryTag& tag);
  bool StepIsWanted();  // by the `step` key; ends the collection when it is past
  bool SliceRequest(const StartOptions& options);
  bool DecideRank(const StartOptions& options);
  StepHeader HeaderFor(const std::string& folder) const;
  Status OpenStep();
  bool TryOpenStep();  // says once why not
  bool MayWriteAgain() const;
  void SwitchOff(const Error& error);
  void FollowRank();
  void FlushIfDue();
  void FlushNow();
  void FlushBeforeDeath();
  void WriteFailed(const Error& error);
  void FinishStep(bool clean);
  std::string Footer(bool complete) const;
  void WarnUnmatched();
  bool Removed(const ApiState& api, std::string_view name) const;
  std::vector<std::string> NamesSeen() const;
  void ResetStep();
  uint64_t NoteConstruct(const EntryTag& tag, std::string_view name);  // member + 1, or 0
  CallRef ParentOf(const ThreadState& thread, const ModuleState& module) const;
  void CloseCall(ThreadState& thread, const OpenCall& call);
  bool NoteBackward(CallRef call);  // false: the call is not of this step
  void File(Entry& entry);
  void FileEntry(Entry& entry);
  void FileGrad(Entry& entry);
  void FileDebugGrads(Entry& entry);
  void FileDebugSlot(Entry& entry);
  void WriteDebugGrads();  // those that have not all arrived
  // `journal_value`: what a reader finds when the process dies now.
  void PutMember(uint64_t& member, std::string_view name, std::string_view value,
                 std::string_view journal_value);
  void SettleFiles();  // of entries whose files are all on disk or have failed
  void Settle(WaitingEntry& entry);
  void CountDifferences(std::string_view name);
  void End(const std::string& why);
  void CountNonFinite(const Entry& entry);
  void Fail(std::string_view kind, std::string_view detail);

  config::CollectConfig config_;
  LogSink& log_;
  const uint64_t id_;  // for the thread-local cache
  const bool modules_, apis_, debug_, mix_;
  // module_dump: modules whatever the level. Gradients of a unit's parameters arrive later.
  bool unit_ = false, had_unit_ = false;

  mutable std::mutex mutex_;
  std::atomic<bool> recording_{false};
  std::atomic<bool> terminated_{false};
  std::atomic<uint64_t> epoch_{0};
  std::atomic<bool> abandoned_{false};
  bool closed_ = false, json_failed_ = false;
  uint64_t lost_ = 0;  // entries that a failed flush left nowhere; counted as failed meanwhile
  // Why writing is given up until there is reason to think that it works again.
  std::optional<Error> off_;
  std::string off_reason_;  // the last one
  uint64_t failures_ = 0;   // since the last step that went well
  int64_t next_try_ = 0;    // the step at which writing is tried again
  uint64_t missed_steps_ = 0;
  int64_t missed_step_ = -1;  // the last one
  bool handles_termination_ = false, removals_checked_ = false;
  bool rank_said_ = false, any_step_matched_ = false, opened_once_ = false;
  int64_t init_step_ = 0, loop_ = 0;
  std::optional<int64_t> rank_;
  Environment environment_;
  Counts counts_;
  std::string rank_dir_;
  std::string state_;  // of the program at the begin of the step, JSON; empty: not asked for

  Filter filter_;
  Folders folders_;
  RankFolder folder_;
  std::optional<StepFiles> files_;
  TensorStore tensors_;
  std::deque<WaitingEntry> waiting_;      // in order of their files
  std::optional<Reference> reference_;    // of the open step
  ReferenceCounts reference_counts_;      // of the run
  std::vector<config::SliceItem> slice_;  // of the configuration and of the request
  Origins origins_;
  StackBook stacks_;
  std::unordered_map<uint64_t, StackId> stack_ids_;
  double last_flush_ = 0;
  int64_t overflows_ = 0;  // nan_check: entries with a non-finite output, of the run

  std::vector<ApiState> api_states_;
  std::unordered_map<std::string, uint32_t> api_ids_;
  std::vector<ModuleState> module_states_;
  std::unordered_map<std::string, uint32_t> module_ids_;
  std::vector<std::string> phases_;
  std::vector<uint8_t> phase_noted_;
  std::vector<OpenCall> open_calls_;  // forward calls of all threads, oldest first
  uint64_t next_token_ = 1;
  std::vector<std::unique_ptr<ThreadState>> threads_;
  std::unordered_map<std::string, int64_t> debug_numbers_;   // next number of each name
  std::unordered_map<std::string, DebugGrads> debug_grads_;  // by entry name
  std::vector<std::string> debug_order_;
  std::vector<EntryMemory> pool_;
  std::vector<std::string> failure_kinds_;  // reported in this step
};

}  // namespace msprobe::collect
