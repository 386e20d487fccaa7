// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// What stands behind the handles of xsock.h, and the process's one engine. Private to libxsock.
#pragma once

#include <atomic>
#include <cerrno>
#include <cstddef>
#include <memory>
#include <new>

#include "base/device.hpp"
#include "include/xsock/xsock.h"
#include "transport/clock.hpp"
#include "transport/config.hpp"
#include "transport/fork.hpp"

struct xsock_cq {
    std::unique_ptr<xsock::Cq> cq;
    std::atomic<int> users{0};  // endpoints, listeners
    std::uint32_t generation = xsock::process_generation();
};
struct xsock_srq {
    std::unique_ptr<xsock::Srq> srq;
    std::atomic<int> users{0};
    std::uint32_t generation = xsock::process_generation();
};
struct xsock_pd {
    xsock::PdId id = 0;
    std::atomic<int> users{0};
    std::uint32_t generation = xsock::process_generation();
};
struct xsock_mr {
    std::uint32_t stag = 0;
    xsock::RegionAttr attr;
    xsock_pd* pd = nullptr;
    std::uint32_t generation = xsock::process_generation();
};

namespace xsock::api {

/// Keeps what an endpoint or listener refers to from being destroyed.
class Uses {
  public:
    Uses() = default;
    explicit Uses(const xsock_ep_attr& attr);
    Uses(Uses&& other) noexcept;
    Uses& operator=(Uses&&) = delete;
    ~Uses();
    /// A second holder of the same.
    [[nodiscard]] Uses again() const;

  private:
    void count(int by) noexcept;
    xsock_cq* cqs_[2] = {};
    xsock_srq* srq_ = nullptr;
    xsock_pd* pd_ = nullptr;
};

}  // namespace xsock::api

struct xsock_ep {
    std::unique_ptr<xsock::Qp> qp;
    xsock::api::Uses uses;
    std::uint16_t ird = 16, ord = 16;  // for a deferred Reply
    bool lent = false;                 // of a socket in DDPMODE: xsock_fd_endpoint()
    std::uint32_t generation = xsock::process_generation();
};
struct xsock_listener {
    std::unique_ptr<xsock::Listener> listener;
    xsock::api::Uses uses;
    std::uint16_t ird = 16, ord = 16;
    int port = 0;
    std::uint32_t generation = xsock::process_generation();
};

namespace xsock::api {

/// The device of this process, made on first use (a forked child makes its own); null with errno.
Device* device() noexcept;
const TransportConfig& transport_config() noexcept;
/// Sends what is queued on all connections of this process, for at most `timeout_ms` (negative: as
/// long as exit() waits). Ends none.
void flush_device(int timeout_ms) noexcept;
/// False for what a process made from which this one was forked; then errno is EPERM.
template <typename Object>
bool usable(const Object* object) noexcept {
    if (object->generation == process_generation()) return true;
    report_inherited("an object of xsock.h");
    errno = EPERM;
    return false;
}

/// -1 with errno.
inline int fail(int error) noexcept {
    errno = error;
    return -1;
}
inline int finish(const Result<void>& result) noexcept {
    return result ? 0 : fail(result.error().code);
}

/// Absolute limit for a timeout_ms: kNever when negative, 0 when 0.
inline Time deadline_of(int timeout_ms) noexcept {
    if (timeout_ms < 0) return kNever;
    if (timeout_ms == 0) return 0;
    return time_after(monotonic_now(), Time{static_cast<unsigned>(timeout_ms)} * kMillisecond);
}

/// Runs `f`, turning an exception (memory) into ENOMEM and `failed`.
template <typename T, typename F>
T guarded(T failed, F&& f) noexcept {
    try {
        return f();
    } catch (const std::bad_alloc&) {
        errno = ENOMEM;
    } catch (...) {
        errno = EIO;
    }
    return failed;
}

/// The caller's structure, widened to ours with zeros: an older, smaller one is fine; a larger one
/// only if what we do not know is zero. EINVAL otherwise.
template <typename T>
bool widen(const T* given, T& out) noexcept {
    out = T{};
    out.size = sizeof(T);
    if (given == nullptr) return true;
    if (given->size < sizeof(std::size_t) || given->size > 65536) {
        errno = EINVAL;
        return false;
    }
    const auto* octets = reinterpret_cast<const unsigned char*>(given);
    for (std::size_t i = sizeof(T); i < given->size; ++i) {
        if (octets[i] != 0) {
            errno = EINVAL;
            return false;
        }
    }
    const std::size_t known = given->size < sizeof(T) ? given->size : sizeof(T);
    __builtin_memcpy(&out, given, known);
    out.size = sizeof(T);
    return true;
}

}  // namespace xsock::api
