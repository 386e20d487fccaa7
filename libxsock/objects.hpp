// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// What stands behind the handles of xsock.h, and the process's one engine. Private to libxsock.
#pragma once

#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <memory>
#include <new>

#include "base/device.hpp"
#include "include/xsock/xsock.h"
#include "libxsock/engine/runtime.hpp"
#include "transport/at_rest.hpp"
#include "transport/clock.hpp"
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
class ObjectRefs {
  public:
    ObjectRefs() = default;
    explicit ObjectRefs(const xsock_ep_attr& attr);
    ObjectRefs(ObjectRefs&& other) noexcept;
    ObjectRefs& operator=(ObjectRefs&&) = delete;
    ~ObjectRefs();
    /// A second holder of the same.
    [[nodiscard]] ObjectRefs again() const;

  private:
    void count(int by) noexcept;
    xsock_cq* cqs_[2] = {};
    xsock_srq* srq_ = nullptr;
    xsock_pd* pd_ = nullptr;
};

}  // namespace xsock::api

struct xsock_ep {
    std::unique_ptr<xsock::Qp> qp;
    xsock::api::ObjectRefs refs;
    std::uint16_t ird = xsock::kDefaultReads, ord = xsock::kDefaultReads;  // for a deferred Reply
    bool borrowed = false;  // of a socket in DDPMODE: xsock_fd_endpoint()
    std::uint32_t generation = xsock::process_generation();
};
struct xsock_listener {
    std::unique_ptr<xsock::Listener> listener;
    xsock::api::ObjectRefs refs;
    std::uint16_t ird = xsock::kDefaultReads, ord = xsock::kDefaultReads;
    int port = 0;
    std::uint32_t generation = xsock::process_generation();
};

namespace xsock::api {

using runtime::device;

/// False for what a process made from which this one was forked; then errno is EPERM.
template <typename Object>
bool same_process(const Object* object) noexcept {
    if (object->generation == process_generation()) return true;
    report_inherited("an object of xsock.h");
    errno = EPERM;
    return false;
}

/// May a call use it? False for none (EINVAL) and for one of another process (EPERM).
template <typename Object>
bool usable(const Object* object) noexcept {
    if (object != nullptr) return same_process(object);
    errno = EINVAL;
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

inline int finish(Result<int> fd) noexcept { return fd ? *fd : fail(fd.error().code); }

/// A handle of `made`; nullptr with errno where nothing was made.
template <typename Handle, typename T>
Handle* handle_of(Result<std::unique_ptr<T>>&& made) {
    if (made) return new Handle{std::move(*made)};
    errno = made.error().code;
    return nullptr;
}

/// Deletes what counts its users; EBUSY while there are any.
template <typename Handle>
int destroy_unused(Handle* handle) noexcept {
    if (!usable(handle)) return -1;
    if (handle->users.load() != 0) return fail(EBUSY);
    delete handle;
    return 0;
}

/// Absolute limit for a timeout_ms: kNever when negative, 0 when 0.
inline Time deadline_of(int timeout_ms) noexcept {
    if (timeout_ms < 0) return kNever;
    if (timeout_ms == 0) return 0;
    return time_after(monotonic_now(), Time{static_cast<unsigned>(timeout_ms)} * kMillisecond);
}

/// Runs `f`, turning an exception (memory) into ENOMEM and `failed`. Behind it no lock is held.
template <typename T, typename F>
T guarded(T failed, F&& f) noexcept {
    try {
        const T result = f();
        raise_deferred();
        return result;
    } catch (const std::bad_alloc&) {
        errno = ENOMEM;
    } catch (...) {
        errno = EIO;
    }
    return failed;
}

/// What a connection negotiated and how it does, in a public structure (xsock_ep_info,
/// xsock_status) whose members have the same names.
template <typename T>
void fill_info(T& out, const QpInfo& from) noexcept {
    out.error = from.error;
    out.mpa_revision = from.negotiated.revision;
    out.crc = from.negotiated.crc;
    out.markers_tx = from.negotiated.markers_tx;
    out.markers_rx = from.negotiated.markers_rx;
    out.peer_is_xsock = from.negotiated.peer_is_xsock;
    out.initiator = from.negotiated.initiator;
    out.ird = from.ird;
    out.ord = from.ord;
    out.mulpdu = static_cast<std::uint32_t>(from.mulpdu);
    out.tx_bytes = from.tx_bytes;
    out.rx_bytes = from.rx_bytes;
    std::strncpy(out.error_text, from.error_text.c_str(), sizeof out.error_text - 1);
    static_assert(XSOCK_PATH_TCP == static_cast<int>(DataPath::tcp) &&
                  XSOCK_PATH_SHM == static_cast<int>(DataPath::shm));
    out.path = static_cast<std::uint32_t>(from.path);
    std::strncpy(out.shm_reason, shm::name_of(from.shm_reason), sizeof out.shm_reason - 1);
    out.placing.stack = from.kernel_places ? XSOCK_STACK_KERNEL : XSOCK_STACK_USER;
    std::strncpy(out.placing.reason, kernel::name_of(from.kernel_reason),
                 sizeof out.placing.reason - 1);
    out.placing.early_bytes = from.placed_early;
}

/// The caller's structure, widened to ours with zeros: an older, smaller one is fine; a larger one
/// only if what we do not know is zero. EINVAL otherwise.
template <typename T>
bool copy_versioned(const T* given, T& out) noexcept {
    out = T{};
    out.size = sizeof(T);
    if (given == nullptr) return true;
    if (given->size < sizeof(std::size_t) || given->size > 65536) {
        errno = EINVAL;
        return false;
    }
    const auto* bytes = reinterpret_cast<const unsigned char*>(given);
    for (std::size_t i = sizeof(T); i < given->size; ++i) {
        if (bytes[i] != 0) {
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
