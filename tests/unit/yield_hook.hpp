// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// What happens while a thread has yielded the processor, chosen by a test: in a program that
// includes this, sched_yield() is ours.
#pragma once

#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <functional>
#include <utility>

namespace xsock::test {

/// The calling thread's calls of sched_yield(), while it lives: how many there were, and what each
/// does instead. One at a time in a thread.
class YieldHook {
  public:
    explicit YieldHook(std::function<void()> meanwhile = [] {}) : meanwhile_(std::move(meanwhile)) {
        current() = this;
    }
    ~YieldHook() { current() = nullptr; }
    YieldHook(const YieldHook&) = delete;
    YieldHook& operator=(const YieldHook&) = delete;

    int yields = 0;

    /// False: there is none.
    static bool yielded() {
        YieldHook* const hook = current();
        if (hook == nullptr) return false;
        ++hook->yields;
        hook->meanwhile_();
        return true;
    }

  private:
    static YieldHook*& current() noexcept {
        static thread_local YieldHook* hook = nullptr;
        return hook;
    }
    std::function<void()> meanwhile_;
};

}  // namespace xsock::test

extern "C" [[gnu::used]] inline int sched_yield() noexcept {
    return xsock::test::YieldHook::yielded() ? 0 : static_cast<int>(syscall(SYS_sched_yield));
}
