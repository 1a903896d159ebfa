// Level debug: variables that the script saves by name, and their gradients (dump.md 14.3).
#include <fmt/format.h>

#include <algorithm>

#include "collect/collector_impl.h"

namespace msprobe::collect {
namespace {

std::string DebugName(std::string_view name, std::string_view suffix, int64_t number) {
  return fmt::format("{}{}.{}.debug", name, suffix, number);
}

// The text with each leaf that has arrived in the place of its null.
std::string Filled(const DebugGrads& grads) {
  std::string text;
  size_t from = 0;
  for (size_t k = 0; k < grads.slots.size(); ++k) {
    if (grads.leaves[k].empty()) continue;
    text.append(grads.text, from, grads.slots[k].at - from).append(grads.leaves[k]);
    from = grads.slots[k].at + std::string_view("null").size();
  }
  return text.append(grads.text, from);
}

}  // namespace

std::unique_ptr<EntryBuilder> CollectorImpl::BeginDebug(std::string_view name,
                                                        const StartOptions& options,
                                                        int64_t* number) {
  *number = -1;
  if (!debug_ || abandoned_) return nullptr;
  const std::lock_guard lock(mutex_);
  const bool task_fits =
      config_.task == config::Task::kStatistics || config_.task == config::Task::kTensor;
  if (!task_fits || json_failed_ || !StepIsWanted() || !DecideRank(options)) return nullptr;
  if (!files_.has_value() && !TryOpenStep()) return nullptr;
  *number = debug_numbers_[std::string(name)]++;
  EntryTag tag{.kind = EntryTag::Kind::kDebug, .number = *number};
  tag.epoch = epoch_;
  return NewEntry(DebugName(name, "", *number), tag);
}

std::unique_ptr<EntryBuilder> CollectorImpl::BeginDebugGrad(std::string_view name, int64_t number) {
  if (!debug_ || abandoned_) return nullptr;
  const std::lock_guard lock(mutex_);
  if (!files_.has_value() || json_failed_ || number < 0) return nullptr;
  EntryTag tag{.kind = EntryTag::Kind::kDebugGrad, .number = number};
  tag.epoch = epoch_;
  return NewEntry(DebugName(name, "_grad", number), tag);
}

void CollectorImpl::FileDebugGrads(Entry& entry) {
  if (!entry.has_parts()) return;
  DebugGrads grads;
  grads.text = entry.text();
  grads.slots = entry.TakeSlots();
  grads.leaves.resize(grads.slots.size());
  grads.missing = grads.slots.size();
  if (grads.missing == 0)
    PutMember(grads.member, entry.name(), grads.text, grads.text);
  else
    files_->JournalEntry(entry.name(), grads.text);
  debug_order_.push_back(entry.name());
  debug_grads_.insert_or_assign(entry.name(), std::move(grads));
}

void CollectorImpl::DebugGrad(std::string_view name, int64_t number, uint32_t slot,
                              const std::function<void(EntryBuilder&)>& describe) {
  std::unique_ptr<Entry> entry;
  std::string path;
  {
    if (!debug_ || abandoned_) return;
    const std::lock_guard lock(mutex_);
    if (!files_.has_value() || json_failed_) return;
    std::string entry_name = DebugName(name, "_grad", number);
    const auto it = debug_grads_.find(entry_name);
    if (it == debug_grads_.end() || slot >= it->second.slots.size()) return;
    path = it->second.slots[slot].path;
    EntryTag tag{.kind = EntryTag::Kind::kDebugSlot, .id = slot, .number = number};
    tag.epoch = epoch_;
    entry = NewEntry(std::move(entry_name), tag);
  }
  entry->BeginFragment(path);
  describe(*entry);
  entry->Commit();
}

void CollectorImpl::FileDebugSlot(Entry& entry) {
  const auto it = debug_grads_.find(entry.name());
  if (it == debug_grads_.end()) return;
  DebugGrads& grads = it->second;
  std::string& leaf = grads.leaves[entry.tag().id];
  if (leaf.empty()) --grads.missing;
  leaf = entry.text();
  // A value that is not complete yet is written at the end of the step, so that it is in the file
  // once.
  const std::string text = Filled(grads);
  if (grads.missing == 0)
    PutMember(grads.member, entry.name(), text, text);
  else
    files_->JournalEntry(entry.name(), text);
}

void CollectorImpl::WriteDebugGrads() {
  for (const std::string& name : debug_order_) {
    DebugGrads& grads = debug_grads_[name];
    if (grads.member > 0) continue;
    const std::string text = Filled(grads);
    PutMember(grads.member, name, text, text);
  }
}

}  // namespace msprobe::collect
