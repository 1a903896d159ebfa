// What becomes of described entries: filing, tensor files in the background, the quotas of checks.
#include <fmt/format.h>

#include <algorithm>

#include "collect/collector_impl.h"
#include "json/json.h"

namespace msprobe::collect {
namespace {

constexpr size_t kPoolSize = 64;
constexpr int64_t kOverflowsNamed = 20;

}  // namespace

void CollectorImpl::Finish(Entry& entry, bool commit) {
  if (abandoned_) return;
  const std::lock_guard lock(mutex_);
  const EntryTag& tag = entry.tag();
  if (tag.epoch == epoch_ && files_.has_value()) {
    if (commit) {
      File(entry);
    } else if (tag.kind == EntryTag::Kind::kApi) {
      ApiState& api = api_states_[tag.id];
      if (api.calls == tag.number + 1) api.calls = tag.number;
    }
  }
  if (pool_.size() < kPoolSize) pool_.push_back(entry.TakeMemory());
}

void CollectorImpl::File(Entry& entry) {
  counts_.failed += entry.failed_leaves();
  if (json_failed_) {
    ++counts_.failed;
    return;
  }
  switch (entry.tag().kind) {
    case EntryTag::Kind::kParameterGrad:
      FileGrad(entry);
      break;
    case EntryTag::Kind::kDebugGrad:
      FileDebugGrads(entry);
      break;
    case EntryTag::Kind::kDebugSlot:
      FileDebugSlot(entry);
      break;
    default:
      FileEntry(entry);
  }
  CountNonFinite(entry);
  CountDifferences(entry.name());
  FlushIfDue();
}

void CollectorImpl::PutMember(uint64_t& member, std::string_view name, std::string_view value,
                              std::string_view journal_value) {
  // What came before is replaced while it is still in memory; once it is in the file, the later one
  // is appended (readers take the last).
  if (member > 0 && files_->ReplaceEntry(member - 1, name, value, journal_value)) return;
  if (member == 0) ++counts_.written;
  member = files_->AppendEntry(name, value, journal_value) + 1;
}

void CollectorImpl::FileEntry(Entry& entry) {
  const EntryTag& tag = entry.tag();
  const bool api = tag.kind == EntryTag::Kind::kApi || tag.kind == EntryTag::Kind::kApiBackward;
  uint64_t none = 0;
  uint64_t* member = &none;
  if (tag.kind == EntryTag::Kind::kApiBackward)
    member = &At(api_states_[tag.id].backward_members, tag.number);
  if (tag.kind == EntryTag::Kind::kModuleBackward) {
    ModuleState& module = module_states_[tag.id];
    module.backward_collected = true;
    member = &At(module.backward_members, tag.number);
  }
  if (api && *member == 0) NoteConstruct(tag, entry.name());
  const bool unwanted = config_.task == config::Task::kOverflowCheck && !entry.non_finite();
  if (!entry.has_parts() || unwanted) {
    ++counts_.filtered;
    return;
  }
  if (tag.kind == EntryTag::Kind::kApi) files_->NoteStack(stacks_, tag.stack, entry.name());
  std::vector<EntryFile> files = entry.TakeFiles();
  if (files.empty()) return PutMember(*member, entry.name(), entry.text(), entry.text());
  // A record never names a file that is not complete: until the files are, the journal has the
  // entry without them, and nothing is flushed.
  PutMember(*member, entry.name(), entry.text(),
            WithoutFileNames(entry.text(), [](std::string_view) { return false; }));
  waiting_.push_back({*member - 1, entry.name(), entry.text().substr(0, entry.body_size()),
                      entry.absent(), std::move(files)});
  SettleFiles();
}

// ---- tensor files on their way
// ---------------------------------------------------------------------------------

void CollectorImpl::SettleFiles() {
  while (!waiting_.empty()) {
    WaitingEntry& entry = waiting_.front();
    if (entry.files.back().ticket > tensors_.finished()) return;
    Settle(entry);
    waiting_.pop_front();
  }
}

void CollectorImpl::Settle(WaitingEntry& entry) {
  std::vector<std::string_view> missing;
  for (const EntryFile& file : entry.files) {
    const std::optional<Error> error = tensors_.TakeFailure(file.ticket);
    if (!error.has_value()) continue;
    missing.push_back(file.name);
    ++counts_.failed;
    if (!entry.absent.empty()) entry.absent += ", ";
    json::AppendString(entry.absent, file.path);
    entry.absent += ": ";
    AppendAbsent(entry.absent, Absent::kWriteFailed, error->ToString());
  }
  // A later entry of the same call takes this one's place.
  if (std::any_of(waiting_.begin() + 1, waiting_.end(),
                  [&](const WaitingEntry& other) { return other.member == entry.member; }))
    return;
  std::string text = std::move(entry.body);
  if (!missing.empty()) {
    text = WithoutFileNames(text, [&](std::string_view name) {
      return std::find(missing.begin(), missing.end(), name) == missing.end();
    });
  }
  if (!entry.absent.empty()) text += ", \"absent\": {" + entry.absent + "}";
  text += '}';
  if (missing.empty())
    files_->JournalEntry(entry.name, text);
  else
    files_->ReplaceEntry(entry.member, entry.name, text, text);
}

bool CollectorImpl::WantsHeldFiles(const Entry& entry) {
  if (config_.task == config::Task::kOverflowCheck) return entry.non_finite();
  const std::lock_guard lock(mutex_);
  if (!reference_.has_value() || terminated_) return false;
  std::string where;
  switch (reference_->Compare(entry.name(), entry.text(), &where)) {
    case Reference::Answer::kUnknown:
      ++reference_counts_.unknown;
      return false;
    case Reference::Answer::kInputs:
      ++reference_counts_.inputs;
      return false;
    case Reference::Answer::kEqual:
      ++reference_counts_.equal;
      return false;
    case Reference::Answer::kDifferent:
      break;
  }
  ++reference_counts_.different;
  log_.Warning(fmt::format(
      "{}: all inputs are those of the dump in bench_path, {} is not; its tensors are saved",
      entry.name(), where));
  return true;
}

void CollectorImpl::CountDifferences(std::string_view name) {
  if (!reference_.has_value() || config_.diff_nums < 0 ||
      reference_counts_.different < static_cast<uint64_t>(config_.diff_nums))
    return;
  End(fmt::format("{} {} from the dump in bench_path (the last one is {})",
                  reference_counts_.different,
                  reference_counts_.different == 1 ? "call differs" : "calls differ", name));
}

// The quota of a check is used up.
void CollectorImpl::End(const std::string& why) {
  if (terminated_) return;
  terminated_ = true;
  recording_ = false;
  FlushNow();
  log_.Info(fmt::format("{}: msprobe ends successfully.", why));
}

void CollectorImpl::FileGrad(Entry& entry) {
  if (config_.task == config::Task::kOverflowCheck && !entry.non_finite()) {
    ++counts_.filtered;
    return;
  }
  GradRound& round = module_states_[entry.tag().id].grads;
  if (round.number != entry.tag().number) return;
  const std::string& value = entry.text();
  std::string leaf = value.starts_with('[') ? value : "[" + value + "]";
  std::string parameter(entry.fragment_path());
  const auto it = std::find_if(round.leaves.begin(), round.leaves.end(),
                               [&](const auto& item) { return item.first == parameter; });
  if (it != round.leaves.end())
    it->second = std::move(leaf);
  else
    round.leaves.emplace_back(std::move(parameter), std::move(leaf));
  if (!entry.absent().empty()) {
    if (!round.absent.empty()) round.absent += ", ";
    round.absent += entry.absent();
  }
  std::string text = "{";
  for (const auto& [name, json] : round.leaves) {
    if (text.size() > 1) text += ", ";
    json::AppendString(text, name);
    text += ": ";
    text += json;
  }
  if (!round.absent.empty()) text += ", \"absent\": {" + round.absent + "}";
  text += '}';
  PutMember(round.member, entry.name(), text, text);
}

void CollectorImpl::CountNonFinite(const Entry& entry) {
  const bool overflow_check = config_.task == config::Task::kOverflowCheck;
  if (!overflow_check && config_.task != config::Task::kNanCheck) return;
  if (!(overflow_check ? entry.non_finite() : entry.non_finite_output())) return;
  ++overflows_;
  if (overflow_check && overflows_ <= kOverflowsNamed) {
    log_.Warning(
        fmt::format("{}: an infinity or NaN was found{}", entry.name(),
                    overflows_ == kOverflowsNamed ? "; further ones are counted only" : ""));
  }
  if (config_.overflow_nums < 0 || overflows_ < config_.overflow_nums) return;
  End(fmt::format("found {} {} with infinities or NaN", overflows_,
                  overflows_ == 1 ? "entry" : "entries"));
}

}  // namespace msprobe::collect
