// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// An epoll descriptor that has DDPMODE members. Its plain members, and DDPMODE sockets while they
// are kernel-ready, stay in the kernel's set (KernelEpoll); the others are kept here, with a ready
// list that their wake-ups fill, so that a wait costs what is ready and not what is there. The
// rules are those of the kernel's eventpoll.c: a wake-up puts a member on the list, a wait asks
// each member on it whether it is ready indeed, level-triggered ones go back to its end,
// edge-triggered ones leave it.
#pragma once

#include <sys/epoll.h>
#include <sys/types.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "base/result.hpp"
#include "base/spin_lock.hpp"
#include "libxsock/poll/kernel_epoll.hpp"
#include "libxsock/poll/ready_list.hpp"
#include "libxsock/poll/source.hpp"
#include "libxsock/poll/wait.hpp"
#include "transport/fork.hpp"

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

    /// KernelEpoll::wake_waiters()
    void wake_kernel_waiters() { kernel_.wake_waiters(); }

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
    struct Change : ListLink<Change> {};
    struct Member final : Watcher, ReadyList::Entry, Change {
        Member(EpollSet& owner, Source& watched, int number, const epoll_event& event)
            : Entry(event), set(owner), source(&watched), fd(number) {
            set_exclusive((event.events & EPOLLEXCLUSIVE) != 0);
        }
        bool on_wake(std::uint32_t events) noexcept override { return set.on_wake(*this, events); }
        void on_mode_changed() noexcept override { set.on_mode_changed(*this); }
        void on_retired() noexcept override { set.on_retired(*this); }

        EpollSet& set;
        Source* source;
        const int fd;
        ino_t inode = 0;  // of the socket behind fd, to know it again
        // Under mutex_.
        bool in_kernel = false;
        PollGroup* progress = nullptr;
    };
    using Members = std::unordered_multimap<int, std::unique_ptr<Member>>;
    class Waiting;

    EpollSet(int epfd, std::size_t kernel_members) noexcept
        : kernel_(epfd, kernel_members), set_generation_(process_generation()) {}

    bool on_wake(Member& member, std::uint32_t events) noexcept;
    void on_mode_changed(Member& member) noexcept;
    void on_retired(Member& member) noexcept;

    // With mutex_ held.
    Members::iterator find(int fd, const Source* source);
    Members::iterator make_member(int fd, Source& source, const epoll_event& event);
    void forget(Members::iterator at);
    int enter_kernel(Member& member);
    void leave_kernel(Member& member);
    bool apply_mode_changes();  ///< true: there was something
    void check_member(Member& member) noexcept;
    template <typename Take>
    int check_ready(int room, Take&& take);
    int collect(epoll_event* out, int room);
    void use_progress(Member& member, PollGroup* progress);
    void embed_if_watched(PollGroup& progress);

    // With ready_lock_ held.
    void push(Member& member) noexcept;

    void forget_if_forked();

    // Under mutex_. Destroyed last: our descriptors hold the kernel's set no longer than the
    // program's do.
    KernelEpoll kernel_;
    std::atomic<std::uint32_t> set_generation_;

    std::mutex mutex_;  // members, and taking from the ready list
    Members members_;
    bool kernel_first_ = false;  // takes turns
    struct Use {
        PollGroup* progress;
        std::size_t members;
    };
    std::vector<Use> uses_;

    SpinLock ready_lock_;
    ReadyList ready_;
    IntrusiveList<Change> changing_;  // members whose source has changed its mode, latest first
};

}  // namespace xsock::readiness
