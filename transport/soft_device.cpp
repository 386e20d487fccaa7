// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "transport/soft_device.hpp"

#include <sys/epoll.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <mutex>
#include <optional>

#include "base/epoch.hpp"
#include "base/memory_table.hpp"
#include "base/polled_qp.hpp"
#include "base/random.hpp"
#include "base/reserved_queue.hpp"
#include "transport/capture.hpp"
#include "transport/clock.hpp"
#include "transport/connection.hpp"
#include "transport/descriptors.hpp"
#include "transport/event_fd.hpp"
#include "transport/fault_handler.hpp"
#include "transport/kernel_ddp.hpp"
#include "transport/listener.hpp"
#include "transport/memory_access.hpp"
#include "transport/progress.hpp"
#include "transport/progress_pool.hpp"
#include "transport/soft_cq.hpp"
#include "transport/tcp.hpp"

namespace xsock {
namespace {

/// Asynchronous events, for programs that asked for the descriptor. Room for all that a QP or an
/// SRQ may have to tell is reserved when it is made: none is lost for want of memory.
class EventQueue {
  public:
    /// For as long as it lives, `events` can be pushed.
    class Room {
      public:
        Room(EventQueue& queue, std::size_t events) : queue_(queue), events_(events) {
            const std::lock_guard lock(queue_.mutex_);
            queue_.events_.reserve(events_);
        }
        ~Room() {
            const std::lock_guard lock(queue_.mutex_);
            queue_.events_.release(events_);
        }
        Room(const Room&) = delete;
        Room& operator=(const Room&) = delete;

      private:
        EventQueue& queue_;
        const std::size_t events_;
    };

    Result<int> fd() {
        const std::lock_guard lock(mutex_);
        if (!waiting_.is_open()) {
            if (auto opened = waiting_.open(EventFd::Kind::semaphore); !opened) {
                return opened.error();
            }
        }
        return waiting_.fd();
    }
    void push(const AsyncEvent& event) {
        const std::lock_guard lock(mutex_);
        if (!waiting_.is_open()) return;
        events_.push(event);
        waiting_.notify();
    }
    bool next(AsyncEvent& out) {
        const std::lock_guard lock(mutex_);
        if (events_.empty()) return false;
        out = events_.front();
        events_.pop();
        waiting_.take();
        return true;
    }

  private:
    std::mutex mutex_;
    EventFd waiting_;  // one count for each event
    ReservedQueue<AsyncEvent> events_;
};

/// A connection enters each QpState once at most.
constexpr std::size_t kEventsOfQp = static_cast<std::size_t>(QpState::closed) + 1;

/// A connection as a Qp, of any owner.
class ConnectionQp : public Qp {
  public:
    explicit ConnectionQp(Connection& connection) : connection_(&connection) {}

    std::uint32_t num() const override { return connection_->num(); }

    Result<void> connect(int fd, const ConnectAttr& attr) override {
        if (auto r = tcp::check_connected(fd); !r) return r;
        // A program that is told of events does not poll until one comes.
        if (connection_->attr().async_events && progress().mode() != ProgressMode::app) {
            progress().ensure_thread();
            if (!progress().has_thread()) return Error{EAGAIN, "no background thread"};
        }
        auto result = progress().locked(
            [&](PollCycle& cycle) { return connection_->start(fd, attr, cycle); });
        if (result) progress().ensure_thread();
        return result;
    }
    Result<void> accept(std::span<const std::byte> private_data, std::uint16_t ird,
                        std::uint16_t ord) override {
        return progress().locked(
            [&](PollCycle& cycle) { return connection_->accept(private_data, ird, ord, cycle); });
    }
    Result<void> reject(std::span<const std::byte> private_data) override {
        return progress().locked(
            [&](PollCycle& cycle) { return connection_->reject(private_data, cycle); });
    }
    Result<void> post_send(const SendWr& wr) override { return connection_->post_send(wr); }
    Result<void> post_plain_send(std::uint64_t wr_id, const Sge& sge, std::uint8_t flags) override {
        return connection_->post_plain_send(wr_id, sge, flags);
    }
    std::uint32_t send_room() const override { return connection_->send_room(); }
    std::uint32_t sends_outstanding() const override { return connection_->sends_outstanding(); }
    Result<void> post_recv(const RecvWr& wr) override { return connection_->post_recv(wr); }
    Result<void> shutdown() override {
        guarded([&](PollCycle& cycle) { connection_->shutdown(cycle); });
        return {};
    }
    void abort() override {
        guarded([&](PollCycle& cycle) { connection_->abort(cycle); });
    }
    void detach() override {
        guarded([&](PollCycle& cycle) { connection_->detach(cycle); });
    }
    void confirm_start() override {
        guarded([&](PollCycle& cycle) { connection_->confirm_start(cycle); });
    }
    void confirm_end() override {
        guarded([&](PollCycle& cycle) { connection_->confirm_end(cycle); });
    }
    QpState state() const override { return connection_->state(); }
    QpInfo info() const override {
        return progress().locked([this](PollCycle& cycle) {
            call(*connection_, cycle, [&] { connection_->take_placed(cycle); });
            return connection_->info();
        });
    }
    QpState wait_started(Time deadline) override {
        return wait(deadline,
                    [](QpState s) { return s != QpState::fresh && s != QpState::starting; });
    }
    PollGroup& group() override { return progress(); }
    QpState wait_ended(Time deadline) override {
        return wait(deadline,
                    [](QpState s) { return s == QpState::closed || s == QpState::error; });
    }
    void set_context(std::uint64_t context) override {
        progress().locked([&](PollCycle&) { connection_->set_context(context); });
    }
    void set_rights(std::uint32_t rights) override {
        progress().locked([&](PollCycle&) { connection_->set_rights(rights); });
    }
    void set_rnr(const RnrAttr& rnr) override {
        progress().locked([&](PollCycle&) { connection_->set_rnr(rnr); });
    }

  protected:
    template <typename F>
    QpState wait(Time deadline, F&& is_reached) {
        progress().wait([&] { return is_reached(state()); }, deadline);
        return state();
    }
    /// `f(cycle)` as the poller; out of memory ends the connection, and is no failure of the call.
    template <typename F>
    void guarded(F&& f) noexcept {
        progress().locked([&](PollCycle& cycle) { call(*connection_, cycle, [&] { f(cycle); }); });
    }
    Progress& progress() const { return connection_->progress(); }
    Connection* const connection_;
};

class SoftQp final : public ConnectionQp {
  public:
    SoftQp(std::shared_ptr<Connection> connection, EventQueue& events)
        : ConnectionQp(*connection), owned_(std::move(connection)) {
        if (owned_->attr().async_events) room_.emplace(events, kEventsOfQp);
    }
    ~SoftQp() override {
        guarded([this](PollCycle& cycle) { connection_->release(cycle); });
    }

  private:
    const std::shared_ptr<Connection> owned_;
    std::optional<EventQueue::Room> room_;
};

class BorrowedQp final : public ConnectionQp {
  public:
    BorrowedQp(Connection& connection, std::function<Result<void>()> may_post_recv)
        : ConnectionQp(connection), may_post_recv_(std::move(may_post_recv)) {}
    Result<void> post_recv(const RecvWr& wr) override {
        if (auto r = may_post_recv_(); !r) return r;
        return ConnectionQp::post_recv(wr);
    }

  private:
    const std::function<Result<void>()> may_post_recv_;
};

/// The completions of a PolledQp: to its API at once.
struct PolledCq {
    explicit PolledCq(const PolledQpAttr& attr)
        : core(static_cast<Progress&>(*attr.group), 4, false), keeper(attr.keeper) {
        core.queue.set_sink(attr.on_completion, attr.argument);
    }
    CqCore core;
    std::shared_ptr<void> keeper;
};

class SoftListener final : public Listener {
  public:
    SoftListener(std::shared_ptr<ListenSocket> socket, Progress& progress, EventQueue& queue,
                 PolledQp::StateListener events)
        : socket_(std::move(socket)),
          progress_(progress),
          queue_(queue),
          events_(std::move(events)) {}
    ~SoftListener() override {
        progress_.locked([this](PollCycle& cycle) { socket_->close(cycle); });
        if (fd_ >= 0) close_internal_fd(fd_);
    }
    std::unique_ptr<Qp> accept() override {
        auto qp = socket_->take();
        if (qp == nullptr) return nullptr;
        auto connection = std::static_pointer_cast<Connection>(qp);
        try {
            auto accepted = std::make_unique<SoftQp>(std::move(connection), queue_);
            progress_.locked([&](PollCycle&) { qp->set_listener(events_); });
            return accepted;
        } catch (...) {  // no one has it: its peer shall know
            progress_.locked([&](PollCycle& cycle) { static_cast<Connection&>(*qp).abort(cycle); });
            throw;
        }
    }
    [[nodiscard]] bool has_ready() const noexcept override { return socket_->has_ready(); }
    PollGroup& group() override { return progress_; }
    Result<int> fd() override {
        const std::lock_guard lock(fd_mutex_);
        if (fd_ >= 0) return fd_;
        auto ready = socket_->ready_fd();
        if (!ready) return ready;
        const DescriptorChange change;
        const int fd = epoll_create1(EPOLL_CLOEXEC);  // not moved: programs may use it in select()
        if (fd < 0) return Error{errno, "epoll_create1 failed"};
        register_internal_fd(fd);
        for (const int watched : {*ready, progress_.embed()}) {
            if (watched < 0) continue;
            epoll_event event{};
            event.events = EPOLLIN;
            epoll_ctl(fd, EPOLL_CTL_ADD, watched, &event);
        }
        fd_ = fd;
        return fd_;
    }

  private:
    std::shared_ptr<ListenSocket> socket_;
    Progress& progress_;
    EventQueue& queue_;
    const PolledQp::StateListener events_;  // of the device, for connections handed out
    std::mutex fd_mutex_;
    int fd_ = -1;
};

/// Without a thread of ours the poller pins, and only what takes it little time.
KernelRegions::Limits pin_limits(const TransportConfig& config) noexcept {
    constexpr std::uint64_t kInline = std::uint64_t{1} << 20;
    const bool threads = config.progress != ProgressMode::app;
    return {.region_bytes = config.kernel_pin,
            .inline_bytes = threads ? 0 : kInline,
            .threads = threads};
}

class SoftDevice final : public Device, public PolledDevice {
  public:
    explicit SoftDevice(const TransportConfig& config) : config_(config), memory_(epochs_) {
        memory_.set_mirror(kernel_.regions());
    }

    Result<void> open() { return progresses_.open(); }

    PdId create_pd() override { return next_pd_.fetch_add(1, std::memory_order_relaxed); }

    Result<std::uint32_t> register_memory(const RegionAttr& attr) override {
        keep_fault_handler_by_tick();
        auto stag = memory_.add(attr);
        if (!stag || config_.kernel != KernelMode::require || (attr.access & kRemoteWrite) == 0 ||
            attr.length == 0) {
            return stag;
        }
        // With the module required, what peers write is pinned, or it is no region.
        const kernel::Reason why_not = kernel_.open(monotonic_now());
        Result<void> pinned = why_not == kernel::Reason::none
                                  ? kernel_.regions().pin(*stag)
                                  : Error{ENODEV, kernel::text_of(why_not)};
        if (pinned) return stag;
        (void)memory_.remove(*stag);
        return pinned.error();
    }
    Result<void> deregister_memory(std::uint32_t stag) override { return memory_.remove(stag); }
    Result<void> replace_memory(std::uint32_t stag, const RegionAttr& attr) override {
        return memory_.replace(stag, attr);
    }

    Result<std::uint32_t> reserve_window() override { return memory_.reserve_window(); }
    void release_window(std::uint32_t stag) override { memory_.release_window(stag); }
    Result<void> prepare_window(std::uint32_t stag, const RegionAttr& attr,
                                std::uint32_t region) override {
        return memory_.prepare_window(stag, attr, region);
    }
    void abandon_window(std::uint32_t stag) override { memory_.abandon(stag); }
    bool window_revoked(std::uint32_t stag) const override { return memory_.revoked(stag); }

    WcStatus gather(std::span<const Sge> from, PdId pd, Bytes to) override {
        return MemoryAccess(memory_, epochs_, pd).gather(from, to);
    }
    WcStatus scatter(ConstBytes from, PdId pd, std::span<const Sge> to) override {
        return MemoryAccess(memory_, epochs_, pd).scatter(from, to);
    }

    Result<std::shared_ptr<CompletionChannel>> create_channel() override {
        auto channel = SoftChannel::create();
        if (!channel) return channel.error();
        return std::shared_ptr<CompletionChannel>(std::move(*channel));
    }
    Result<std::unique_ptr<Cq>> create_cq(std::uint32_t depth, bool strict,
                                          std::shared_ptr<CompletionChannel> channel) override {
        return std::unique_ptr<Cq>(
            std::make_unique<SoftCq>(progresses_.next(), depth, strict,
                                     std::static_pointer_cast<SoftChannel>(std::move(channel))));
    }
    Result<std::unique_ptr<Srq>> create_srq(std::uint32_t depth, std::uint64_t context) override {
        auto room = std::make_shared<EventQueue::Room>(events_, 1);
        return std::unique_ptr<Srq>(
            std::make_unique<SoftSrq>(depth, [this, context, kept = std::move(room)] {
                events_.push({AsyncEventKind::srq_limit, context, QpState::fresh});
            }));
    }
    Result<std::unique_ptr<Qp>> create_qp(const QpAttr& attr) override {
        if (attr.send_cq == nullptr || attr.recv_cq == nullptr) {
            return Error{EINVAL, "a QP needs completion queues"};
        }
        return std::unique_ptr<Qp>(
            std::make_unique<SoftQp>(make_connection(attr, nullptr), events_));
    }
    Result<std::unique_ptr<Listener>> listen(int fd, const QpAttr& attr,
                                             const ConnectAttr& connect) override {
        if (auto r = tcp::check_listening(fd); !r) return r.error();
        if (attr.send_cq == nullptr || attr.recv_cq == nullptr) {
            return Error{EINVAL, "a QP needs completion queues"};
        }
        if (auto r = tcp::make_nonblocking(fd); !r) return r.error();
        ConnectAttr accepted = connect;
        if (!connect.congestion.empty()) {
            if (auto r = tcp::set_congestion(fd, connect.congestion); !r) return r.error();
            accepted.congestion = {};  // they have it from the listening socket
        }
        Progress& progress = static_cast<SoftCq*>(attr.send_cq)->core()->home();
        auto socket = std::make_shared<ListenSocket>(
            fd, progress, accepted,
            [this, attr](PolledQp::StateListener listener) {
                return make_connection(attr, std::move(listener));
            },
            connect.max_starting != 0 ? connect.max_starting : config_.max_starting);
        // What may run out of memory comes before the descriptor is taken.
        auto listener = std::make_unique<SoftListener>(socket, progress, events_, event_listener());
        auto opened = progress.locked([&](PollCycle& cycle) { return socket->open(cycle); });
        if (!opened) return opened.error();
        progress.ensure_thread();
        return std::unique_ptr<Listener>(std::move(listener));
    }

    Result<int> event_fd() override { return events_.fd(); }
    bool next_event(AsyncEvent& out) override { return events_.next(out); }

    PolledDevice& polled() noexcept override { return *this; }
    PollGroup& group_of_thread() override { return progresses_.of_thread(); }
    std::shared_ptr<PolledQp> create_polled_qp(PolledQpAttr attr) override {
        const auto cq = std::make_shared<PolledCq>(attr);
        Connection::Parts parts;
        parts.attr = attr.qp;
        parts.send_cq = parts.recv_cq = std::shared_ptr<CqCore>(cq, &cq->core);
        parts.progress = static_cast<Progress*>(attr.group);
        parts.listener = std::move(attr.listener);
        parts.spare_receive = attr.provide_receive;
        parts.owner = attr;
        return make_connection(std::move(parts));
    }
    std::shared_ptr<PolledListener> create_polled_listener(int fd, PollGroup& group,
                                                           const ConnectAttr& attr,
                                                           PolledListener::Make make) override {
        return std::make_shared<ListenSocket>(fd, static_cast<Progress&>(group), attr,
                                              std::move(make), config_.max_starting);
    }
    std::unique_ptr<Qp> borrow(PolledQp& qp, std::function<Result<void>()> may_post_recv) override {
        return std::make_unique<BorrowedQp>(static_cast<Connection&>(qp), std::move(may_post_recv));
    }

    /// exit() or the like was called by a signal handler in the middle of a poll cycle: nothing of
    /// ours can be waited for.
    [[nodiscard]] bool interrupted() const noexcept {
        bool inside = false;
        progresses_.for_each([&](const Progress& p) { inside |= p.polled_by_this_thread(); });
        return inside;
    }
    void need_threads() {
        progresses_.for_each([](Progress& progress) { progress.need_thread(); });
    }
    void drain(Time limit) { progresses_.drain(limit); }
    void flush(Time limit) {
        const Time begin = monotonic_now();
        progresses_.for_each([&](Progress& progress) { progress.flush(begin, limit); });
    }

  private:
    PolledQp::StateListener event_listener() {
        return [this](PolledQp& qp, QpState state) {
            const QpAttr& attr = static_cast<Connection&>(qp).attr();
            if (!attr.async_events) return;
            events_.push({AsyncEventKind::qp_state, attr.context, state});
        };
    }

    /// `parts` says all but its number and the memory table.
    std::shared_ptr<Connection> make_connection(Connection::Parts parts) {
        parts.num = next_qp_.fetch_add(1, std::memory_order_relaxed);
        parts.memory = &memory_;
        parts.kernel = &kernel_;
        return std::make_shared<Connection>(std::move(parts));
    }
    std::shared_ptr<Connection> make_connection(const QpAttr& attr,
                                                PolledQp::StateListener listener) {
        Connection::Parts parts;
        parts.attr = attr;
        parts.send_cq = static_cast<SoftCq*>(attr.send_cq)->core();
        parts.recv_cq = static_cast<SoftCq*>(attr.recv_cq)->core();
        if (attr.srq != nullptr) parts.srq = static_cast<SoftSrq*>(attr.srq)->core();
        parts.progress = &parts.send_cq->home();
        parts.listener = std::move(listener);
        if (!parts.listener) parts.listener = event_listener();
        return make_connection(std::move(parts));
    }

    const TransportConfig config_;
    Epochs epochs_;
    KernelDdp kernel_{
        config_.kernel_calls != nullptr ? *config_.kernel_calls : system_kernel_calls(), memory_,
        pin_limits(config_)};
    MemoryTable memory_;
    EventQueue events_;
    ProgressPool progresses_{epochs_, config_};
    std::atomic<PdId> next_pd_{1};
    std::atomic<QpNum> next_qp_{1};
};

}  // namespace

Result<std::unique_ptr<Device>> make_soft_device(const TransportConfig& config) {
    auto device = std::make_unique<SoftDevice>(config);
    if (auto r = device->open(); !r) return r.error();
    return std::unique_ptr<Device>(std::move(device));
}

void need_soft_threads(Device& device) { static_cast<SoftDevice&>(device).need_threads(); }

void flush_soft_device(Device& device, Time limit) {
    auto& soft = static_cast<SoftDevice&>(device);
    if (!soft.interrupted()) soft.flush(limit);
}

bool soft_device_interrupted(const Device& device) noexcept {
    return static_cast<const SoftDevice&>(device).interrupted();
}

void drain_soft_device(Device& device, Time limit) {
    auto& soft = static_cast<SoftDevice&>(device);
    if (soft.interrupted()) return;
    soft.drain(limit);
    Capture::finish_all();
}

}  // namespace xsock
