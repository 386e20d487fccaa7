// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "verbs/datagrams.hpp"

#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <mutex>
#include <tuple>
#include <utility>

#include "base/random.hpp"
#include "transport/clock.hpp"
#include "transport/descriptors.hpp"
#include "transport/log.hpp"
#include "verbs/addresses.hpp"
#include "verbs/engine.hpp"
#include "verbs/ops.hpp"
#include "verbs/qp_numbers.hpp"

namespace xsock::verbs {
namespace {

/// Dialing goes on for so long; what was sent meanwhile is dropped then.
constexpr Time kDialLimit = kSecond;
/// A carrier by which nothing was sent between two checks is closed.
constexpr Time kIdleCheck = 30 * kSecond;
/// Each way; and a quarter of the descriptors that the process may have, which has others to do.
constexpr std::size_t kMostCarriers = 4096;

/// The dialer's ids below are QP numbers.
constexpr std::uint64_t kFirstId = std::uint64_t{1} << 32;

ibv_gid gid_of_octets(const GidOctets& octets) noexcept {
    ibv_gid gid;
    std::copy(octets.begin(), octets.end(), std::begin(gid.raw));
    return gid;
}

GidOctets own_address(int fd) noexcept {
    sockaddr_storage own{};
    socklen_t size = sizeof own;
    getsockname(fd, reinterpret_cast<sockaddr*>(&own), &size);
    return octets_of(gid_of(own));
}

/// Destinations that are remembered, most of them without a connection.
constexpr std::size_t kMostSenders = 4096;
/// Before it is tried again to find some that are not used.
constexpr Time kFullPause = 10 * kMillisecond;

std::size_t most_carriers() noexcept {
    return std::clamp<std::size_t>(descriptor_limit() / 4, 1, kMostCarriers);
}

constexpr std::uint32_t first_number(std::uint16_t port) noexcept {
    return std::uint32_t{port} << 8;
}

}  // namespace

Datagrams::Datagrams(VerbsState& engine, GidDialer& dialer) noexcept
    : engine_(engine), dialer_(dialer), last_id_(kFirstId) {}

Device& Datagrams::device() noexcept { return engine_.device(); }

Time Datagrams::now() const noexcept { return monotonic_now(); }

std::shared_ptr<PolledQp> Datagrams::make_carrier(PolledQpAttr attr) {
    attr.group = group_;
    attr.qp.pd = pd_;
    attr.qp.rq_depth = 1;
    attr.qp.rights = 0;
    attr.qp.api = Api::verbs;
    attr.qp.rnr_timeout = kNever;  // it is a carrier's way to hold back the sender
    return device().polled().create_polled_qp(std::move(attr));
}

// ---- queue pairs ----------------------------------------------------------------

void Datagrams::add(Qp& qp) {
    Cq& send_cq = *Cq::of(qp.base.qp_base.send_cq);
    Cq& recv_cq = *Cq::of(qp.base.qp_base.recv_cq);
    if (group_ == nullptr) {
        pd_ = device().create_pd();
        (void)recv_cq.cq->groups({&group_, 1});
    }
    DatagramQp::Config config;
    config.num = qp.num();
    config.rq_depth = std::max(1u, qp.cap.max_recv_wr);
    PdId domain = qp.attr.pd;
    if (const ibv_srq* const srq = qp.base.qp_base.srq; srq != nullptr) {
        config.shared = Srq::of(qp.base.qp_base.srq)->receives;
        domain = reinterpret_cast<const Pd*>(srq->pd)->id;
    }
    config.scatter = [this, pd = domain](ConstBytes from, std::span<const Sge> to) {
        return device().scatter(from, pd, to);
    };
    config.clock = [] { return monotonic_now(); };
    config.counters = &counters_;
    config.pool = &pool_;
    config.send_cq = send_cq.cq->target(*group_);
    config.recv_cq = recv_cq.cq->target(*group_);
    auto made = std::make_shared<DatagramQp>(config);
    made->set_purge_num(qp.qp->num());
    for (const Cq* const cq : {&send_cq, &recv_cq}) {
        if (cq->channel != nullptr) leave_to_thread(*cq->channel);
    }
    {
        const std::lock_guard lock(lock_);
        qps_.emplace(qp.num(), made);
    }
    qp.datagrams = std::move(made);
}

void Datagrams::remove(const Qp& qp) noexcept {
    if (qp.datagrams == nullptr) return;
    {
        const std::lock_guard lock(lock_);
        qps_.erase(qp.num());
    }
    Cq::of(qp.base.qp_base.send_cq)->give_slots(qp.datagrams->reset(/*last=*/true));
}

std::shared_ptr<DatagramQp> Datagrams::find(std::uint32_t qp_num) {
    const std::lock_guard lock(lock_);
    const auto found = qps_.find(qp_num);
    return found != qps_.end() ? found->second : nullptr;
}

bool Datagrams::drop_overdue(std::size_t bytes, Time& next) {
    if (pool_.has_room(bytes)) return false;
    bool dropped = false;
    const std::lock_guard lock(lock_);
    for (const auto& [num, qp] : qps_) {
        const Time due = qp->drop_overdue();
        dropped |= due == 0;
        if (due != 0) next = std::min(next, due);
    }
    return dropped;
}

// ---- carriers that come in ------------------------------------------------------

void Datagrams::accept(GreetedConnection connection) {
    const Greeting& asked = connection.greeting;
    GreetingRefusal why = GreetingRefusal::none;
    if (group_ == nullptr || !engine_.qp_numbers.has_port(port_in(asked.to))) {
        why = GreetingRefusal::no_such_qp;
    }
    if (why != GreetingRefusal::none) {
        ++engine_.refused;
        connection.reject(why);
        return;
    }
    const CarrierKey key{own_address(connection.fd), octets_of(connection.peer),
                         port_in(asked.from)};
    const bool both_ways =
        asked.both_ways && key.port != 0 && port_in(asked.to) == first_port() && !is_own(key);
    if (both_ways) {
        if (const auto name = dialed_to(key, asked)) {
            connection.reject(GreetingRefusal::already_connected, *name);  // as it mostly goes
            return;
        }
    }
    expect_to_be_there(key);
    const auto receiver = std::make_shared<DatagramReceiver>(*this, key.peer, key.own);
    const auto made = std::make_shared<DatagramCarrier>(
        *this, DatagramCarrier::Ends{.sender = {}, .receiver = receiver, .both_ways = both_ways});
    const auto carrier = made->make_connection();
    auto place = receiver->place(carrier, asked);
    if (both_ways) {
        place.name = random_u32();
        place.ends = made;
    }
    const std::uint32_t attempt = both_ways ? place.name : asked.attempt;
    IncomingCarriers::Replaced replaced;
    {
        const std::lock_guard lock(lock_);
        replaced = receivers_.add(receiver.get(), std::move(place), most_carriers());
    }
    if (replaced.same != nullptr) replaced.same->request_end(PolledQp::End::abort);
    if (replaced.crowding != nullptr) {
        ++engine_.refused;
        log(LogLevel::info, "datagram-crowd",
            "so many connections of datagrams have come that an "
            "idle one of the address that holds most is closed");
        replaced.crowding->request_end(PolledQp::End::abort);
    }
    const auto reply = encode({.kind = GreetingKind::datagrams,
                               .from = asked.to,
                               .to = asked.from,
                               .attempt = attempt,
                               .both_ways = both_ways});
    ConnectAttr attr;
    attr.crc = engine_.crc;
    attr.role = ConnectAttr::Role::responder;
    attr.private_data = reply;
    if (start(*carrier, connection.fd, attr)) {
        connection.fd = -1;  // the carrier's
        ++engine_.connections;
        watch_carriers();
    } else {
        remove(*receiver);
    }
}

std::uint16_t Datagrams::first_port() const noexcept {
    return engine_.qp_numbers.ports().front().port;
}

bool Datagrams::is_own(const CarrierKey& key) const noexcept {
    return key.own == key.peer && engine_.qp_numbers.has_port(key.port);
}

std::shared_ptr<DatagramSender> Datagrams::find_sender(const CarrierKey& key) {
    const std::lock_guard lock(lock_);
    const auto found = senders_.find(key);
    return found != senders_.end() ? found->second : nullptr;
}

std::optional<std::uint64_t> Datagrams::dialing_for(
    const std::shared_ptr<DatagramSender>& sender) const {
    const auto dialing = std::find_if(dialing_.begin(), dialing_.end(), [&](const auto& entry) {
        return entry.second.sender == sender;
    });
    return dialing != dialing_.end() ? std::optional(dialing->first) : std::nullopt;
}

// Where both dial at the same time, what the lower of the two dials serves both, if that one's
// Request has reached the other. Until that is answered it has no name; the other tries again soon.
std::optional<std::uint32_t> Datagrams::dialed_to(const CarrierKey& key, const Greeting& asked) {
    const auto sender = find_sender(key);
    if (sender == nullptr) return std::nullopt;
    if (const auto name = sender->dialed_name()) return name;
    if (std::make_tuple(key.peer, key.port) < std::make_tuple(key.own, first_port())) {
        return std::nullopt;
    }
    const auto id = dialing_for(sender);
    return id && dialer_.is_unanswered(*id) ? std::optional(asked.attempt) : std::nullopt;
}

// A process of its host may claim its port: then one dial is made in vain.
void Datagrams::expect_to_be_there(const CarrierKey& key) {
    const auto sender = find_sender(key);
    if (sender == nullptr) return;
    sender->end_pause();
    if (const auto id = dialing_for(sender)) dialer_.retry_soon(*id);
}

// The process that has answered at the port that was dialed has the port. One that only has it in
// its greeting has not shown so, until the former names the connection as its own.
bool Datagrams::send_by_theirs(std::uint64_t id, std::uint32_t name) {
    const auto dialing = dialing_.find(id);
    if (dialing == dialing_.end()) return false;
    const auto sender = dialing->second.sender;
    const CarrierKey& key = sender->key();
    std::shared_ptr<DatagramCarrier> carrier;
    {
        const std::lock_guard lock(lock_);
        carrier = receivers_.find({key.peer, key.own, key.port, first_port()}, name);
    }
    if (carrier == nullptr) return false;
    bool lent = false;
    group_->locked([&](PollCycle&) { lent = carrier->lend(sender); });
    if (lent) dialing_.erase(dialing);
    return lent;
}

// Without success the descriptor is the caller's.
Result<void> Datagrams::start(PolledQp& carrier, int fd, const ConnectAttr& attr) noexcept {
    Result<void> started;
    try {
        group_->locked([&](PollCycle& cycle) { started = carrier.start(fd, attr, cycle); });
    } catch (const std::bad_alloc&) {
        started = Error{ENOMEM, "no memory for a carrier"};
    }
    group_->ensure_thread();
    return started;
}

void Datagrams::remove(const DatagramReceiver& receiver) noexcept {
    std::shared_ptr<PolledQp> former;  // which keeps the receiver: goes without the lock
    const std::lock_guard lock(lock_);
    former = receivers_.remove(&receiver);
}

// ---- carriers that go out -------------------------------------------------------

std::shared_ptr<DatagramSender> Datagrams::sender(const CarrierKey& key) {
    const std::lock_guard lock(lock_);
    if (const auto found = senders_.find(key); found != senders_.end()) return found->second;
    if (senders_.size() >= kMostSenders && !erase_unused_senders(now())) return nullptr;
    auto made = std::make_shared<DatagramSender>(*this, key);
    senders_.emplace(key, made);
    return made;
}

// With lock_ held. A sender that is used has another owner than the table: its connection,
// dialing_, or a poster, which got it under the lock.
bool Datagrams::erase_unused_senders(Time now) {
    if (now < senders_full_until_) return false;
    const std::size_t erased = std::erase_if(senders_, [now](const auto& entry) {
        return entry.second.use_count() == 1 && entry.second->is_unused(now);
    });
    if (erased == 0) senders_full_until_ = time_after(now, kFullPause);
    return erased != 0;
}

std::vector<std::shared_ptr<DatagramSender>> Datagrams::senders() {
    std::vector<std::shared_ptr<DatagramSender>> all;
    const std::lock_guard lock(lock_);
    all.reserve(senders_.size());
    for (const auto& [key, sender] : senders_) all.push_back(sender);
    return all;
}

// One by which nothing was sent since the last call, or the last check.
bool Datagrams::close_an_idle_sender() {
    for (const auto& sender : senders()) {
        if (sender->close_if_idle()) return true;
    }
    return false;
}

// Peers may have chosen the destinations: a program answers those that send.
bool Datagrams::may_dial() {
    const std::size_t most = most_carriers();
    const std::size_t open = dialing_.size() + outgoing_.load(std::memory_order_relaxed);
    if (open < most) return true;
    // (One that is closed has its descriptor for a moment still.)
    return close_an_idle_sender() && open < most + most / 2;
}

void Datagrams::dial(const std::shared_ptr<DatagramSender>& sender) noexcept {
    const std::lock_guard lock(engine_.mutex);
    const std::uint64_t id = ++last_id_;
    const CarrierKey& key = sender->key();
    const Time until = time_after(now(), kDialLimit);
    ConnectAttr attr;
    attr.crc = engine_.crc;
    try {
        if (!may_dial()) return sender->give_up();
        dialing_.emplace(id, Dialing{sender, until});
        dialer_.dial({.id = id,
                      .own = gid_of_octets(key.own),
                      .peer = gid_of_octets(key.peer),
                      .from = first_number(first_port()),
                      .to = first_number(key.port),
                      .kind = GreetingKind::datagrams,
                      .both_ways = !is_own(key),
                      .attr = attr});
        engine_.loop().at(until, [this, id] { give_up(id); });
        watch_carriers();
        return;
    } catch (const std::bad_alloc&) {
        sender->give_up();
    }
    try {
        give_up(id);
    } catch (const std::bad_alloc&) {
        return;  // what else is dialed there goes on when there is memory
    }
}

void Datagrams::give_up(std::uint64_t id) {
    const auto dialing = dialing_.extract(id);
    if (!dialing.empty()) dialing.mapped().sender->give_up();
    dialer_.forget(id);
}

void Datagrams::on_accepted(const GidDialer::Accepted& accepted) {
    const auto dialing = dialing_.extract(accepted.id);
    if (dialing.empty()) {
        close(accepted.fd);
        return;
    }
    DatagramSender& sender = *dialing.mapped().sender;
    DatagramCarrier::Ends ends;
    ends.sender = dialing.mapped().sender;
    ends.both_ways = accepted.both_ways;
    const auto name = accepted.both_ways ? std::optional(accepted.name) : std::nullopt;
    // Start-up may have more to wait for, and has what is left of the time.
    const Time left = dialing.mapped().until - std::min(now(), dialing.mapped().until);
    ConnectAttr limited = accepted.attr;
    limited.startup_timeout_ms = static_cast<std::uint32_t>(left / kMillisecond) + 1;
    Result<void> started;
    try {
        if (accepted.both_ways) {
            ends.receiver =
                std::make_shared<DatagramReceiver>(*this, sender.key().peer, sender.key().own);
        }
        const auto carrier =
            std::make_shared<DatagramCarrier>(*this, std::move(ends))->make_connection();
        if (!sender.connect(carrier, name)) {
            carrier->request_end(PolledQp::End::release);
            close(accepted.fd);
            return;
        }
        started = start(*carrier, accepted.fd, limited);
    } catch (const std::bad_alloc&) {
        started = Error{ENOMEM, "no memory for a carrier"};
    }
    if (started) {
        ++engine_.connections;
        return;
    }
    log(LogLevel::error, "gid-dial", "datagrams: %s", started.error().what);
    close(accepted.fd);
    sender.give_up();
}

// ---- the end --------------------------------------------------------------------

void Datagrams::count_ended(const PolledQp& connection) noexcept {
    try {
        const QpInfo info = connection.info();
        counters_.tx_bytes += info.tx_bytes;
        counters_.rx_bytes += info.rx_bytes;
    } catch (const std::bad_alloc&) {
        return;  // the summary lacks them
    }
}

// As long as there are carriers.
void Datagrams::watch_carriers() {
    if (watch_ != 0) return;
    watch_ = engine_.loop().at(monotonic_now() + kIdleCheck, [this] {
        watch_ = 0;
        on_watch();
    });
}

void Datagrams::on_watch() {
    for (const auto& sender : senders()) sender->close_if_idle();
    bool more = false;
    {
        const std::lock_guard lock(lock_);
        (void)erase_unused_senders(now());
        more = receivers_.size() != 0 || !senders_.empty();
    }
    if (more) watch_carriers();
}

int Datagrams::describe(char* text, std::size_t size) const noexcept {
    const auto number = [](std::uint64_t n) { return static_cast<unsigned long long>(n); };
    const DatagramCounters& of = counters_;
    if (of.sent + of.received + of.dropped() == 0) return 0;
    const int n =
        std::snprintf(text, size, "; %llu datagrams sent, %llu received, %llu held, %llu dropped",
                      number(of.sent), number(of.received), number(of.held), number(of.dropped()));
    return n > 0 && static_cast<std::size_t>(n) < size - 1 ? n : 0;
}

void Datagrams::count_bytes() noexcept {
    if (group_ == nullptr) return;
    try {
        const auto open = connections();
        group_->locked([&](PollCycle&) {
            for (const auto& connection : open) count_ended(*connection);
        });
    } catch (const std::bad_alloc&) {
        return;  // the summary lacks those that are open
    }
    engine_.tx_bytes += counters_.tx_bytes;
    engine_.rx_bytes += counters_.rx_bytes;
}

// At exit: a thread that exit() interrupted may hold a lock for ever.
std::vector<std::shared_ptr<PolledQp>> Datagrams::connections() {
    std::vector<std::shared_ptr<PolledQp>> all;
    const std::unique_lock lock(lock_, std::try_to_lock);
    if (!lock) return all;
    for (const auto& [key, sender] : senders_) {
        if (auto connection = sender->try_connection()) all.push_back(std::move(connection));
    }
    receivers_.for_each([&](const auto& connection) { all.push_back(connection); });
    // One that goes both ways may be there twice.
    std::sort(all.begin(), all.end());
    all.erase(std::unique(all.begin(), all.end()), all.end());
    return all;
}

}  // namespace xsock::verbs
