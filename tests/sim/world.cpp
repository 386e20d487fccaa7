// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "tests/sim/world.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "base/fault.hpp"
#include "tests/sim/program.hpp"
#include "tests/sim/random.hpp"
#include "tests/sim/trace.hpp"

namespace xsock::sim {
namespace {

constexpr std::size_t kArenaRoom = std::size_t{16} << 20;
constexpr std::size_t kDoubtfulBytes = std::size_t{256} << 10;  // the end of it
constexpr Time kCleanDeadline = 300 * kSecond;  // far beyond what any clean world takes
constexpr Time kTimeout = 20 * kSecond;         // then the programs of other worlds abort
constexpr std::uint64_t kMaxSteps = 5'000'000;

/// Memory at the same address in each run, where the machine allows it: tagged offsets are
/// addresses.
Bytes arena_memory(int host) {
    static Bytes rooms[2];
    Bytes& room = rooms[host];
    if (room.empty()) {
        void* const hint =
            reinterpret_cast<void*>(0x200000000000u + 0x1000000000u * static_cast<unsigned>(host));
        void* const at = mmap(hint, kArenaRoom, PROT_READ | PROT_WRITE,
                              MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (at == MAP_FAILED) fail("sim: no memory");
        room = {static_cast<std::byte*>(at), kArenaRoom};
    }
    return room;
}

struct Connection {
    std::array<std::unique_ptr<Pipe>, 2> pipe;
    std::array<std::unique_ptr<Endpoint>, 2> end;
    std::array<std::unique_ptr<Program>, 2> program;
    std::array<std::shared_ptr<CompletionQueue>, 4> cq;
    std::array<std::string, 2> name;
    bool reset = false;
    Time reset_at = kNever;
    std::array<Time, 2> run_at = {0, 0};  // when the poller wants to run
    std::array<Time, 2> ran_at = {0, 0};
    std::array<Time, 2> step_at = {0, 0};  // when the program wants to run
    unsigned number = 0;
    bool started = false;
};

class World {
  public:
    World(const Options& options, Mutant mutant);
    Result run();

  private:
    struct Actor {
        Connection* connection = nullptr;
        unsigned end = 0;
        bool program = false;
        bool link = false;
    };
    void connect(unsigned pair);
    void start(Connection& connection);
    void poll_link(unsigned host);
    void poll_amid(unsigned host);
    void end_cycle(unsigned host, bool idle);
    void die(unsigned host);
    void wake_touched(unsigned host);
    [[nodiscard]] Actor next_actor(Time& at);
    [[nodiscard]] Time poll_time(const Connection& connection, unsigned end) const;
    void poll_end(Connection& connection, unsigned end);
    void step_program(Connection& connection, unsigned end);
    void wake(Connection& connection, unsigned end);
    void check_memory();
    void check_links();
    [[nodiscard]] bool over() const;
    void abort_all();

    Options options_;  // outlives the endpoints, which refer to it
    Mutant mutant_;
    Rng rng_;
    std::array<std::unique_ptr<Host>, 2> host_;
    std::unique_ptr<SimMemory> memory_;  // of the link; null without
    std::array<std::unique_ptr<HostLink>, 2> link_;
    std::array<Time, 2> link_at_ = {kNever, kNever};  // when each is polled
    std::array<bool, 2> dead_ = {false, false};
    std::array<bool, 2> dies_ = {false, false};  // once the other has ended what it does
    bool amid_ = false;                          // poll_amid()
    std::vector<std::unique_ptr<Connection>> connections_;
    Time now_ = 0;
    std::uint64_t steps_ = 0;
};

World::World(const Options& options, Mutant mutant)
    : options_(options), mutant_(mutant), rng_(options.seed ^ 0x5eed) {
    seed_stags(options.seed);
    if (options.faults) fault::install();
    for (int i = 0; i < 2; ++i) {
        host_[i] = std::make_unique<Host>(
            i == 0 ? "A" : "B", arena_memory(i).first(options.arena_bytes),
            options.faults ? arena_memory(i).last(kDoubtfulBytes) : Bytes{}, options_, rng_);
    }
    if (options_.links) {
        memory_ =
            std::make_unique<SimMemory>(options_.layout, options_.memory, rng_.next(), mutant);
        memory_->on_store = [this](unsigned who) { poll_amid(1 - who); };
        for (unsigned i = 0; i < 2; ++i) {
            link_[i] = std::make_unique<HostLink>(*memory_, options_.layout, i, options_.credit,
                                                  rng_.next());
            link_at_[i] = 0;
        }
    }
    for (unsigned pair = 0; pair < options_.pairs; ++pair) connect(pair);
}

void World::connect(unsigned number) {
    const Options::Pair& pair = options_.pair[number];
    connections_.push_back(std::make_unique<Connection>());
    Connection& c = *connections_.back();
    c.reset_at = pair.reset_at;
    for (unsigned i = 0; i < 2; ++i) c.pipe[i] = std::make_unique<Pipe>(pair.pipe[i], rng_.next());
    for (unsigned i = 0; i < 2; ++i) {
        Host& host = *host_[i];
        c.name[i] = std::string(host.name) + std::to_string(number);
        const bool one_cq = rng_.chance(30);
        c.cq[2 * i] = host.cq ? host.cq : std::make_shared<CompletionQueue>(4);
        c.cq[2 * i + 1] = host.cq || one_cq ? c.cq[2 * i] : std::make_shared<CompletionQueue>(4);
        c.end[i] = std::make_unique<Endpoint>(Endpoint::Parts{
            .options = &pair.end[i],
            .link = {.out = c.pipe[i].get(), .in = c.pipe[1 - i].get(), .reset = &c.reset},
            .qp_num = number + 1,
            .context = 1000 + number,
            .pd = Program::kPd,
            .memory = &host.table,
            .reader = &host.reader,
            .rq = host.srq ? host.srq : std::make_shared<RecvQueue>(pair.end[i].rq_depth),
            .rq_shared = host.srq != nullptr,
            .records = options_.records,
            .send_cq = c.cq[2 * i].get(),
            .recv_cq = c.cq[2 * i + 1].get(),
            .rnr_timeout = options_.rnr_timeout,
            .unmapped = options_.faults ? &host.unmapped : nullptr,
            .first_msn = pair.first_msn,
            .mutant = mutant_,
            .seed = rng_.next(),
            .name = c.name[i].c_str()});
        c.program[i] =
            std::make_unique<Program>(host, *c.end[i], options_, pair, mutant_, rng_.next());
        host.programs.push_back(c.program[i].get());
        c.step_at[i] = rng_.magnitude(kMillisecond);
        c.run_at[i] = rng_.magnitude(kMillisecond);
    }
    c.program[0]->meet(*c.program[1]);
    c.program[1]->meet(*c.program[0]);
    c.number = number;
    for (unsigned i = 0; i < 2; ++i) {
        c.program[i]->register_regions();
        if (pair.start_at == 0) continue;
        c.run_at[i] = pair.start_at;
        c.step_at[i] += pair.start_at + 1;
    }
    if (pair.start_at == 0) start(c);
}

void World::start(Connection& c) {
    c.started = true;
    if (options_.links) {
        const unsigned opener = options_.pair[c.number].opener;
        try {
            take_slot(options_.pair[c.number], c.end, link_, c.number + 1);
        } catch (const Killed&) {
            die(opener);
        }
        end_cycle(opener, false);
    }
    for (unsigned i = 0; i < 2; ++i) {
        if (!dead_[i]) c.end[i]->start(now_);
    }
}

// -- over a link --

/// What a host has stored for the other, which may sleep.
void World::end_cycle(unsigned host, bool idle) {
    if (!link_[host] || dead_[host]) return;
    bool wake = false;
    try {
        wake = link_[host]->link().end_cycle(idle);
        // What it waits for may be more by now.
        shm::Link& link = link_[host]->link();
        if (link_at_[host] == kNever && link.must_sleep_anew() && !link.begin_sleep()) {
            link_at_[host] = now_;
        }
    } catch (const Killed&) {
        return die(host);
    }
    if (!wake || mutant_ == Mutant::skip_wake) return;
    link_at_[1 - host] = std::min(link_at_[1 - host], now_ + rng_.magnitude(20'000));
}

void World::poll_link(unsigned host) {
    link_at_[host] = now_;
    Host& h = *host_[host];
    for (const auto& c : connections_) c->end[host]->set_time(now_);
    bool again = false;
    h.take_memory_away();
    h.reader.enter();
    try {
        again = link_[host]->poll();
    } catch (const Killed&) {
        h.reader.leave();
        h.give_memory_back();
        return die(host);
    } catch (...) {
        h.give_memory_back();
        throw;
    }
    h.reader.leave();
    h.give_memory_back();
    link_at_[host] = again ? now_ + 1 + rng_.magnitude(5'000) : kNever;
    wake_touched(host);
    end_cycle(host, !again);
}

/// Between two stores of the other host. What either does to the other's connections waits.
void World::poll_amid(unsigned host) {
    if (amid_ || dead_[host] || !link_[host] || link_at_[host] == kNever) return;
    amid_ = true;
    poll_link(host);
    amid_ = false;
}

/// A process is killed: the kernel finishes its sockets, and the other process reads what it left.
void World::die(unsigned host) {
    if (dead_[host]) return;
    if (amid_) {  // the other is in the middle of something
        dies_[host] = true;
        link_at_[host] = kNever;
        return;
    }
    SIM_TRACE("%12llu %s is killed", static_cast<unsigned long long>(now_), host_[host]->name);
    dead_[host] = true;
    link_at_[host] = kNever;
    for (const auto& c : connections_) {
        c->pipe[host]->finish(now_);
        c->run_at[host] = c->step_at[host] = kNever;
        wake(*c, 1 - host);
    }
    if (dead_[1 - host]) return;
    Host& other = *host_[1 - host];
    for (const auto& c : connections_) c->end[1 - host]->set_time(now_);
    other.reader.enter();
    try {
        link_[1 - host]->peer_died();
    } catch (const Killed&) {
        other.reader.leave();
        return die(1 - host);
    }
    other.reader.leave();
    wake_touched(1 - host);
}

/// What was polled may concern any connection of the host.
void World::wake_touched(unsigned host) {
    for (const auto& c : connections_) {
        if (!c->end[host]->take_touched()) continue;
        wake(*c, host);
        if (c->reset) wake(*c, 1 - host);
    }
}

/// When the poller of an end runs next: when it asked to, or when something arrives.
Time World::poll_time(const Connection& c, unsigned end) const {
    if (dead_[end] || c.end[end]->descriptor_closed()) return kNever;
    Time at = c.run_at[end];
    if (!c.end[end]->peer_finished() && !c.end[end]->ddp.rx_blocked()) {
        const Time arrival = c.pipe[1 - end]->next_arrival();
        if (arrival != kNever) at = std::min(at, std::max(arrival, c.ran_at[end] + 500));
    }
    return at;
}

World::Actor World::next_actor(Time& at) {
    Actor next;
    at = kNever;
    const auto consider = [&](Time time, const Actor& actor) {
        if (time < at || (time == at && time != kNever && rng_.chance(50))) {
            at = time;
            next = actor;
        }
    };
    for (unsigned host = 0; host < 2; ++host) {
        if (link_at_[host] != kNever) consider(link_at_[host], {.end = host, .link = true});
    }
    for (const auto& c : connections_) {
        for (unsigned end = 0; end < 2; ++end) {
            consider(poll_time(*c, end), {c.get(), end, false});
            consider(c->step_at[end], {c.get(), end, true});
        }
    }
    return next;
}

void World::wake(Connection& c, unsigned end) {
    c.run_at[end] = std::min(c.run_at[end], now_ + rng_.magnitude(20'000));
}

void World::poll_end(Connection& c, unsigned end) {
    if (!c.started) {
        start(c);
        c.run_at = {now_, now_};
        return;
    }
    const std::uint64_t taken = c.pipe[1 - end]->taken();
    const bool was_reset = c.reset;
    c.ran_at[end] = now_;
    c.run_at[end] = kNever;
    host_[end]->take_memory_away();
    try {
        c.run_at[end] = c.end[end]->run(now_);
    } catch (const Killed&) {
        host_[end]->give_memory_back();
        return die(end);
    } catch (...) {
        host_[end]->give_memory_back();
        throw;
    }
    host_[end]->give_memory_back();
    // Room for the peer to write, or the end of it all.
    if (c.pipe[1 - end]->taken() != taken || c.reset != was_reset) wake(c, 1 - end);
    if (c.reset && !was_reset) {
        for (const auto& pipe : c.pipe) pipe->drop();
    }
    wake_touched(end);
    end_cycle(end, false);
}

void World::step_program(Connection& c, unsigned end) {
    Program::Step step;
    try {
        step = c.program[end]->step(now_);
    } catch (const Killed&) {
        return die(end);
    }
    end_cycle(end, false);
    c.step_at[end] = c.end[end]->ended() && !host_[end]->srq ? kNever : step.again;
    wake(c, end);
    if (c.reset) wake(c, 1 - end);
    if (!step.posted_shared) return;
    for (const auto& other : connections_) wake(*other, end);
}

void World::check_memory() {
    for (const auto& host : host_) {
        host->arena.check(host->name);
        if (host->doubtful) host->doubtful->check(host->name);
    }
    for (const auto& c : connections_) {
        for (const auto& program : c->program) program->check_regions();
    }
}

/// Nothing of the connections is left in them, once what was owed is said.
void World::check_links() {
    if (!memory_ || dead_[0] || dead_[1]) return;
    for (int round = 0; round < 4; ++round) {
        for (const auto& link : link_) link->drain();
    }
    for (unsigned i = 0; i < 2; ++i) {
        if (link_[i]->link().connections() != 0) {
            fail("%s: %zu slots are left", host_[i]->name, link_[i]->link().connections());
        }
    }
}

bool World::over() const {
    return std::all_of(connections_.begin(), connections_.end(), [this](const auto& c) {
        return (dead_[0] || c->end[0]->descriptor_closed()) &&
               (dead_[1] || c->end[1]->descriptor_closed());
    });
}

void World::abort_all() {
    for (const auto& c : connections_) {
        for (unsigned i = 0; i < 2; ++i) {
            if (dead_[i]) continue;
            try {
                if (!c->started) start(*c);
                c->end[i]->abort();
            } catch (const Killed&) {
                die(i);
            }
        }
    }
}

Result World::run() {
    const std::uint64_t check_every = std::max<std::uint64_t>(32, options_.arena_bytes / 16384);
    while (!over()) {
        Time at = kNever;
        const Actor actor = next_actor(at);
        for (const auto& c : connections_) {
            if (c->reset_at > std::min(at, kNever - 1) || c->reset) continue;
            now_ = std::max(now_, c->reset_at);
            SIM_TRACE("%12llu reset", static_cast<unsigned long long>(now_));
            c->reset = true;
            for (const auto& pipe : c->pipe) pipe->drop();
            wake(*c, 0);
            wake(*c, 1);
        }
        const bool late = at > (options_.clean ? kCleanDeadline : kTimeout);
        if (at == kNever || late || ++steps_ > kMaxSteps) {
            if (options_.clean) {
                fail("nothing goes wrong in this world, yet it does not end (%s)",
                     at == kNever ? "no end has anything to do"
                     : late       ? "time"
                                  : "steps");
            }
            abort_all();
            continue;
        }
        now_ = std::max(now_, at);
        SIM_TRACE("%12llu %s %s", static_cast<unsigned long long>(now_),
                  actor.link ? host_[actor.end]->name : actor.connection->name[actor.end].c_str(),
                  actor.link      ? "polls its link"
                  : actor.program ? "steps"
                                  : "runs");
        if (actor.link) {
            poll_link(actor.end);
        } else if (actor.program) {
            step_program(*actor.connection, actor.end);
        } else {
            poll_end(*actor.connection, actor.end);
        }
        for (unsigned i = 0; i < 2; ++i) {
            if (dies_[i]) die(i);
        }
        if (steps_ % check_every == 0) check_memory();
    }

    check_memory();
    Result result{.steps = steps_, .ended_at = now_};
    for (const auto& c : connections_) {
        if (c->end[0]->established() && c->end[1]->established() &&
            c->end[0]->in_memory() != c->end[1]->in_memory()) {
            fail("%s: the ends went different ways", c->name[0].c_str());
        }
        for (unsigned i = 0; i < 2; ++i) {
            if (!dead_[i]) c->program[i]->check_end(*c->pipe[1 - i]);
            result.bytes += c->pipe[i]->taken();
            result.operations += c->program[i]->operations_posted();
            result.messages += c->program[i]->delivered();
            result.established += c->end[i]->established();
            result.linked += c->end[i]->established() && c->end[i]->in_memory();
            result.failed += c->program[i]->failed();
        }
    }
    // Nothing touches memory any more, and nothing is left behind.
    check_memory();
    for (const auto& c : connections_) {
        for (const auto& program : c->program) program->tidy_up();
    }
    check_links();
    for (unsigned i = 0; i < 2; ++i) {
        const auto& host = host_[i];
        if (dead_[i]) continue;
        if (host->srq && host->srq->size() != host->receives.size()) {
            fail("%s: the shared queue holds %u receives, %zu were not completed", host->name,
                 host->srq->size(), host->receives.size());
        }
        if (!host->table.remove(host->arena_key))
            fail("%s: the key of the arena is gone", host->name);
        if (host->doubtful && !host->table.remove(host->doubtful_key))
            fail("%s: the key of the memory that comes and goes is gone", host->name);
        if (host->table.size() != 0)
            fail("%s: %zu regions are left", host->name, host->table.size());
        for (const auto& [id, receive] : host->receives) {
            for (const Buffer& piece : receive.pieces) {
                if (piece.bytes > 0) host->arena_of(piece.at).close(piece.at);
                host->arena_of(piece.at).give(piece.at);
            }
        }
        host->arena.check(host->name);
        if (!host->arena.empty() || (host->doubtful && !host->doubtful->empty()))
            fail("%s: buffers are left whose work never completed", host->name);
    }
    return result;
}

}  // namespace

Result run_world(const Options& options, Mutant mutant) { return World(options, mutant).run(); }

}  // namespace xsock::sim
