// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The state of the verbs API of a process: its thread, and which of the handles that
// the program holds are alive. Made on first need and never destroyed. A forked child begins anew:
// the parent's handles are unknown to it, and nothing it does reaches the parent's connections.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <new>
#include <optional>
#include <unordered_map>

#include "base/device.hpp"
#include "transport/event_fd.hpp"
#include "verbs/gid_table.hpp"
#include "verbs/loop.hpp"
#include "verbs/objects.hpp"
#include "verbs/qp_numbers.hpp"

namespace xsock::verbs {

enum class Kind : std::uint8_t {
    context,
    pd,
    td,
    mr,
    mw,
    ah,
    channel,
    cq,
    srq,
    qp,
    cm_channel,
    cm_id,
    cm_id_ending,  ///< in rdma_destroy_id(), which waits for acknowledgements
    cm_event,
    cm_event_reserved,  ///< not told yet
};

class GidRendezvous;

/// What the library has made for itself, on first need.
struct OwnObjects {
    ibv_context* context = nullptr;  ///< of ids
    ibv_pd* pd = nullptr;            ///< of ids that were given none
    ibv_pd* stand_in_pd = nullptr;   ///< of connections without a queue pair: cm_stand_in.hpp
    ibv_cq* stand_in_cq = nullptr;   ///< the same
};

class VerbsState {
  public:
    explicit VerbsState(Device& device) noexcept;
    ~VerbsState();
    /// Null with errno when it cannot be made.
    static VerbsState* get() noexcept;
    /// The engine if there is one already.
    static VerbsState* current() noexcept;

    /// Guards everything below and every object of this API. Not taken inside pollers.
    std::mutex mutex;
    std::condition_variable acknowledged;  ///< an event that the program had got was given back

    [[nodiscard]] Device& device() noexcept { return device_; }
    /// Made on first use. Throws std::bad_alloc when there is none.
    Loop& loop();

    // Programs free things twice, or what they never made: such handles are not followed.
    void add(const void* handle, Kind kind) { alive_.emplace(handle, kind); }
    void remove(const void* handle) noexcept { alive_.erase(handle); }
    /// @pre the handle is there
    void turn(const void* handle, Kind kind) noexcept { alive_.find(handle)->second = kind; }
    [[nodiscard]] bool alive(const void* handle, Kind kind) const noexcept {
        const auto found = alive_.find(handle);
        if (found != alive_.end() && found->second == kind) return true;
        report_if_inherited(handle);
        return false;
    }

    [[nodiscard]] std::uint64_t next_number() noexcept { return ++numbers_; }

    std::unordered_map<std::uint32_t, Qp*> qps;    // by number
    std::unordered_map<std::uint64_t, Srq*> srqs;  // by Srq::id
    /// How many MRs have an iova that is not their address. Read by posters without the mutex.
    std::atomic<int> regions_elsewhere{0};
    std::unordered_map<std::uint32_t, Mr*> mrs;  // by lkey

    /// CQs by Cq::id, for notifiers: a mutex of its own, taken inside pollers.
    std::mutex notify_mutex;
    std::unordered_map<std::uint64_t, Cq*> notified;

    Time spin = 0;                 ///< XSOCK_SPIN_US: a caller polls for so long before it sleeps
    Time rnr_timeout = kSecond;    ///< XSOCK_RNR_MS
    std::size_t max_starting = 0;  ///< XSOCK_MAX_STARTING: Requests being read, for each listener
    /// XSOCK_VERBS_ACK: do completions wait for the peer? `as_usual`: of QPs that GIDs connect.
    enum class Acknowledge : std::uint8_t { as_usual, never, always } acknowledge;

    bool crc = true;      ///< XSOCK_VERBS_CRC: asked for; a peer that asks for them gets them
    int port_offset = 0;  ///< XSOCK_VERBS_PORT_OFFSET: what TCP's ports are more than rdma_cm's

    // What the exit summary tells.
    bool summary = false;  ///< XSOCK_VERBS_SUMMARY
    std::uint64_t connections = 0, refused = 0, errors = 0, tx_bytes = 0, rx_bytes = 0;

    /// In a poller: completion queues have overrun. Their QPs end soon, by the loop's thread.
    void on_overrun() noexcept;
    /// The QPs of completion queues that have overrun end, and IBV_EVENT_QP_FATAL is told of each.
    void end_overrun_qps();

    /// A message to the program's asynchronous event descriptor.
    void raise(Context& context, const ibv_async_event& event);
    OwnObjects own;

    /// That of the device, valid until the next call. Throws std::bad_alloc.
    [[nodiscard]] const GidTable& gids() { return gids_.get(); }
    QpNumbers qp_numbers;
    /// Null: QPs are connected by rdma_cm only. Else on the RoCE-like device, or XSOCK_VERBS_GID.
    std::unique_ptr<GidRendezvous> rendezvous;

  private:
    static void begin_in_child();
    void close_inherited() noexcept;
    static void report_if_inherited(const void* handle) noexcept;
    void on_device_events();
    void handle(const AsyncEvent& event);

    Device& device_;  ///< of the process: libxsock/engine/runtime.hpp
    std::unique_ptr<Loop> loop_;
    int loop_watches_ = 0;                 ///< that are set up, of two
    EventFd wake_;                         ///< wakes the loop for what its descriptors do not tell
    std::optional<AsyncEvent> unhandled_;  ///< for want of memory; comes before the device's next
    std::unordered_map<const void*, Kind> alive_;
    std::uint64_t numbers_ = 0;
    DeviceGids gids_;
};

/// A handle in the table while it is made; it stays there once keep() was called. Made first: what
/// else is made for the handle needs no undoing when the table finds no memory.
class Registration {
  public:
    Registration(VerbsState& engine, const void* handle, Kind kind)
        : engine_(engine), handle_(handle) {
        engine.add(handle, kind);
    }
    ~Registration() {
        if (handle_ != nullptr) engine_.remove(handle_);
    }
    Registration(const Registration&) = delete;
    Registration& operator=(const Registration&) = delete;
    void keep() noexcept { handle_ = nullptr; }

  private:
    VerbsState& engine_;
    const void* handle_;
};

/// Runs `f` with the engine's mutex held; an exception (memory) becomes `out_of_memory`.
template <typename T, typename F>
T locked(T failed, T out_of_memory, F&& f) noexcept {
    VerbsState* const engine = VerbsState::get();
    if (engine == nullptr) return failed;
    try {
        const std::lock_guard lock(engine->mutex);
        return f(*engine);
    } catch (const std::exception&) {
        errno = ENOMEM;
        return out_of_memory;
    }
}
/// For functions that return an errno.
template <typename F>
int locked_errno(F&& f) noexcept {
    return locked<int>(EPERM, ENOMEM, f);
}
/// For functions that return -1 and errno.
template <typename F>
int locked_cm(F&& f) noexcept {
    return locked<int>(-1, -1, f);
}
template <typename T, typename F>
T* locked_object(F&& f) noexcept {
    return locked<T*>(nullptr, nullptr, f);
}

// Functions of the table, by their names without the prefix. Those that other files of the API
// call with the mutex already held have a `_locked` twin below.
#define XSOCK_VERBS_DECLARE(prefix, type, name, failed, parameters, arguments) \
    type name parameters noexcept;
XSOCK_VERBS_PRIVATE_FUNCTIONS(XSOCK_VERBS_DECLARE)
XSOCK_IBV_FUNCTIONS(XSOCK_VERBS_DECLARE)
namespace cm {
XSOCK_RDMA_FUNCTIONS(XSOCK_VERBS_DECLARE)
XSOCK_RDMA_WAITING_FUNCTIONS(XSOCK_VERBS_DECLARE)
}  // namespace cm
#undef XSOCK_VERBS_DECLARE

}  // namespace xsock::verbs
