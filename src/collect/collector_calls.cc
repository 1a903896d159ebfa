// Calls of APIs and modules, gradients of parameters: numbers, filters, parents, filing of entries.
#include <fmt/format.h>

#include <algorithm>

#include "collect/collector_impl.h"
#include "json/json.h"

namespace msprobe::collect {
namespace {

constexpr uint8_t kEntered = 1, kPassed = 2, kNoted = 4;

std::string WithNumber(std::string_view prefix, int64_t number, std::string_view suffix) {
  const fmt::format_int digits(number);
  std::string name;
  name.reserve(prefix.size() + digits.size() + suffix.size());
  name.append(prefix).append(digits.data(), digits.size()).append(suffix);
  return name;
}

}  // namespace

ThreadState& CollectorImpl::Thread() {
  thread_local std::vector<std::pair<uint64_t, ThreadState*>> states;
  for (const auto& [id, state] : states)
    if (id == id_) return *state;
  threads_.push_back(std::make_unique<ThreadState>());
  states.emplace_back(id_, threads_.back().get());
  return *threads_.back();
}

std::string CollectorImpl::ApiName(const ApiState& api, int64_t number, Direction direction) const {
  return WithNumber(api.prefix, number,
                    direction == Direction::kForward ? ".forward" : ".backward");
}

std::string CollectorImpl::ModuleName(CallRef call, Direction direction) const {
  std::string name = module_states_[call.module].prefix;
  name += direction == Direction::kForward ? "forward." : "backward.";
  name += fmt::format_int(call.number).c_str();
  return name;
}

std::unique_ptr<Entry> CollectorImpl::NewEntry(std::string name, const EntryTag& tag) {
  EntryMemory memory;
  if (!pool_.empty()) {
    memory = std::move(pool_.back());
    pool_.pop_back();
  }
  memory.name = std::move(name);
  EntryStyle style;
  const bool nan_check = config_.task == config::Task::kNanCheck;
  style.leaf.summary = config_.summary_mode;
  style.leaf.statistics = !nan_check;
  style.slice = &slice_;
  style.input = config_.input;
  style.output = config_.output;
  style.with_flag =
      nan_check && (tag.kind == EntryTag::Kind::kApi || tag.kind == EntryTag::Kind::kApiBackward);
  const bool debug = tag.kind == EntryTag::Kind::kDebug || tag.kind == EntryTag::Kind::kDebugGrad ||
                     tag.kind == EntryTag::Kind::kDebugSlot;
  style.leaf.hash = config_.evidence == config::Evidence::kFull && !nan_check && !debug &&
                    config_.summary_mode != config::SummaryMode::kHash64;
  if (config_.sketch && !nan_check) {
    style.leaf.hash = true;
    style.leaf.sketch = {static_cast<uint32_t>(config_.sketch_size),
                         static_cast<uint64_t>(config_.sketch_seed)};
  }
  style.from = config_.evidence != config::Evidence::kNone;
  style.reuse = config_.reuse_statistics &&
                config_.summary_mode == config::SummaryMode::kStatistics && !nan_check;
  if ((style.from || style.reuse) && !debug) style.origins = &origins_;
  style.step = init_step_ + loop_;
  const bool overflow_check = config_.task == config::Task::kOverflowCheck;
  const bool save = config_.task == config::Task::kTensor || overflow_check ||
                    (!config_.tensor_list.empty() && filter_.SaveTensors(memory.name));
  if (save) style.tensors = &tensors_;
  // Gradients of parameters and what save() gives are put together from parts; their files are
  // written at once.
  const bool call = tag.kind == EntryTag::Kind::kApi || tag.kind == EntryTag::Kind::kApiBackward ||
                    tag.kind == EntryTag::Kind::kModule ||
                    tag.kind == EntryTag::Kind::kModuleBackward;
  if (overflow_check && !call) style.tensors = nullptr;
  style.hold = save && call && (overflow_check || reference_.has_value());
  style.background = save && call && !style.hold;
  return std::make_unique<Entry>(*this, std::move(memory), tag, style);
}

// ---- APIs
// ------------------------------------------------------------------------------------------

uint32_t CollectorImpl::RegisterApi(std::string prefix, std::string name, Risk risk) {
  const std::lock_guard lock(mutex_);
  std::string bare = prefix + "." + name;
  const auto [it, added] = api_ids_.try_emplace(bare, static_cast<uint32_t>(api_states_.size()));
  if (added) {
    ApiState api;
    api.prefix = bare + ".";
    api.bare = std::move(bare);
    api.risk = risk;
    api.removed = Removed(api, name);
    api_states_.push_back(std::move(api));
  }
  return it->second;
}

std::unique_ptr<EntryBuilder> CollectorImpl::BeginApi(uint32_t api, StackId stack,
                                                      int64_t* number) {
  *number = -1;
  if (!recording()) return nullptr;
  const std::lock_guard lock(mutex_);
  if (!files_.has_value() || api >= api_states_.size()) return nullptr;
  ApiState& state = api_states_[api];
  const int64_t n = state.calls++;
  *number = n;
  state.last_construct = 0;
  EntryTag tag{.kind = EntryTag::Kind::kApi, .id = api, .number = n, .stack = stack};
  tag.epoch = epoch_;
  ThreadState& thread = Thread();
  if (mix_) {
    if (!thread.phases.empty()) tag.phase = thread.phases.back();
    const CallRef parent = thread.forward.empty() ? CallRef{} : thread.forward.back().call;
    tag.parent_module = parent.module;
    tag.parent_number = parent.number;
    if (config_.backward) At(state.parents, n) = parent;
  }
  const bool risk = filter_.RiskPasses(state.risk);
  const bool by_name = filter_.has_list() || filter_.has_scope();
  if (state.removed || (!mix_ && !by_name && !risk)) {
    ++counts_.filtered;
    return nullptr;
  }
  std::string name = ApiName(state, n, Direction::kForward);
  const bool pass = filter_.PassMoment(name, thread.inside_listed > 0, risk);
  if (pass && config_.forward && !structure()) return NewEntry(std::move(name), tag);
  state.last_construct = NoteConstruct(tag, name);
  if (pass && structure()) {
    ++counts_.written;
    files_->NoteStack(stacks_, stack, name);
  } else {
    ++counts_.filtered;
  }
  return nullptr;
}

void CollectorImpl::AbandonApi(uint32_t api, int64_t number) {
  if (abandoned_) return;
  const std::lock_guard lock(mutex_);
  if (number < 0 || api >= api_states_.size()) return;
  ApiState& state = api_states_[api];
  if (state.calls != number + 1) return;
  state.calls = number;
  if (state.parents.size() > static_cast<size_t>(number))
    state.parents.resize(static_cast<size_t>(number));
  if (state.last_construct > 0 && files_.has_value())
    files_->DropLastConstruct(state.last_construct - 1);
  state.last_construct = 0;
}

std::unique_ptr<EntryBuilder> CollectorImpl::BeginApiBackward(uint32_t api, int64_t number) {
  if (abandoned_) return nullptr;
  const std::lock_guard lock(mutex_);
  if (!files_.has_value() || json_failed_ || terminated_ || api >= api_states_.size())
    return nullptr;
  ApiState& state = api_states_[api];
  if (number < 0 || number >= state.calls) return nullptr;  // of an earlier step
  if (state.removed) return ++counts_.filtered, nullptr;
  EntryTag tag{.kind = EntryTag::Kind::kApiBackward,
               .direction = Direction::kBackward,
               .id = api,
               .number = number};
  tag.epoch = epoch_;
  if (static_cast<size_t>(number) < state.parents.size()) {
    tag.parent_module = state.parents[static_cast<size_t>(number)].module;
    tag.parent_number = state.parents[static_cast<size_t>(number)].number;
  }
  std::string name = ApiName(state, number, Direction::kBackward);
  const bool pass =
      filter_.PassMoment(name, Thread().inside_listed > 0, filter_.RiskPasses(state.risk));
  if (pass && config_.backward && !structure()) return NewEntry(std::move(name), tag);
  NoteConstruct(tag, name);
  if (!structure()) ++counts_.filtered;
  return nullptr;
}

bool CollectorImpl::ApiPasses(uint32_t api, int64_t number, Direction direction) {
  if (abandoned_) return false;
  const std::lock_guard lock(mutex_);
  if (api >= api_states_.size()) return false;
  if (!(direction == Direction::kForward ? config_.forward : config_.backward)) return false;
  const ApiState& state = api_states_[api];
  if (state.removed) return false;
  if (!filter_.has_list() && !filter_.has_scope()) return filter_.RiskPasses(state.risk);
  // Where a range or a listed module decides, only the moment itself can tell.
  if (mix_ || !filter_.has_list()) return true;
  return filter_.MayBeListed(ApiName(state, number, direction));
}

void CollectorImpl::EnterPhase(std::string_view name) {
  if (abandoned_) return;
  const std::lock_guard lock(mutex_);
  auto it = std::find(phases_.begin(), phases_.end(), name);
  if (it == phases_.end()) {
    phases_.emplace_back(name);
    phase_noted_.push_back(0);
    it = phases_.end() - 1;
  }
  Thread().phases.push_back(static_cast<uint32_t>(it - phases_.begin()));
}

void CollectorImpl::LeavePhase() {
  if (abandoned_) return;
  const std::lock_guard lock(mutex_);
  ThreadState& thread = Thread();
  if (!thread.phases.empty()) thread.phases.pop_back();
}

uint64_t CollectorImpl::NoteConstruct(const EntryTag& tag, std::string_view name) {
  if (!mix_ || !files_.has_value()) return 0;
  std::string parent;
  if (tag.phase < phases_.size()) {
    parent = phases_[tag.phase];
    if (phase_noted_[tag.phase] == 0) {
      phase_noted_[tag.phase] = 1;
      files_->AppendConstruct(parent, {});
    }
  } else if (tag.parent_module < module_states_.size()) {
    parent = ModuleName({tag.parent_module, tag.parent_number}, tag.direction);
  }
  return files_->AppendConstruct(name, parent) + 1;
}

// ---- modules
// ---------------------------------------------------------------------------------------

uint32_t CollectorImpl::RegisterModule(std::string path, std::string class_name) {
  const std::lock_guard lock(mutex_);
  std::string prefix = "Module.";
  if (!path.empty()) prefix.append(path).append(1, '.');
  prefix.append(class_name).append(1, '.');
  const auto [it, added] =
      module_ids_.try_emplace(prefix, static_cast<uint32_t>(module_states_.size()));
  if (added) {
    ModuleState module;
    module.path = std::move(path);
    module.prefix = std::move(prefix);
    module_states_.push_back(std::move(module));
  }
  return it->second;
}

CallRef CollectorImpl::ParentOf(const ThreadState& thread, const ModuleState& module) const {
  if (!thread.forward.empty()) return thread.forward.back().call;
  const size_t dot = module.path.rfind('.');
  if (dot == std::string::npos) return {};
  const std::string_view above = std::string_view(module.path).substr(0, dot);
  for (auto it = open_calls_.rbegin(); it != open_calls_.rend(); ++it)
    if (module_states_[it->call.module].path == above) return it->call;
  return {};
}

Collector::ModuleCall CollectorImpl::EnterModule(uint32_t module, StackId stack) {
  ModuleCall result{.module = module, .number = -1};
  if (!recording()) return result;
  const std::lock_guard lock(mutex_);
  if (!(modules_ || unit_) || !files_.has_value() || module >= module_states_.size()) return result;
  ModuleState& state = module_states_[module];
  ThreadState& thread = Thread();
  OpenCall open;
  open.call = {module, state.calls++};
  open.token = next_token_++;
  At(state.parents, open.call.number) = ParentOf(thread, state);
  const std::string name = ModuleName(open.call, Direction::kForward);
  bool listed = false;
  const bool pass = filter_.EnterModule(name, thread.inside_listed > 0, &listed);
  open.opened_list = mix_ && listed;
  if (open.opened_list) ++thread.inside_listed;
  thread.forward.push_back(open);
  open_calls_.push_back(open);
  result.number = open.call.number;
  result.token = open.token;
  result.described = pass && config_.forward && !structure();
  if (pass && (result.described || structure())) files_->NoteStack(stacks_, stack, name);
  if (pass && structure())
    ++counts_.written;
  else if (!result.described)
    ++counts_.filtered;
  FlushIfDue();
  return result;
}

void CollectorImpl::CloseCall(ThreadState& thread, const OpenCall& call) {
  if (call.opened_list) --thread.inside_listed;
  std::erase_if(open_calls_, [&](const OpenCall& other) { return other.token == call.token; });
  const std::string name = ModuleName(call.call, Direction::kForward);
  filter_.LeaveModule(name);
  const CallRef parent = At(module_states_[call.call.module].parents, call.call.number);
  files_->AppendConstruct(name,
                          parent.none() ? std::string() : ModuleName(parent, Direction::kForward));
}

void CollectorImpl::LeaveModule(const ModuleCall& call) {
  if (call.token == 0 || abandoned_) return;
  const std::lock_guard lock(mutex_);
  if (!files_.has_value()) return;
  const auto same = [&](const OpenCall& other) { return other.token == call.token; };
  ThreadState* thread = &Thread();
  if (std::none_of(thread->forward.begin(), thread->forward.end(), same)) {
    // Entered on another thread.
    thread = nullptr;
    for (const auto& other : threads_)
      if (std::any_of(other->forward.begin(), other->forward.end(), same)) thread = other.get();
    if (thread == nullptr) return;
  }
  for (bool found = false; !found;) {
    const OpenCall open = thread->forward.back();
    thread->forward.pop_back();
    found = open.token == call.token;
    CloseCall(*thread, open);
  }
  FlushIfDue();
}

std::unique_ptr<EntryBuilder> CollectorImpl::BeginModule(const ModuleCall& call) {
  if (!call.described || abandoned_) return nullptr;
  const std::lock_guard lock(mutex_);
  if (!files_.has_value() || json_failed_ || call.module >= module_states_.size()) return nullptr;
  EntryTag tag{.kind = EntryTag::Kind::kModule, .id = call.module, .number = call.number};
  tag.epoch = epoch_;
  return NewEntry(ModuleName({call.module, call.number}, Direction::kForward), tag);
}

bool CollectorImpl::NoteBackward(CallRef call) {
  if (!files_.has_value() || call.module >= module_states_.size()) return false;
  ModuleState& state = module_states_[call.module];
  if (call.number < 0 || call.number >= state.calls) return false;
  uint8_t& flags = At(state.backward_flags, call.number);
  if ((flags & kNoted) != 0) return true;
  flags |= kNoted;
  const CallRef parent = At(state.parents, call.number);
  files_->AppendConstruct(ModuleName(call, Direction::kBackward),
                          parent.none() ? std::string() : ModuleName(parent, Direction::kBackward));
  return true;
}

void CollectorImpl::EnterModuleBackward(uint32_t module, int64_t number) {
  if (abandoned_) return;
  const std::lock_guard lock(mutex_);
  const CallRef call{module, number};
  if (!NoteBackward(call)) return;
  ThreadState& thread = Thread();
  bool listed = false;
  const bool pass = filter_.EnterModule(ModuleName(call, Direction::kBackward),
                                        thread.inside_listed > 0, &listed);
  uint8_t& flags = At(module_states_[module].backward_flags, number);
  flags = static_cast<uint8_t>((flags & ~kPassed) | kEntered | (pass ? kPassed : 0));
  OpenCall open;
  open.call = call;
  open.opened_list = mix_ && listed;
  if (open.opened_list) ++thread.inside_listed;
  thread.backward.push_back(open);
}

void CollectorImpl::LeaveModuleBackward(uint32_t module, int64_t number) {
  if (abandoned_) return;
  const std::lock_guard lock(mutex_);
  if (!files_.has_value() || module >= module_states_.size()) return;
  // Gradients reach the ends of nested modules in any order, so this is a list more than a stack.
  std::vector<OpenCall>& open = Thread().backward;
  for (size_t k = open.size(); k-- > 0;) {
    if (open[k].call.module != module || open[k].call.number != number) continue;
    if (open[k].opened_list) --Thread().inside_listed;
    open.erase(open.begin() + static_cast<ptrdiff_t>(k));
    break;
  }
  filter_.LeaveModule(ModuleName({module, number}, Direction::kBackward));
}

std::unique_ptr<EntryBuilder> CollectorImpl::BeginModuleBackward(uint32_t module, int64_t number) {
  if (abandoned_) return nullptr;
  const std::lock_guard lock(mutex_);
  const CallRef call{module, number};
  if (json_failed_ || terminated_ || !NoteBackward(call)) return nullptr;
  const uint8_t flags = At(module_states_[module].backward_flags, number);
  std::string name = ModuleName(call, Direction::kBackward);
  const bool pass = (flags & kEntered) != 0
                        ? (flags & kPassed) != 0
                        : filter_.PassMoment(name, Thread().inside_listed > 0, true);
  if (!pass || !config_.backward || structure()) {
    if (!structure()) ++counts_.filtered;
    return nullptr;
  }
  EntryTag tag{.kind = EntryTag::Kind::kModuleBackward,
               .direction = Direction::kBackward,
               .id = module,
               .number = number};
  tag.epoch = epoch_;
  return NewEntry(std::move(name), tag);
}

void CollectorImpl::ParameterGrad(uint32_t module, std::string_view parameter,
                                  const std::function<void(EntryBuilder&)>& describe) {
  std::unique_ptr<Entry> entry;
  {
    if (abandoned_) return;
    const std::lock_guard lock(mutex_);
    if (!files_.has_value() || json_failed_ || terminated_ || module >= module_states_.size() ||
        !wants_parameter_grads())
      return;
    ModuleState& state = module_states_[module];
    GradRound& round = state.grads;
    if (round.first.empty()) {
      round.first = parameter;
    } else if (round.first == parameter) {
      ++round.number;
      round.leaves.clear();
      round.absent.clear();
      round.member = 0;
    }
    std::string name = WithNumber(state.prefix + "parameters_grad.", round.number, {});
    const bool near = state.backward_collected || Thread().inside_listed > 0;
    if (!(filter_.range_open() || state.backward_collected) || !(filter_.Listed(name) || near)) {
      ++counts_.filtered;
      return;
    }
    EntryTag tag{.kind = EntryTag::Kind::kParameterGrad,
                 .direction = Direction::kBackward,
                 .id = module,
                 .number = round.number};
    tag.epoch = epoch_;
    entry = NewEntry(std::move(name), tag);
  }
  entry->BeginFragment(parameter);
  describe(*entry);
  entry->Commit();
}

}  // namespace msprobe::collect
