#include "collect/step_files.h"

#include <fmt/format.h>

#include "base/file.h"
#include "json/json.h"

namespace msprobe::collect {
namespace {

std::string HeadText(const StepHeader& header) {
  std::string head = "{\n \"task\": ";
  json::AppendString(head, header.task);
  head += ",\n \"level\": ";
  json::AppendString(head, header.level);
  head += ",\n \"framework\": \"pytorch\",\n \"dump_data_dir\": ";
  if (header.tensor_dir.has_value())
    json::AppendString(head, *header.tensor_dir);
  else
    head += "null";
  head += ",\n \"data\": {";
  return head;
}

std::string DumpPath(const std::string& folder, const StepHeader& header) {
  return JoinPath(folder, header.debug ? "debug.json" : "dump.json");
}

}  // namespace

// ---- StackBook
// -------------------------------------------------------------------------------------

uint32_t StackBook::Add(std::vector<std::string> frame_lines) {
  Stack stack;
  stack.frames_json = "[";
  for (const std::string& line : frame_lines) {
    if (stack.frames_json.size() > 1) stack.frames_json += ", ";
    json::AppendString(stack.frames_json, line);
  }
  stack.frames_json += ']';
  stacks_.push_back(std::move(stack));
  return static_cast<uint32_t>(stacks_.size() - 1);
}

void StackBook::Note(uint32_t stack, std::string_view entry) {
  if (stack >= stacks_.size()) return;
  std::string& names = stacks_[stack].names_json;
  if (names.empty())
    noted_.push_back(stack);
  else
    names += ", ";
  json::AppendString(names, entry);
}

void StackBook::Drain(dump::GrowingObject& file) {
  for (const uint32_t id : noted_) {
    Stack& stack = stacks_[id];
    file.Append(fmt::format_int(file.members()).c_str(),
                fmt::format("[[{}], {}]", stack.names_json, stack.frames_json));
    stack.names_json.clear();
  }
  noted_.clear();
}

void StackBook::Forget() {
  for (const uint32_t id : noted_) stacks_[id].names_json.clear();
  noted_.clear();
}

// ---- StepFiles
// -------------------------------------------------------------------------------------

Result<StepFiles> StepFiles::Create(const std::string& folder, const StepHeader& header) {
  MSPROBE_ASSIGN(auto dump, dump::GrowingObject::Create(DumpPath(folder, header), HeadText(header),
                                                        "}\n}", 2));
  StepFiles files(std::move(dump));
  if (!header.extra_info || header.debug) return files;
  MSPROBE_ASSIGN(files.stack_,
                 dump::GrowingObject::Create(JoinPath(folder, "stack.json"), "{", "}", 1));
  MSPROBE_ASSIGN(files.construct_,
                 dump::GrowingObject::Create(JoinPath(folder, "construct.json"), "{", "}", 1));
  return files;
}

StepFiles::MemberId StepFiles::AppendEntry(std::string_view name, std::string_view value) {
  return dump_.Append(name, value);
}

bool StepFiles::ReplaceEntry(MemberId member, std::string_view name, std::string_view value) {
  return dump_.Replace(member, name, value);
}

StepFiles::MemberId StepFiles::AppendConstruct(std::string_view child, std::string_view parent) {
  if (!construct_.has_value()) return 0;
  std::string value;
  if (parent.empty())
    value = "null";
  else
    json::AppendString(value, parent);
  return construct_->Append(child, value);
}

bool StepFiles::DropLastConstruct(MemberId member) {
  return construct_.has_value() && construct_->DropLast(member);
}

size_t StepFiles::pending_bytes() const {
  return dump_.pending_bytes() + (construct_.has_value() ? construct_->pending_bytes() : 0);
}

uint64_t StepFiles::bytes() const {
  return dump_.bytes() + (stack_.has_value() ? stack_->bytes() : 0) +
         (construct_.has_value() ? construct_->bytes() : 0);
}

Status StepFiles::Flush(StackBook& stacks) {
  MSPROBE_TRY(dump_.Flush());
  if (stack_.has_value()) {
    stacks.Drain(*stack_);
    MSPROBE_TRY(stack_->Flush());
  }
  if (construct_.has_value()) MSPROBE_TRY(construct_->Flush());
  return {};
}

Status StepFiles::Close(StackBook& stacks, std::string_view footer_json) {
  // The other files first: dump.json may call itself complete only when they are.
  if (stack_.has_value()) {
    stacks.Drain(*stack_);
    MSPROBE_TRY(stack_->Close("}"));
  }
  if (construct_.has_value()) MSPROBE_TRY(construct_->Close("}"));
  return dump_.Close(fmt::format("}},\n \"msprobe\": {}\n}}", footer_json));
}

Status StepFiles::Move(const std::string& folder, const StepHeader& header) {
  MSPROBE_TRY(dump_.Rebase(DumpPath(folder, header), HeadText(header)));
  if (stack_.has_value()) MSPROBE_TRY(stack_->Rebase(JoinPath(folder, "stack.json"), "{"));
  if (construct_.has_value())
    MSPROBE_TRY(construct_->Rebase(JoinPath(folder, "construct.json"), "{"));
  return {};
}

void StepFiles::Abandon() {
  dump_.Abandon();
  if (stack_.has_value()) stack_->Abandon();
  if (construct_.has_value()) construct_->Abandon();
}

}  // namespace msprobe::collect
