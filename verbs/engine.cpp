// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "verbs/engine.hpp"

#include <unistd.h>

#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <optional>

#include "libxsock/engine/runtime.hpp"
#include "transport/clock.hpp"
#include "transport/fork.hpp"
#include "transport/log.hpp"
#include "verbs/cm.hpp"
#include "verbs/datagram_qp.hpp"
#include "verbs/device_profile.hpp"
#include "verbs/gid_rendezvous.hpp"
#include "verbs/ops.hpp"

namespace xsock::verbs {
namespace {

constexpr Time kExitLock = kSecond / 4;  // for the summary's sake

std::mutex making;
std::atomic<VerbsState*> the_engine{nullptr};
// In a forked child the parent's, which is only asked what it had; null where a thread of the
// parent was changing it.
VerbsState* parents_engine = nullptr;

// Environment variables that are 0 or 1; nothing: unset, or neither.
std::optional<bool> switch_named(const char* name) noexcept {
    const char* const value = std::getenv(name);
    if (value == nullptr || *value == '\0') return std::nullopt;
    if ((*value == '0' || *value == '1') && value[1] == '\0') return *value == '1';
    log(LogLevel::error, "bad-setting", "%s=%s is neither 0 nor 1; ignored", name, value);
    return std::nullopt;
}

VerbsState::Acknowledge acknowledge_wanted() noexcept {
    const auto wanted = switch_named("XSOCK_VERBS_ACK");
    if (!wanted) return VerbsState::Acknowledge::as_usual;
    return *wanted ? VerbsState::Acknowledge::always : VerbsState::Acknowledge::never;
}

int port_offset_wanted() noexcept {
    const char* const value = std::getenv("XSOCK_VERBS_PORT_OFFSET");
    if (value == nullptr || *value == '\0') return 0;
    int offset = 0;
    const char* const end = value + std::strlen(value);
    const auto [rest, error] = std::from_chars(value, end, offset);
    if (error == std::errc{} && rest == end && offset >= -65534 && offset <= 65534) return offset;
    log(LogLevel::error, "bad-setting",
        "XSOCK_VERBS_PORT_OFFSET=%s is not a number from -65534 to 65534; ignored", value);
    return 0;
}

// A receiver does not know the rnr_retry of its peer. Nearly all programs for InfiniBand ask for 7,
// without limit; where iWARP has no receive, the connection ends.
Time rnr_timeout_wanted(const TransportConfig& config) noexcept {
    const char* const set = std::getenv("XSOCK_RNR_MS");
    const bool waits = device_profile().roce && (set == nullptr || *set == '\0');
    return waits ? kNever : config.rnr_timeout;
}

PortRange ports_wanted() noexcept {
    const char* const value = std::getenv("XSOCK_VERBS_PORTS");
    if (value == nullptr || *value == '\0') return {};
    if (const auto range = parse_ports(value)) return *range;
    log(LogLevel::error, "bad-setting",
        "XSOCK_VERBS_PORTS=%s is no range of ports such as 7000-7099; ignored", value);
    return {};
}

// One line with what the process did, for XSOCK_VERBS_SUMMARY.
void print_summary(const VerbsState& engine) {
    if (!engine.summary) return;
    char line[512];
    int n = std::snprintf(
        line, sizeof line,
        "xsock: verbs: %llu connections, %llu refused, %llu ended by errors; %llu bytes sent, "
        "%llu received",
        static_cast<unsigned long long>(engine.connections),
        static_cast<unsigned long long>(engine.refused),
        static_cast<unsigned long long>(engine.errors),
        static_cast<unsigned long long>(engine.tx_bytes),
        static_cast<unsigned long long>(engine.rx_bytes));
    if (n > 0 && engine.rendezvous != nullptr) {
        n +=
            engine.rendezvous->datagrams().describe(line + n, sizeof line - static_cast<size_t>(n));
    }
    if (n > 0) line[n++] = '\n';
    if (n > 0) [[maybe_unused]]
        const ssize_t w = write(STDERR_FILENO, line, static_cast<size_t>(n));
}

// A forked child has nothing here to tell of.
void summarize_at_exit() {
    VerbsState* const engine = the_engine.load(std::memory_order_acquire);
    if (engine == nullptr) return;
    // Other threads may be at work still; one that exit() interrupted may hold the lock for ever.
    for (const Time end = monotonic_now() + kExitLock; !engine->mutex.try_lock(); usleep(1000)) {
        if (monotonic_now() >= end) return;
    }
    if (!runtime::interrupted()) {
        for (const auto& [num, qp] : engine->qps) count_bytes_locked(*engine, *qp);
        if (engine->rendezvous != nullptr) engine->rendezvous->datagrams().count_bytes();
    }
    print_summary(*engine);
    engine->mutex.unlock();
}

}  // namespace

void VerbsState::begin_in_child() {
    new (&making) std::mutex;  // of no thread that is here
    VerbsState* const parents = the_engine.exchange(nullptr, std::memory_order_acq_rel);
    if (parents == nullptr) return;
    const bool whole = parents->mutex.try_lock();
    parents_engine = whole ? parents : nullptr;
    // The parent's ports are its own: what connects to them must not wait for this process.
    if (whole) parents->close_inherited();
    if (whole) parents->mutex.unlock();
}

void VerbsState::close_inherited() noexcept {
    qp_numbers.close_all();
    for (const auto& [handle, kind] : alive_) {
        if (kind != Kind::cm_id && kind != Kind::cm_id_ending) continue;
        verbs::close_inherited(*static_cast<CmId*>(const_cast<void*>(handle)));
    }
}

void VerbsState::report_if_inherited(const void* handle) noexcept {
    if (parents_engine == nullptr || parents_engine->alive_.count(handle) == 0) return;
    report_inherited("a verbs object");
}

VerbsState::VerbsState(Device& device) noexcept : device_(device) {}
VerbsState::~VerbsState() = default;

VerbsState* VerbsState::current() noexcept { return the_engine.load(std::memory_order_acquire); }

VerbsState* VerbsState::get() noexcept {
    if (VerbsState* const engine = current()) return engine;
    try {
        // Before the lock is held: a thread that forks meanwhile would leave it locked in the
        // child.
        static std::once_flag once;
        std::call_once(once, [] {
            call_in_child(begin_in_child);
            runtime::call_at_exit(summarize_at_exit);
        });
        const std::lock_guard lock(making);
        if (VerbsState* const engine = current()) return engine;
        // Programs wait in ways that are not seen here (memory that a peer writes, descriptors of
        // theirs): without threads of the engine such a program would hang.
        Device* const device = runtime::device(runtime::Threads::needed);
        if (device == nullptr) return nullptr;
        const TransportConfig& config = runtime::config();
        auto engine = std::make_unique<VerbsState>(*device);
        if (auto opened = engine->wake_.open(); !opened) {
            errno = opened.error().code;
            return nullptr;
        }
        engine->spin = config.spin;
        engine->rnr_timeout = rnr_timeout_wanted(config);
        engine->max_starting = config.max_starting;
        engine->acknowledge = acknowledge_wanted();
        engine->crc = switch_named("XSOCK_VERBS_CRC").value_or(true);
        engine->summary = switch_named("XSOCK_VERBS_SUMMARY").value_or(false);
        engine->port_offset = port_offset_wanted();
        if (switch_named("XSOCK_VERBS_GID").value_or(false) || device_profile().roce) {
            engine->qp_numbers.use_ports(ports_wanted());
            engine->rendezvous = std::make_unique<GidRendezvous>(*engine);
        }
        the_engine.store(engine.release(), std::memory_order_release);
        return current();
    } catch (...) {
        errno = ENOMEM;
        return nullptr;
    }
}

// Its thread cannot be ended: one that lacks a descriptor, for want of memory, gets it later.
Loop& VerbsState::loop() {
    if (loop_ == nullptr) {
        auto made = Loop::create(mutex);
        if (!made) throw std::bad_alloc();
        loop_ = std::move(*made);
    }
    const auto watch = [this](int fd, Loop::Handler handler) {
        if (loop_->watch(fd, Loop::kReadable, std::move(handler)) == 0) throw std::bad_alloc();
        ++loop_watches_;
    };
    if (loop_watches_ == 0) {
        watch(wake_.fd(), [this](unsigned) {
            wake_.take();
            end_overrun_qps();
            on_device_events();
        });
    }
    if (loop_watches_ == 1) {
        auto fd = device_.event_fd();
        if (!fd) throw std::bad_alloc();
        watch(*fd, [this](unsigned) { on_device_events(); });
    }
    return *loop_;
}

void VerbsState::on_overrun() noexcept { wake_.notify(); }

void VerbsState::end_overrun_qps() {
    for (const auto& [num, qp] : qps) {
        if (qp->state.load() == IBV_QPS_ERR) continue;
        if (!Cq::of(qp->base.qp_base.send_cq)->cq->overrun() &&
            !Cq::of(qp->base.qp_base.recv_cq)->cq->overrun()) {
            continue;
        }
        ++errors;
        fail_qp_locked(*this, *qp);
        ibv_async_event event{};
        event.element.qp = qp->plain();
        event.event_type = IBV_EVENT_QP_FATAL;
        raise(*Context::of(qp->base.qp_base.context), event);
    }
}

// What no memory was found for is handled again when the loop calls the next time; it does so
// after a moment (Loop::watch()).
void VerbsState::on_device_events() {
    AsyncEvent event;
    while (unhandled_.has_value() || device_.next_event(event)) {
        if (unhandled_.has_value()) event = *std::exchange(unhandled_, std::nullopt);
        try {
            handle(event);
        } catch (const std::bad_alloc&) {
            unhandled_ = event;
            wake_.notify();
            throw;
        }
    }
}

void VerbsState::handle(const AsyncEvent& event) {
    switch (event.kind) {
        case AsyncEventKind::qp_state: {
            const auto found = qps.find(static_cast<std::uint32_t>(event.context));
            // Not what a connection of before a reset has still to say.
            if (found != qps.end() && found->second->attr.context == event.context) {
                on_qp_state_locked(*this, *found->second, event.state);
            }
            break;
        }
        case AsyncEventKind::srq_limit: {
            const auto found = srqs.find(event.context);
            if (found == srqs.end()) break;
            Srq& srq = *found->second;
            srq.limit = 0;
            ibv_async_event async{};
            async.element.srq = &srq.base;
            async.event_type = IBV_EVENT_SRQ_LIMIT_REACHED;
            raise(*Context::of(srq.base.context), async);
            break;
        }
        case AsyncEventKind::cq_overrun:
            break;  // told by the queue's notifier
    }
}

}  // namespace xsock::verbs

// The table.
extern "C" const xsock_verbs* xsock_verbs_table(void) {
    namespace v = xsock::verbs;
#define XSOCK_FILL(prefix, type, name, failed, parameters, arguments) v::name,
#define XSOCK_FILL_CM(prefix, type, name, failed, parameters, arguments) v::cm::name,
    static const xsock_verbs table = {
        XSOCK_VERBS_VERSION, sizeof(xsock_verbs),
        XSOCK_VERBS_PRIVATE_FUNCTIONS(XSOCK_FILL) XSOCK_IBV_FUNCTIONS(XSOCK_FILL)
            XSOCK_RDMA_FUNCTIONS(XSOCK_FILL_CM) XSOCK_RDMA_WAITING_FUNCTIONS(XSOCK_FILL_CM)};
#undef XSOCK_FILL
#undef XSOCK_FILL_CM
    return &table;
}
