// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Progress: who moves the bytes of a set of connections, and when (docs/threading.md).
//
// Whoever waits drives. A pass over the connections runs under the driver lock, which is only ever
// tried on the data path: a poster that finds it taken flags its connection and goes on, and the
// holder looks at the flags after letting go. A blocking caller becomes the leader, sleeps in epoll
// without the lock and is woken through an eventfd only if it does sleep. A libuv thread
// (progress_thread) takes over when no caller has driven for a tick.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <set>
#include <unordered_map>
#include <vector>

#include "base/biased_lock.hpp"
#include "base/bytes.hpp"
#include "base/completion_queue.hpp"
#include "base/doorbell.hpp"
#include "base/epoch.hpp"
#include "base/result.hpp"
#include "transport/clock.hpp"
#include "transport/config.hpp"
#include "transport/spin_score.hpp"

namespace xsock {

class Interrupt;
class Progress;
class ProgressThread;
class SoftChannel;

/// Its address tells who holds a driver lock. Initial-exec: found without a call.
[[gnu::tls_model("initial-exec")]] extern thread_local constinit char this_driver;

/// One pass of a driver, as the things it drives see it.
class Pass {
  public:
    Pass(Bytes buffer, Epochs::Reader& reader) : staging(buffer), reader_(reader) {}

    /// Asked of the clock once in a pass, and only if somebody wants to know.
    Time now() noexcept {
        if (now_ == 0) now_ = monotonic_now();
        return now_;
    }
    /// To be called before memory of the program is looked up or touched; the section lasts until
    /// the end of the pass. Most polls find nothing, and need none.
    void enter_section() noexcept {
        if (!inside_) reader_.enter();
        inside_ = true;
    }
    void leave_section() noexcept {
        if (inside_) reader_.leave();
        inside_ = false;
    }
    Bytes staging;           ///< where received octets go first; shared by all connections
    bool by_caller = false;  ///< a thread of the program drives
    int patience = 0;        ///< times that finding nothing is worth another look at once
    bool active = false;     ///< set by whoever moved octets, completed work or changed a state
    bool sent_much = false;  ///< so much that a look for something to read costs nothing beside it

  private:
    Epochs::Reader& reader_;
    bool inside_ = false;
    Time now_ = 0;
};

/// Something with a descriptor in a Progress. All functions are called by the driver.
class Pollable : public std::enable_shared_from_this<Pollable> {
  public:
    virtual ~Pollable() = default;
    /// The descriptor is ready (epoll bits), or might be (EPOLLIN tried on a guess).
    virtual void on_ready(std::uint32_t events, Pass& pass) = 0;
    /// Called ahead of on_kick(), and after a further kick would come in vain no more: whatever was
    /// queued by one who took the earlier kick for sufficient is visible afterwards.
    virtual void meet_kickers() {}
    /// Something was posted, or room was made.
    virtual void on_kick(Pass& pass) = 0;
    /// The deadline given to Progress::set_deadline() has come.
    virtual void on_time(Pass& pass) = 0;
    /// Something that it did ran out of memory: end, without asking for more.
    virtual void on_failure(Pass& pass) noexcept = 0;
    /// The process is about to exit: finish what is queued.
    virtual void on_exit(Pass&) {}
    /// Something that was queued has not been handed to TCP yet.
    [[nodiscard]] virtual bool draining() const { return false; }

    /// Something that was queued could be sent, but for want of room.
    [[nodiscard]] virtual bool unsent() const { return false; }

  protected:
    /// The completion channels that its descriptor belongs to, each once. Before it is registered.
    void set_channels(std::array<std::shared_ptr<SoftChannel>, 2> channels) noexcept {
        channels_ = std::move(channels);
    }
    [[nodiscard]] const auto& channels() const noexcept { return channels_; }

    /// In a forked child: the Progress that it was registered with is the parent's.
    void forget_progress() noexcept {
        kicked_.store(false, std::memory_order_relaxed);
        registered_ = false;
        in_channels_ = false;
        fd_ = -1;
        deadline_ = kNever;
    }

  private:
    friend class Progress;
    std::atomic<bool> kicked_{false};  // is in Progress::kicked_
    bool registered_ = false;          // the driver only, as are the next
    bool owns_fd_ = false;             // nobody else had declared fd_ as the library's own
    int fd_ = -1;
    std::uint32_t events_ = 0;  // what epoll was asked for
    bool in_channels_ = false;  // channels_ watch fd_
    Time deadline_ = kNever;
    std::array<std::shared_ptr<SoftChannel>, 2> channels_;  // may be null
};

/// Memory for headers, trailers and small payloads on their way out; kept by a connection only
/// while it has unwritten octets.
struct TxBuffer {
    static constexpr std::size_t kOctets = 256 * 1024;
    std::unique_ptr<std::byte[]> memory{new std::byte[kOctets]};
    [[nodiscard]] Bytes bytes() const noexcept { return {memory.get(), kOctets}; }
};

class Progress {
  public:
    static Result<std::unique_ptr<Progress>> create(Epochs& epochs, const TransportConfig& config,
                                                    unsigned index);
    ~Progress();
    Progress(const Progress&) = delete;
    Progress& operator=(const Progress&) = delete;

    // -- callers, any thread --

    /// One pass, if nobody else is driving. What every poll does.
    void drive();
    /// The same, and asks epoll in any case: nothing that has arrived by now is left for later.
    void drive_thoroughly();
    /// drive_thoroughly() that waits for the lock.
    void poll_thoroughly();
    /// Serves the ready members of `channel`, which are all items of this Progress, and what was
    /// posted to any item. Waits for the lock: the caller was woken for them.
    void poll_channel(SoftChannel& channel);

    /// Drives, then sleeps, until `done()` or the deadline. `done` must be cheap and free of locks
    /// that drivers take. @return done()
    bool wait(const std::function<bool()>& done, Time deadline);

    /// `item` has something to send that may wait for others (gather): it goes with the next pass.
    void kick_later(Pollable& item) {
        if (!item.kicked_.load(std::memory_order_seq_cst)) kick_later_anew(item);
    }
    /// `item` has something to do: now, in this thread, or by whoever drives at the moment.
    void kick_now(Pollable& item);

    /// Runs `f(pass)` as the driver. Waits for the lock; not from inside a pass.
    template <typename F>
    void locked(F&& f) {
        lock();
        Driving driving(*this);
        f(driving.pass);
    }

    enum class Waited : std::uint8_t { done, timeout, interrupted };
    /// The same for calls that signals interrupt. `restart`: handlers with SA_RESTART do not, as
    /// long as there is no deadline (signal(7)).
    Waited wait_interruptibly(const std::function<bool()>& done, Time deadline, bool restart);

    // -- callers that sleep in a poll() of their own, with other descriptors beside ours --

    /// One that sleeps while somebody else leads; told when nobody does any more.
    class Follower {
      public:
        /// Somebody must lead(), or unfollow() so that the next one is told. A lock of the Progress
        /// is held.
        virtual void on_lead_free() noexcept = 0;

      protected:
        ~Follower() = default;
    };

    /// Makes the caller the leader if there is none and callers may drive at all. As leader it
    /// looks once more at what it waits for and at work_waiting(), then polls lead_fds() for
    /// POLLIN, and calls end_lead() when it woke.
    [[nodiscard]] bool lead();
    [[nodiscard]] std::array<int, 2> lead_fds() const noexcept { return {epoll_fd_, bell_fd_}; }
    /// `rung`: the second of lead_fds() was readable. Makes a pass.
    void end_lead(bool rung);
    /// Between these two the follower is told when nobody leads; at once if that is so already.
    void follow(Follower& follower);
    void unfollow(Follower& follower);
    /// How long a caller that waits now may spin before it sleeps; 0: not at all. Who did spin says
    /// by count_spin() whether he found what he waited for.
    [[nodiscard]] Time spin_budget() noexcept;
    void count_spin(bool found) noexcept { spin_score_.count(found); }
    /// For callers that drive no more but sleep: the thread shall.
    void ring_thread();
    /// The caller will not drive for a while: the background thread takes over at once instead of
    /// after its tick.
    void hand_over() noexcept;
    /// The thread: was hand_over() called since the last time it asked?
    [[nodiscard]] bool take_hand_over() noexcept {
        return handed_over_.load(std::memory_order_relaxed) &&
               handed_over_.exchange(false, std::memory_order_acquire);
    }
    /// A caller has polled an armed, empty queue: unless another pass follows, callers are inactive
    /// from now on, and the background thread serves what comes next.
    void note_idle() noexcept {
        idle_after_.store(caller_passes() + kIdleMark, std::memory_order_relaxed);
    }
    /// The number of caller passes is that at the last note_idle().
    [[nodiscard]] bool idle_since(std::uint64_t passes) const noexcept {
        return idle_after_.load(std::memory_order_relaxed) == passes + kIdleMark;
    }

    /// Grows with every pass that a caller made or slept for: the thread's sign that it is not
    /// needed.
    [[nodiscard]] std::uint64_t caller_passes() const noexcept {
        return caller_passes_.load(std::memory_order_relaxed);
    }
    /// Polls readable when a pass may find something: for loops that embed us.
    [[nodiscard]] int embed();
    [[nodiscard]] ProgressMode mode() const noexcept { return config_.progress; }
    [[nodiscard]] const TransportConfig& config() const noexcept { return config_; }
    /// Counts passes; posts with the same number belong to one poll interval.
    [[nodiscard]] std::uint64_t interval() const noexcept {
        return interval_.load(std::memory_order_relaxed);
    }
    /// Makes the background thread if the mode wants one and it is not there yet.
    void ensure_thread();
    /// Lets callers that sleep look again at what they wait for. Any thread.
    void wake_sleepers();
    /// Around fork() (transport/fork.hpp): nothing is under way in between, unless fork() is called
    /// by a signal handler that interrupted a pass. The child abandon()s: its copies of all
    /// descriptors are closed, and nothing of this is used any more; what is in the middle of a
    /// wait, because a handler of its thread forked, ends it. (After a handler that interrupted a
    /// pass they stay open, for the list of them may be half changed.)
    void begin_fork() noexcept;
    void end_fork() noexcept;
    void abandon() noexcept;
    /// This thread is inside a pass: asked by what a signal handler may call in the middle of one.
    [[nodiscard]] bool driven_by_this_thread() const noexcept {
        return lock_.load(std::memory_order_relaxed) == &this_driver;
    }
    /// Registered items; a hint.
    [[nodiscard]] std::size_t size() const noexcept {
        return registered_count_.load(std::memory_order_relaxed);
    }
    /// Tells every item that the process exits, and drives until none is draining or the deadline.
    void drain(Time deadline);
    /// Drives until no item has unsent() octets, or the deadline.
    void flush(Time deadline);

    // -- the driver only (inside a pass) --

    /// Keeps the processor quiet for so long, some us at most, or until somebody was kicked.
    void relax(Time duration) noexcept;

    /// Emptied at the end of the pass, or earlier.
    [[nodiscard]] CompletionBatch& completions() noexcept { return completions_; }
    Result<void> add(std::shared_ptr<Pollable> item, int fd, std::uint32_t events);
    void modify(Pollable& item, std::uint32_t events);
    /// The item may be destroyed after this pass. Does not close the descriptor.
    void remove(Pollable& item);
    void set_deadline(Pollable& item, Time deadline);
    /// From now on the item's completion channels watch its descriptor too.
    void join_channels(Pollable& item);
    [[nodiscard]] std::unique_ptr<TxBuffer> take_tx_buffer();
    void give_tx_buffer(std::unique_ptr<TxBuffer> buffer);

    // -- the background thread only --

    enum class ThreadPass : std::uint8_t {
        busy,  ///< a caller drives at this moment
        idle,  ///< nothing moved
        moved,
    };
    /// One pass if nobody else drives. `take_over`: everything is watched by epoll afterwards.
    ThreadPass thread_pass(bool take_over);
    /// The thread looks in by itself every few milliseconds; then callers need not keep everything
    /// watched by epoll. Set to false before thread_pass(true).
    void set_thread_ticking(bool ticking) noexcept {
        thread_ticking_.store(ticking, std::memory_order_seq_cst);
    }
    [[nodiscard]] int epoll_fd() const noexcept { return epoll_fd_; }
    /// True when a pass is owed that no caller may be about to make.
    [[nodiscard]] bool work_waiting() const noexcept {
        return kicked_count_.load(std::memory_order_seq_cst) != 0;
    }
    Doorbell& thread_bell() noexcept { return thread_bell_; }
    [[nodiscard]] bool has_leader() const noexcept {
        return leader_.load(std::memory_order_seq_cst);
    }

  private:
    Progress(Epochs& epochs, const TransportConfig& config, unsigned index);

    // Callers that race may lose a count; that it changed is all that the thread wants to know.
    void count_caller_pass() noexcept {
        caller_passes_.store(caller_passes_.load(std::memory_order_relaxed) + 1,
                             std::memory_order_relaxed);
    }
    /// A pass under way, by whoever holds the lock; ends and lets go also when something throws.
    struct Driving {
        explicit Driving(Progress& progress) noexcept
            : owner(progress), pass(progress.begin_pass()) {}
        ~Driving() {
            owner.end_pass(pass);
            owner.unlock();
        }
        Driving(const Driving&) = delete;
        Driving& operator=(const Driving&) = delete;
        Progress& owner;
        Pass pass;
    };
    /// Calls into an item. Out of memory is that item's failure, nobody else's.
    template <typename F>
    static void call(Pollable& item, Pass& pass, F&& f) noexcept {
        try {
            f();
        } catch (...) {
            item.on_failure(pass);
        }
    }
    [[nodiscard]] bool callers_drive() const noexcept {
        return config_.progress != ProgressMode::thread ||
               ringable_.load(std::memory_order_relaxed) == nullptr;
    }

    static inline const char kAbandoned = 0;  // its address, as that of a holder who never lets go
    [[nodiscard]] bool abandoned() const noexcept {
        return lock_.load(std::memory_order_relaxed) == &kAbandoned;
    }
    bool try_lock() noexcept {
        const char* nobody = nullptr;
        return lock_.compare_exchange_strong(nobody, &this_driver, std::memory_order_seq_cst);
    }
    void lock() noexcept;
    void unlock() noexcept;
    Pass begin_pass() noexcept;
    void end_pass(Pass& pass) noexcept;
    void run_pass(Pass& pass);
    void serve_kicked(Pass& pass);
    void serve_ready(Pass& pass);
    bool serve_hot(Pass& pass);
    void make_hot(Pollable& item);
    void detach_hot();
    void attach_hot();
    void watch(Pollable& item);
    void serve_deadlines(Pass& pass);
    Waited wait(const std::function<bool()>& done, Time deadline, Interrupt* interrupt);
    /// True: the bell was rung.
    bool sleep_as_leader(Time deadline, Interrupt* interrupt);
    bool sleep_as_follower(std::uint32_t seen, Time deadline);
    bool sleep_as_waiter(const std::function<bool()>& done, bool may_drive, Time deadline,
                         Interrupt& interrupt);
    void wake_followers();
    void close_descriptors() noexcept;
    int signal_descriptor();
    void offer_lead();
    void update_timer();
    void kick_later_anew(Pollable& item);
    bool add_kicked(Pollable& item);  ///< false: it is in the list already
    bool spin(const std::function<bool()>& done, Time deadline);

    const TransportConfig config_;
    const unsigned index_;
    int epoll_fd_ = -1;
    int bell_fd_ = -1;   // eventfd: wakes the leader, who alone reads it
    int embed_fd_ = -1;  // eventfd: makes fd() readable for a loop that embeds us
    int timer_fd_ = -1;  // timerfd: earliest deadline

    alignas(64) std::atomic<const char*> lock_{nullptr};  // the driver lock: its holder
    bool fork_in_pass_ = false;                           // between begin_fork() and end_fork()
    std::atomic<bool> urgent_{false};                     // kicked while the lock was taken
    std::atomic<std::uint64_t> interval_{0};
    std::atomic<std::uint64_t> caller_passes_{0};
    static constexpr std::uint64_t kIdleMark = 1;  // 0: note_idle() was never called
    std::atomic<std::uint64_t> idle_after_{0};

    alignas(64) BiasedLock kicked_lock_;
    std::vector<std::shared_ptr<Pollable>> kicked_;
    std::atomic<std::size_t> kicked_count_{0};

    // Sleeping callers: one leader in epoll, the others here.
    std::atomic<bool> leader_{false};
    Doorbell leader_bell_;
    std::mutex followers_mutex_;
    std::atomic<std::uint32_t> followers_{0};
    std::atomic<std::uint32_t> follower_wakes_{0};  // a futex: grows with each wake-up
    std::atomic<int> signal_fd_{-1};                // made when first needed
    /// A follower in a call that signals interrupt: asleep on an eventfd beside the signals'.
    struct Waiter {
        const std::function<bool()>* done;
        int fd;
        bool rung;
    };
    static void ring(Waiter& waiter) noexcept;
    std::vector<Waiter*> waiters_;  // under followers_mutex_, as are the next two
    std::vector<int> events_;       // the eventfds made for them
    std::vector<int> idle_events_;  // of these, in use by none
    std::atomic<std::size_t> waiter_count_{0};
    std::vector<Follower*> polling_followers_;  // under followers_mutex_
    std::atomic<std::size_t> polling_count_{0};
    SpinScore spin_score_;

    Doorbell thread_bell_;
    std::atomic<bool> thread_ticking_{false};
    std::atomic<bool> handed_over_{false};
    std::atomic<bool> embedded_{false};      // somebody watches epoll_fd_ from outside
    std::atomic<bool> hot_detached_{false};  // written under the driver lock
    std::once_flag thread_once_;
    std::unique_ptr<ProgressThread> thread_;
    std::atomic<ProgressThread*> ringable_{nullptr};  // thread_, once it runs

    // Under the driver lock.
    Epochs::Reader reader_;
    std::unique_ptr<std::byte[]> staging_;
    CompletionBatch completions_;
    std::vector<std::unique_ptr<TxBuffer>> tx_buffers_;
    std::unordered_map<Pollable*, std::shared_ptr<Pollable>> items_;
    std::atomic<std::size_t> registered_count_{0};
    std::vector<std::shared_ptr<Pollable>> serving_;    // scratch of serve_kicked()
    std::vector<std::shared_ptr<Pollable>> graveyard_;  // removed in this pass
    std::set<std::pair<Time, Pollable*>> deadlines_;
    Time armed_timer_ = kNever;
    Pollable* hot_ = nullptr;  // received last: tried without asking epoll
    std::uint32_t passes_since_epoll_ = 0;
    bool thorough_ = false;            // this pass asks epoll
    std::uint32_t hot_idle_ = 0;       // passes since hot_ last moved something
    std::uint32_t looks_put_off_ = 0;  // passes since hot_ was last tried
    std::uint32_t hot_passes_ = 0;     // by callers, since hot_ was made hot or attached
    bool last_epoll_was_single_ = true;
};

}  // namespace xsock
