// Exit statuses (decisions.md 1).
#pragma once

#include "base/error.h"

namespace msprobe::cli {

constexpr int kDone = 0;
constexpr int kFailed = 1;   // work began but failed, or was done only in part
constexpr int kRefused = 2;  // refused before any work
constexpr int kFailOn = 3;   // --fail-on reached
constexpr int kSignalBase = 128;

// Status for an error that ended a command.
inline int StatusOf(const Error& error) {
  switch (error.code) {
    case ErrorCode::kNothingToDo:
    case ErrorCode::kIo:
    case ErrorCode::kNoSpace:
    case ErrorCode::kInternal:
      return kFailed;
    case ErrorCode::kCancelled:
      return kSignalBase + 2;
    default:
      return kRefused;
  }
}

}  // namespace msprobe::cli
