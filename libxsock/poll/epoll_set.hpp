// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// An epoll descriptor that has DDPMODE members. Its plain members, and DDPMODE sockets while they
// are kernel-ready, stay in the kernel's set; the others are kept here, with a ready list that
// their wake-ups fill, so that a wait costs what is ready and not what is there. The rules are
// those of the kernel's eventpoll.c: a wake-up puts a member on the list, a wait asks each member
// on it whether it is ready indeed, level-triggered ones go back to its end, edge-triggered ones
// leave it.
#pragma once

#include <sys/epoll.h>
#include <sys/types.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "base/result.hpp"
#include "base/spin_lock.hpp"
#include "libxsock/poll/source.hpp"
#include "libxsock/poll/wait.hpp"
#include "transport/event_fd.hpp"

namespace xsock::readiness {

class EpollSet final : public Source {
  public:
    /// For the epoll instance behind `epfd`, of which a descriptor of our own is kept.
    /// EBADF, EINVAL (not an epoll descriptor), EMFILE, ENOMEM.
    static Result<std::unique_ptr<EpollSet>> create(int epfd);
    ~EpollSet();

    // -- epoll_ctl(); 0 or a negative errno --

    /// `source` null: a plain descriptor. `event` as the call wants it.
    int add(int fd, Source* source, const epoll_event& event);
    int modify(int fd, Source* source, const epoll_event& event);
    int remove(int fd, Source* source);

    /// The kernel's registrations of the socket behind `fd`, from before it was in DDPMODE, become
    /// members.
    int adopt(int fd, Source& source);

    /// Wakes the threads that sleep on the kernel's set alone, from before it was ours: each gets
    /// an event that filter_internal() removes. When it returns none is asleep there, as far as can
    /// be seen.
    void wake_kernel_waiters();
    /// Removes what is not for the program from an answer of the kernel's. @return how many are
    /// left
    static int filter_internal(epoll_event* events, int count) noexcept;

    /// epoll_wait(): events, 0, or a negative errno.
    int wait(epoll_event* out, int room, Time deadline, const sigset_t* mask);

    /// The descriptor itself may be watched from outside, through the kernel: from now on it is
    /// readable there whenever a member of ours is ready.
    void allow_outside_watch();

    // -- one that is itself polled --

    std::uint32_t events() const noexcept override;
    bool kernel_ready() const noexcept override { return false; }
    PollGroup* progress() const noexcept override { return nullptr; }
    /// Those of the members.
    [[nodiscard]] std::vector<PollGroup*> progresses();

  private:
    struct Member final : Watcher {
        Member(EpollSet& owner, Source& watched, int number, const epoll_event& event)
            : set(owner), source(&watched), fd(number), wanted(event.events), data(event.data) {
            set_exclusive((event.events & EPOLLEXCLUSIVE) != 0);
        }
        bool on_wake(std::uint32_t events) noexcept override { return set.on_wake(*this, events); }
        void on_mode_changed() noexcept override { set.on_mode_changed(*this); }
        void on_retired() noexcept override { set.on_retired(*this); }

        EpollSet& set;
        Source* source;
        const int fd;
        ino_t inode = 0;  // of the socket behind fd, to know it again
        // Under ready_lock_.
        std::uint32_t wanted;
        epoll_data_t data;
        bool ready = false;     // is in the ready list
        bool changing = false;  // is in the list of changing_
        Member* next = nullptr;
        Member* previous = nullptr;
        Member* next_changing = nullptr;
        bool told = false;   // is in the answer that collect() makes
        bool woken = false;  // since it was told
        Member* next_told = nullptr;
        // Under mutex_.
        bool in_kernel = false;
        PollGroup* progress = nullptr;
    };
    using Members = std::unordered_multimap<int, std::unique_ptr<Member>>;
    class Waiting;

    explicit EpollSet(int epfd);

    bool on_wake(Member& member, std::uint32_t events) noexcept;
    void on_mode_changed(Member& member) noexcept;
    void on_retired(Member& member) noexcept;

    // With mutex_ held.
    Members::iterator find(int fd, const Source* source);
    void forget(Members::iterator at);
    int add_to_kernel(int fd, const epoll_event& event);
    int enter_kernel(Member& member);
    void leave_kernel(Member& member);
    bool apply_mode_changes();  ///< true: there was something
    void check_member(Member& member) noexcept;
    int collect(epoll_event* out, int room);
    int collect_kernel(epoll_event* out, int room);
    void use_progress(Member& member, PollGroup* progress);
    void clear_mirror_if_empty();
    void embed_if_watched(PollGroup& progress);
    void wake_all() noexcept;

    // With ready_lock_ held.
    void append(Member& member) noexcept;
    void unlink(Member& member) noexcept;
    void push(Member& member) noexcept;
    void unlist(Waiter& waiter) noexcept;
    void wake_one() noexcept;

    void forget_if_forked();

    const int epfd_;  // our own
    std::atomic<std::uint32_t> set_generation_;

    std::mutex mutex_;  // members, and taking from the ready list
    Members members_;
    std::size_t kernel_members_ = 0;  // at most so many are in the kernel's set
    bool kernel_first_ = false;       // takes turns
    struct Use {
        PollGroup* progress;
        std::size_t members;
    };
    std::vector<Use> uses_;

    SpinLock ready_lock_;
    Member* first_ = nullptr;  // the ready list
    Member* last_ = nullptr;
    Member* changing_ = nullptr;  // members whose source has changed its mode, latest first
    Waiter* waiters_ = nullptr;   // threads asleep in wait(), latest first
    std::size_t awake_ = 0;       // threads in wait() that will look before they sleep
    EventFd mirror_;              // in the kernel's set; see allow_outside_watch()
    bool mirror_set_ = false;
};

}  // namespace xsock::readiness
