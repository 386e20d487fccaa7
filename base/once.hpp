// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// A value that is worked out when it is first asked for.
#pragma once

#include <atomic>
#include <mutex>
#include <type_traits>

namespace xsock {

/// For a `static constinit` variable, instead of a static local with an initialiser: the guard of
/// such a one a child that was forked while another thread initialised it would find taken for
/// ever. Here the child begins anew. Any thread.
template <typename T>
class Once {
    static_assert(std::is_trivially_destructible_v<T>);

  public:
    constexpr Once() = default;
    Once(const Once&) = delete;
    Once& operator=(const Once&) = delete;

    /// What `make()` answers to the first caller. It must not ask again from inside.
    template <typename F>
    T& get(F&& make) {
        if (!made_.load(std::memory_order_acquire)) [[unlikely]] {
            std::call_once(once_, [&] {
                value_ = make();
                made_.store(true, std::memory_order_release);
            });
        }
        return value_;
    }

  private:
    std::once_flag once_;
    std::atomic<bool> made_{false};
    T value_{};
};

}  // namespace xsock
