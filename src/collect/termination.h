// What is recorded reaches the files before SIGTERM ends the process (decisions.md 8).
#pragma once

#include <functional>

namespace msprobe::collect {

// Runs `flush` when SIGTERM arrives, then lets the signal do what it did before. Only where nobody
// else handles the signal: a handler that the program has, or installs later, stays alone in force.
// It runs on a thread of its own, so that a program that hangs in a call can still be ended, and is
// waited for at most ten seconds. `key` names it; an empty one takes it away (and waits while it
// runs).
void FlushAtTermination(const void* key, std::function<void()> flush);

// In a forked child, which has no such thread: the signal is the default again.
void ForgetTerminationInChild();

}  // namespace msprobe::collect
