// Life cycle: steps, ranks, folders, flushing, the closing line.
#include "collect/collector.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <utility>

#include "base/file.h"
#include "base/time.h"
#include "collect/collector_impl.h"
#include "collect/termination.h"
#include "json/json.h"

namespace msprobe::collect {
namespace {

constexpr double kFlushSeconds = 5;
constexpr char kTensorFolder[] = "dump_tensor_data";

std::atomic<uint64_t> next_id{1};

std::string Boxed(std::string_view text) {
  const std::string line(76, '*');
  return fmt::format("\n{}\n*{:^74}*\n{}", line, text, line);
}

std::string AbsolutePath(const std::string& path) {
  std::error_code error;
  const auto absolute = std::filesystem::absolute(path, error);
  if (error) return path;
  std::string text = absolute.lexically_normal().string();
  if (text.size() > 1 && text.back() == '/') text.pop_back();
  return text;
}

config::CollectConfig WithAbsolutePath(config::CollectConfig config) {
  config.dump_path = AbsolutePath(config.dump_path);
  return config;
}

}  // namespace

Result<std::unique_ptr<Collector>> Collector::Create(const config::CollectConfig& config,
                                                     LogSink& log) {
  auto collector = std::make_unique<CollectorImpl>(config, log);
  MSPROBE_TRY(collector->Check());
  return std::unique_ptr<Collector>(std::move(collector));
}

CollectorImpl::CollectorImpl(const config::CollectConfig& config, LogSink& log)
    : config_(WithAbsolutePath(config)),
      log_(log),
      id_(next_id.fetch_add(1)),
      modules_(config.level == config::Level::kL0 || config.level == config::Level::kMix),
      apis_(config.level == config::Level::kL1 || config.level == config::Level::kMix),
      debug_(config.level == config::Level::kDebug),
      mix_(config.level == config::Level::kMix),
      filter_(config_),
      folders_(config_, log),
      tensors_(config.async_dump, log, static_cast<size_t>(config.memory_limit)),
      slice_(config.slice) {}

CollectorImpl::~CollectorImpl() { Close(); }

Status CollectorImpl::Check() const {
  if (config_.dump_path.empty())
    return Error(ErrorCode::kInvalidArgument, "dump_path is empty").Key("dump_path");
  if (config_.dump_path.find('\0') != std::string::npos)
    return Error(ErrorCode::kInvalidArgument, "contains a NUL byte").Key("dump_path");
  return {};
}

// ---- what is wanted
// --------------------------------------------------------------------------------

bool CollectorImpl::wants_parameters() const {
  return (modules_ || unit_) && config_.forward && config_.output && !structure();
}

bool CollectorImpl::wants_parameter_grads() const {
  return (modules_ || had_unit_) && !structure() && !(config_.forward && !config_.backward);
}

Deferral CollectorImpl::defers_parameter_grads() const {
  using config::Task;
  const Task task = config_.task;
  // An open scope goes by the moment; so does a check.
  if (!config_.scope.empty() || reference_.has_value() || task == Task::kNanCheck ||
      task == Task::kOverflowCheck) {
    return Deferral::kNone;
  }
  const bool plain = task == Task::kStatistics && config_.tensor_list.empty() &&
                     config_.summary_mode == config::SummaryMode::kStatistics && !config_.sketch &&
                     slice_.empty() && config_.evidence != config::Evidence::kFull;
  return plain ? Deferral::kStatistics : Deferral::kElements;
}

bool CollectorImpl::WantsPart(Part part, Direction direction) const {
  if (structure()) return false;
  if (part == Part::kWhole) return true;
  if (!(direction == Direction::kForward ? config_.forward : config_.backward)) return false;
  return part == Part::kOutput || part == Part::kParameters || part == Part::kMutated
             ? config_.output
             : config_.input;
}

void CollectorImpl::SetEnvironment(const Environment& environment) {
  const std::lock_guard lock(mutex_);
  environment_ = environment;
}

std::string CollectorImpl::OriginText(const MemoryId& memory,
                                      std::span<const int64_t> shape) const {
  std::string text;
  if (config_.evidence == config::Evidence::kNone || memory.storage == 0) return text;
  origins_.AppendFrom(text, {memory, shape, memory.dtype}, step());
  return text;
}

void CollectorImpl::SetState(std::string json) {
  if (abandoned_) return;
  const std::lock_guard lock(mutex_);
  state_ = std::move(json);
}

int64_t CollectorImpl::step() const {
  const std::lock_guard lock(mutex_);
  return init_step_ + loop_;
}

void CollectorImpl::SetInitStep(int64_t step) {
  const std::lock_guard lock(mutex_);
  if (files_.has_value()) FinishStep(true);
  init_step_ = std::max<int64_t>(step, 0);
  loop_ = 0;
  terminated_ = false;
}

// ---- start
// -----------------------------------------------------------------------------------------

bool CollectorImpl::StepIsWanted() {
  if (closed_ || terminated_) return false;
  if (config_.dump_enable.has_value() && !*config_.dump_enable) return false;
  const int64_t step = init_step_ + loop_;
  if (!config_.steps.empty()) {
    if (step > config_.steps.back()) {
      terminated_ = true;
      log_.Info(Boxed("msprobe ends successfully."));
      return false;
    }
    if (!std::binary_search(config_.steps.begin(), config_.steps.end(), step)) return false;
  }
  any_step_matched_ = true;
  return true;
}

bool CollectorImpl::DecideRank(const StartOptions& options) {
  if (options.rank.has_value()) rank_ = options.rank;
  if (config_.ranks.empty()) return true;
  const int64_t rank = rank_.value_or(0);
  const bool in = std::binary_search(config_.ranks.begin(), config_.ranks.end(), rank);
  if (!rank_.has_value() && !rank_said_) {
    rank_said_ = true;
    log_.Warning(fmt::format(
        "rank {} is configured, but the rank of this process is unknown; it is treated as rank 0, "
        "which is {}collected",
        fmt::format("[{}]", fmt::join(config_.ranks, ", ")), in ? "" : "not "));
  }
  return in;
}

StepHeader CollectorImpl::HeaderFor(const std::string& folder) const {
  StepHeader header;
  header.task = config::TaskName(config_.task);
  header.level = config::LevelName(config_.level);
  if (config_.task == config::Task::kTensor || config_.task == config::Task::kOverflowCheck ||
      !config_.tensor_list.empty())
    header.tensor_dir = JoinPath(folder, kTensorFolder);
  header.debug = debug_;
  header.extra_info = config_.extra_info;
  return header;
}

Status CollectorImpl::OpenStep() {
  std::optional<Reference> reference;
  if (config_.bench_path.has_value()) {
    auto opened = Reference::Open(*config_.bench_path, init_step_ + loop_,
                                  rank_.has_value() ? fmt::format("rank{}", *rank_) : "rank");
    if (!opened.ok()) return std::move(opened).error();
    reference = std::move(opened).value();
  }
  MSPROBE_ASSIGN(folder_,
                 folders_.Claim(init_step_ + loop_, rank_, environment_.world_size.value_or(0)));
  const StepHeader header = HeaderFor(folder_.path());
  // Entries come with stacks and parents, hence more than what makes a flush due.
  const auto buffer = static_cast<size_t>(config_.buffer_size);
  auto files = StepFiles::Create(folder_.path(), header,
                                 {folder_.journal_fd(), buffer + buffer / 2 + (64u << 10)});
  if (!files.ok()) {
    const std::string path = folder_.path();
    folder_.Release();
    if (rmdir(path.c_str()) == 0) rmdir(DirName(path).c_str());  // nothing empty stays behind
    return std::move(files).error();
  }
  files_.emplace(std::move(files).value());
  rank_dir_ = folder_.path();
  tensors_.Open(JoinPath(rank_dir_, kTensorFolder));
  reference_ = std::move(reference);
  counts_ = {};
  json_failed_ = false;
  lost_ = 0;
  last_flush_ = MonotonicSeconds();
  if (!std::exchange(handles_termination_, true))
    FlushAtTermination(this, [this] { FlushBeforeDeath(); });
  opened_once_ = true;
  return {};
}

// Whether the reason why writing failed may be gone: the folder is there, and there is room for
// more than the buffers of one step.
bool CollectorImpl::MayWriteAgain() const {
  constexpr uint64_t kRoom = 1 << 20;
  struct statvfs info{};
  if (access(config_.dump_path.c_str(), W_OK | X_OK) != 0 ||
      statvfs(config_.dump_path.c_str(), &info) != 0)
    return false;
  return static_cast<uint64_t>(info.f_bavail) * info.f_frsize >=
         4 * static_cast<uint64_t>(config_.buffer_size) + kRoom;
}

// Tried again after 1, 2, 4, … steps, so that a disk that fills up again and again is not a line
// per step.
void CollectorImpl::SwitchOff(const Error& error) {
  off_ = error;
  off_reason_ = error.ToString();
  next_try_ = init_step_ + loop_ + (int64_t{1} << std::min<uint64_t>(failures_++, 10));
}

// One line says why collection stops, however many steps follow; the closing line of the run counts
// them.
bool CollectorImpl::TryOpenStep() {
  const int64_t step = init_step_ + loop_;
  if (!off_.has_value() || (step >= next_try_ && MayWriteAgain())) {
    Status opened = OpenStep();
    if (opened.ok()) {
      if (off_.has_value()) log_.Info(fmt::format("step {}: collection goes on", step));
      off_.reset();
      return true;
    }
    if (!off_.has_value() || off_->code != opened.error().code) {
      log_.Error(
          fmt::format("step {} is not collected: {}; collection is off while this lasts, "
                      "the program goes on",
                      step, opened.error().ToString()));
    }
    SwitchOff(opened.error());
  }
  if (missed_step_ != step) ++missed_steps_;
  missed_step_ = step;
  return false;
}

void CollectorImpl::FollowRank() {
  if (!rank_.has_value()) return;
  const std::string before = folder_.path();
  tensors_.Drain();
  SettleFiles();
  folders_.Rename(folder_, init_step_ + loop_, *rank_);
  if (folder_.path() == before) return;
  rank_dir_ = folder_.path();
  tensors_.Move(JoinPath(rank_dir_, kTensorFolder));
  Status moved = files_->Move(rank_dir_, HeaderFor(rank_dir_));
  if (!moved.ok()) WriteFailed(moved.error());
}

// The rows of the configured request, which stand one request after the other in the first
// dimension of a batch (dump.md 9.5). false: the batch has none of them.
bool CollectorImpl::SliceRequest(const StartOptions& options) {
  slice_ = config_.slice;
  if (!config_.request_id.has_value()) return true;
  if (!options.scheduled_tokens.has_value()) {
    log_.Warning(
        "request_id is configured, but start() was given no scheduled_tokens: whole batches are "
        "recorded");
    return true;
  }
  int64_t total = 0;
  std::optional<config::SliceItem> item;
  for (const auto& [id, count] : *options.scheduled_tokens) {
    if (id == *config_.request_id) item = config::SliceItem{0, total, total + count, 0};
    total += count;
  }
  if (!item.has_value()) {
    log_.Warning(fmt::format("step {}: scheduled_tokens has no request \"{}\"; nothing is recorded",
                             init_step_ + loop_, *config_.request_id));
    return false;
  }
  item->size = total;
  slice_.push_back(*item);
  return true;
}

Status CollectorImpl::Start(const StartOptions& options) {
  if (abandoned_) return {};
  const std::lock_guard lock(mutex_);
  recording_ = false;
  if (debug_) return {};
  if (!StepIsWanted()) return {};
  if (!SliceRequest(options)) return {};
  const std::optional<int64_t> known = rank_;
  if (!DecideRank(options)) return {};
  if (files_.has_value()) {
    if (rank_ != known) FollowRank();
  } else {
    // Who asks for "refuse" wants to know before anything runs; nothing else may end the program
    // (decisions.md 9).
    if (!opened_once_ && config_.overwrite == config::Overwrite::kRefuse)
      MSPROBE_TRY(folders_.RefuseEarlier(rank_));
    if (!TryOpenStep()) return {};
  }
  recording_ = !json_failed_;
  return {};
}

// ---- flushing
// --------------------------------------------------------------------------------------

void CollectorImpl::WriteFailed(const Error& error) {
  if (json_failed_) return;
  json_failed_ = true;
  recording_ = false;
  lost_ = std::min(counts_.written, files_->removed() ? counts_.written : files_->lost_entries());
  counts_.written -= lost_;
  counts_.failed += lost_;
  log_.Error(fmt::format("{}; collection stops, the program goes on{}", error.ToString(),
                         files_->removed() ? "" : ", what is on disk stays valid"));
  SwitchOff(error);
}

void CollectorImpl::FlushNow() {
  last_flush_ = MonotonicSeconds();
  if (!files_.has_value() || json_failed_) return;
  tensors_.Drain();
  SettleFiles();
  Status flushed = files_->Flush(stacks_);
  if (!flushed.ok()) WriteFailed(flushed.error());
}

void CollectorImpl::FlushIfDue() {
  // A flush waits for tensor files; with async_dump only when there is no other way.
  if (config_.async_dump && !waiting_.empty() && !files_->journal_full()) return;
  if (files_->journal_full() ||
      files_->pending_bytes() >= static_cast<size_t>(config_.buffer_size) ||
      MonotonicSeconds() - last_flush_ >= kFlushSeconds)
    FlushNow();
}

void CollectorImpl::Stop() {
  if (abandoned_) return;
  const std::lock_guard lock(mutex_);
  if (!recording_) return;
  recording_ = false;
  FlushNow();
  if (counts_.written > 0 || json_failed_) return;
  log_.Warning(fmt::format(
      "nothing was recorded between start() and stop() of step {}: {} calls were seen and filtered "
      "out{}",
      init_step_ + loop_, counts_.filtered,
      counts_.filtered == 0 && modules_ && !apis_
          ? " (level L0 records modules of the model given to start())"
          : ""));
}

// ---- the end of a step
// -----------------------------------------------------------------------------

void CollectorImpl::FinishStep(bool clean) {
  recording_ = false;
  if (!files_.has_value()) return;
  WriteDebugGrads();
  WarnUnmatched();
  tensors_.Drain();
  SettleFiles();
  Status closed = files_->Close(stacks_, Footer(clean && !json_failed_));
  if (closed.ok()) {
    // There is room again: what an earlier flush could not write is in the file now.
    counts_.written += lost_;
    counts_.failed -= lost_;
    folder_.Release();
    if (!json_failed_) failures_ = 0;
  } else {
    WriteFailed(closed.error());
  }
  counts_.bytes = files_->bytes() + tensors_.bytes();
  log_.Info(fmt::format("step {}: written {}, filtered {}, failed {}, bytes {}, path {}",
                        init_step_ + loop_, counts_.written, counts_.filtered, counts_.failed,
                        counts_.bytes, rank_dir_));
  files_.reset();
  reference_.reset();
  folder_.Abandon();
  ResetStep();
}

void CollectorImpl::ResetStep() {
  epoch_.fetch_add(1);
  filter_.EndStep();
  stacks_.Forget();
  failure_kinds_.clear();
  state_.clear();
  open_calls_.clear();
  debug_numbers_.clear();
  debug_grads_.clear();
  debug_order_.clear();
  std::fill(phase_noted_.begin(), phase_noted_.end(), uint8_t{0});
  for (ApiState& api : api_states_) {
    api.calls = 0;
    api.last_construct = 0;
    api.parents.clear();
    api.backward_members.clear();
  }
  for (ModuleState& module : module_states_) {
    module.calls = 0;
    module.parents.clear();
    module.backward_members.clear();
    module.backward_flags.clear();
    module.backward_collected = false;
    module.grads = {};
  }
  for (const auto& thread : threads_) {
    thread->forward.clear();
    thread->backward.clear();
    thread->inside_listed = 0;
  }
}

void CollectorImpl::EndStep() {
  if (abandoned_) return;
  const std::lock_guard lock(mutex_);
  if (closed_) return;
  if (files_.has_value())
    FinishStep(true);
  else
    ResetStep();
  ++loop_;
}

void CollectorImpl::Close() {
  if (abandoned_) return;
  // Not under the mutex, which a flush at this moment waits for.
  if (handles_termination_) FlushAtTermination(this, {});
  const std::lock_guard lock(mutex_);
  if (closed_) return;
  FinishStep(true);
  folders_.GiveUpNames();
  closed_ = true;
  if (missed_steps_ > 0) {
    log_.Warning(fmt::format("{} {} not collected: {}", missed_steps_,
                             missed_steps_ == 1 ? "step was" : "steps were", off_reason_));
  }
  if (!config_.steps.empty() && !any_step_matched_) {
    log_.Warning(
        fmt::format("no step was collected: step [{}] is configured, the last step seen was {}",
                    fmt::join(config_.steps, ", "), init_step_ + loop_));
  }
}

void CollectorImpl::TakeOver(Collector& before) {
  auto& other = static_cast<CollectorImpl&>(before);
  if (other.abandoned_) return;
  {
    const std::scoped_lock lock(mutex_, other.mutex_);
    if (!other.closed_) other.FinishStep(true);
    other.recording_ = false;
    other.closed_ = true;
    folders_.TakeOver(other.folders_);
    init_step_ = other.init_step_;
    loop_ = other.loop_;
    rank_ = other.rank_;
    environment_ = other.environment_;
    opened_once_ = other.opened_once_;
    any_step_matched_ = other.any_step_matched_;
    missed_steps_ = other.missed_steps_;
    missed_step_ = other.missed_step_;
    off_reason_ = other.off_reason_;
    epoch_ = other.epoch_ + 1;
  }
  if (other.handles_termination_) FlushAtTermination(&other, {});
}

void CollectorImpl::FlushBeforeDeath() {
  if (abandoned_) return;
  const std::lock_guard lock(mutex_);
  if (closed_) return;
  recording_ = false;
  FlushNow();
}

void CollectorImpl::AfterForkInChild() {
  ForgetTerminationInChild();
  // The mutex may be held by a thread that does not exist here; every entry point looks at
  // `abandoned_` before it.
  recording_ = false;
  abandoned_ = closed_ = true;
  if (files_.has_value()) files_->Abandon();
  folder_.Abandon();
  folders_.Abandon();
  tensors_.AfterForkInChild();
}

// ---- small things
// ----------------------------------------------------------------------------------

std::optional<StackId> CollectorImpl::FindStack(uint64_t key) const {
  const std::lock_guard lock(mutex_);
  const auto it = stack_ids_.find(key);
  if (it == stack_ids_.end()) return std::nullopt;
  return it->second;
}

StackId CollectorImpl::AddStack(uint64_t key, std::vector<std::string> frame_lines) {
  const std::lock_guard lock(mutex_);
  const auto [it, added] = stack_ids_.try_emplace(key, kNoStack);
  if (added) it->second = stacks_.Add(std::move(frame_lines));
  return it->second;
}

void CollectorImpl::Fail(std::string_view kind, std::string_view detail) {
  ++counts_.failed;
  if (std::find(failure_kinds_.begin(), failure_kinds_.end(), kind) != failure_kinds_.end()) return;
  failure_kinds_.emplace_back(kind);
  log_.Warning(fmt::format("{}: {} (said once in step {}, counted as failed)", kind, detail,
                           init_step_ + loop_));
}

void CollectorImpl::ReportFailure(std::string_view kind, std::string_view detail) {
  if (abandoned_) return;
  const std::lock_guard lock(mutex_);
  Fail(kind, detail);
}

}  // namespace msprobe::collect
