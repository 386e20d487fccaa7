// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "libxsock/poll/epoll_set.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <new>
#include <utility>

#include "base/poll_group.hpp"
#include "base/random.hpp"
#include "libxsock/poll/eventpoll_info.hpp"
#include "libxsock/poll/membership.hpp"
#include "transport/descriptors.hpp"
#include "transport/fork.hpp"
#include "transport/log.hpp"

namespace xsock::readiness {
namespace {

constexpr std::uint32_t kAlways = EPOLLERR | EPOLLHUP;
// Bits that say how, not what. A member with no other bit is disabled (EPOLLONESHOT has fired).
constexpr std::uint32_t kHow = EPOLLWAKEUP | EPOLLONESHOT | EPOLLET | EPOLLEXCLUSIVE;
constexpr std::uint32_t kExclusiveMay =
    EPOLLIN | EPOLLOUT | EPOLLERR | EPOLLHUP | EPOLLWAKEUP | EPOLLET | EPOLLEXCLUSIVE;
// When the kernel's answer was filled by what is not shown, it is asked again.
constexpr int kKernelRounds = 4;

// What the kernel tells of our own descriptors in a program's set, never shown to the program. A
// random number, since any number may be one of the program's.
std::uint64_t hidden_data() noexcept {
    static const std::uint64_t number = std::uint64_t{random_u32()} << 32 | random_u32();
    return number;
}

ino_t inode_of(int fd) noexcept {
    struct stat status {};
    return fstat(fd, &status) == 0 ? status.st_ino : 0;
}

}  // namespace

// ---- making and ending -----------------------------------------------------

EpollSet::EpollSet(int epfd) : epfd_(epfd), set_generation_(process_generation()) {}

Result<std::unique_ptr<EpollSet>> EpollSet::create(int epfd) {
    watch_forks();
    // Asks the kernel whether it is an epoll descriptor, and changes nothing: ENOENT if it is.
    auto some = WaiterPool::instance().acquire();
    if (!some) return some.error();
    epoll_event event{};
    if (epoll_ctl(epfd, EPOLL_CTL_DEL, (*some)->fd(), &event) != 0 && errno != ENOENT) {
        return Error{errno, "not an epoll descriptor"};
    }
    auto own = duplicate_descriptor(epfd);
    if (!own) return own.error();
    std::unique_ptr<EpollSet> set;
    try {
        set.reset(new EpollSet(*own));
    } catch (...) {
        close_internal_fd(*own);
        return Error{ENOMEM, "out of memory"};
    }
    // What was there before. Without /proc the worst is assumed: it only costs system calls.
    set->kernel_members_ = count_registered(epfd).value_or(SIZE_MAX / 2);
    if (is_nested(epfd).value_or(true)) set->allow_outside_watch();
    return set;
}

EpollSet::~EpollSet() {
    retire();
    {
        const std::lock_guard members(epoll_membership_lock());
        if (set_generation_.load(std::memory_order_relaxed) == process_generation()) {
            for (auto& [fd, member] : members_) {
                if (member->source != nullptr) member->source->remove_watcher(*member);
            }
        } else {
            // The parent's: its sources are not to be touched.
            for (auto& [fd, member] : members_) (void)member.release();
        }
    }
    // Our descriptors hold the kernel's set no longer than the program's do.
    mirror_.close();
    close_internal_fd(epfd_);
}

// In a forked child the kernel's part of the set is shared with the parent and goes on; our part
// belongs to the parent's threads and connections.
void EpollSet::forget_if_forked() {
    if (set_generation_.load(std::memory_order_acquire) == process_generation()) return;
    const std::lock_guard members(epoll_membership_lock());
    if (set_generation_.load(std::memory_order_relaxed) == process_generation()) return;
    for (auto& [fd, member] : members_) (void)member.release();
    members_.clear();
    new (&mutex_) std::mutex;
    new (&ready_lock_) SpinLock;
    uses_.clear();
    first_ = last_ = changing_ = nullptr;
    waiters_ = nullptr;
    awake_ = 0;
    mirror_.close();
    mirror_set_ = false;
    set_generation_.store(process_generation(), std::memory_order_release);
}

// ---- the ready list --------------------------------------------------------

void EpollSet::append(Member& member) noexcept {
    member.ready = true;
    member.next = nullptr;
    member.previous = last_;
    (last_ != nullptr ? last_->next : first_) = &member;
    last_ = &member;
}

void EpollSet::unlink(Member& member) noexcept {
    if (!member.ready) return;
    member.ready = false;
    (member.previous != nullptr ? member.previous->next : first_) = member.next;
    (member.next != nullptr ? member.next->previous : last_) = member.previous;
    member.next = member.previous = nullptr;
}

void EpollSet::unlist(Waiter& waiter) noexcept {
    if (!waiter.listed) return;
    waiter.listed = false;
    (waiter.previous != nullptr ? waiter.previous->next : waiters_) = waiter.next;
    if (waiter.next != nullptr) waiter.next->previous = waiter.previous;
    waiter.next = waiter.previous = nullptr;
}

// One waiter for each event, as the kernel does; a thread that leaves while events remain wakes the
// next.
void EpollSet::wake_one() noexcept {
    if (awake_ != 0 || waiters_ == nullptr) return;
    Waiter& waiter = *waiters_;
    unlist(waiter);
    waiter.notify();
}

// The sleeping threads do not watch the Progress that is used from now on: all wake, and one of
// them leads it.
void EpollSet::wake_all() noexcept {
    const std::lock_guard hold(ready_lock_);
    while (waiters_ != nullptr) {
        Waiter& waiter = *waiters_;
        unlist(waiter);
        waiter.notify();
    }
}

void EpollSet::push(Member& member) noexcept {
    if (member.told) {
        member.woken = true;  // collect() lists it when it is through
    } else if (!member.ready) {
        append(member);
    }
    if (mirror_.is_open()) {
        mirror_set_ = true;
        mirror_.notify();
    }
    wake_one();
    wake(EPOLLIN | EPOLLRDNORM);
}

bool EpollSet::on_wake(Member& member, std::uint32_t events) noexcept {
    const std::lock_guard hold(ready_lock_);
    if ((member.wanted & ~kHow) == 0 || (member.wanted & events) == 0) return false;
    const bool has_waiters = awake_ != 0 || waiters_ != nullptr;
    push(member);
    return has_waiters;
}

void EpollSet::on_mode_changed(Member& member) noexcept {
    const std::lock_guard hold(ready_lock_);
    if (!member.changing) {
        member.changing = true;
        member.next_changing = std::exchange(changing_, &member);
    }
    // Waiting threads must check the kernel's set again; so must watchers outside.
    push(member);
}

// Asks at once what a wake-up would have told later.
void EpollSet::check_member(Member& member) noexcept {
    const std::uint32_t events = member.source->events();
    const std::lock_guard hold(ready_lock_);
    if ((member.wanted & ~kHow) != 0 && (member.wanted & events) != 0) push(member);
}

void EpollSet::clear_mirror_if_empty() {
    const std::lock_guard hold(ready_lock_);
    if (!mirror_set_ || first_ != nullptr) return;
    mirror_set_ = false;
    mirror_.take();
}

// ---- members ---------------------------------------------------------------

EpollSet::Members::iterator EpollSet::find(int fd, const Source* source) {
    const auto [begin, end] = members_.equal_range(fd);
    const auto at =
        std::find_if(begin, end, [&](const auto& entry) { return entry.second->source == source; });
    return at == end ? members_.end() : at;
}

void EpollSet::forget(Members::iterator at) {
    Member& member = *at->second;
    use_progress(member, nullptr);
    {
        const std::lock_guard hold(ready_lock_);
        unlink(member);
        if (member.changing) {
            Member** link = &changing_;
            while (*link != &member) link = &(*link)->next_changing;
            *link = member.next_changing;
        }
    }
    members_.erase(at);
    clear_mirror_if_empty();
}

void EpollSet::use_progress(Member& member, PollGroup* progress) {
    if (member.progress == progress) return;
    const auto of = [this](const PollGroup* p) {
        return std::find_if(uses_.begin(), uses_.end(),
                            [p](const Use& use) { return use.progress == p; });
    };
    if (progress != nullptr) {
        if (const auto use = of(progress); use != uses_.end()) {
            ++use->members;
        } else {
            uses_.push_back({progress, 1});
            embed_if_watched(*progress);
            wake_all();
        }
    }
    if (member.progress != nullptr) {
        const auto use = of(member.progress);
        if (--use->members == 0) uses_.erase(use);
    }
    member.progress = progress;
}

int EpollSet::add_to_kernel(int fd, const epoll_event& event) {
    epoll_event copy = event;
    if (epoll_ctl(epfd_, EPOLL_CTL_ADD, fd, &copy) != 0) return -errno;
    ++kernel_members_;
    return 0;
}

// A socket that became plain TCP goes on under the program's own registration. The kernel looks at
// it at once, so that nothing that has come meanwhile is missed.
int EpollSet::enter_kernel(Member& member) {
    epoll_event event{};
    {
        const std::lock_guard hold(ready_lock_);
        unlink(member);
        event.events = member.wanted;
        event.data = member.data;
    }
    use_progress(member, nullptr);
    if ((event.events & ~kHow) == 0) return 0;  // disabled: it enters when it is armed again
    if (inode_of(member.fd) != member.inode) return -EBADF;  // closed, and the number used again
    const int result = add_to_kernel(member.fd, event);
    if (result == 0) member.in_kernel = true;
    return result;
}

void EpollSet::leave_kernel(Member& member) {
    epoll_event event{};
    if (inode_of(member.fd) == member.inode) {
        if (epoll_ctl(epfd_, EPOLL_CTL_DEL, member.fd, &event) == 0 && kernel_members_ > 0) {
            --kernel_members_;
        }
        // A socket that was added before listen(), or before DDPREQUIRE, begins to accept now.
        member.source->begin_watch(member.fd);
    }
    member.in_kernel = false;
    use_progress(member, member.source->progress());
    check_member(member);
}

bool EpollSet::apply_mode_changes() {
    for (bool some = false;; some = true) {
        Member* member = nullptr;
        {
            const std::lock_guard hold(ready_lock_);
            if (changing_ == nullptr) return some;
            member = std::exchange(changing_, changing_->next_changing);
            member->changing = false;
        }
        const bool kernel_ready = member->source->kernel_ready();
        if (kernel_ready && !member->in_kernel) {
            const int result = enter_kernel(*member);
            if (result != 0) {
                log(LogLevel::warn, "epoll-move", "descriptor %d cannot go on in its epoll set: %s",
                    member->fd, std::strerror(-result));
            }
        } else if (!kernel_ready && member->in_kernel) {
            leave_kernel(*member);
        }
    }
}

void EpollSet::on_retired(Member& member) noexcept {
    const std::lock_guard hold(mutex_);
    const auto [begin, end] = members_.equal_range(member.fd);
    const auto at =
        std::find_if(begin, end, [&](const auto& entry) { return entry.second.get() == &member; });
    member.source->remove_watcher(member);
    if (!member.in_kernel && member.source->kernel_ready()) {
        // Not closed, but out of the program's table because it is plain TCP.
        (void)enter_kernel(member);
        if (!member.in_kernel && (member.wanted & ~kHow) == 0) {
            const std::lock_guard list(ready_lock_);
            if (member.changing) {
                Member** link = &changing_;
                while (*link != &member) link = &(*link)->next_changing;
                *link = member.next_changing;
                member.changing = false;
            }
            member.source = nullptr;  // stays until it is armed or taken out
            return;
        }
    }
    forget(at);
}

int EpollSet::add(int fd, Source* source, const epoll_event& given) {
    forget_if_forked();
    epoll_event event = given;
    event.events |= kAlways;
    if ((event.events & EPOLLEXCLUSIVE) != 0 && (event.events & ~kExclusiveMay) != 0) {
        return -EINVAL;
    }
    if (source != nullptr) source->begin_watch(fd);
    const std::lock_guard both(epoll_membership_lock());
    const std::lock_guard hold(mutex_);
    apply_mode_changes();
    if (const auto parked = find(fd, nullptr); parked != members_.end()) {
        if (inode_of(fd) == parked->second->inode) return -EEXIST;
        forget(parked);  // of a descriptor that was closed
    }
    if (source == nullptr) return add_to_kernel(fd, given);
    if (find(fd, source) != members_.end()) return -EEXIST;

    // The kernel's opinion of the descriptor, and whether it was there before it was in DDPMODE.
    epoll_event probe{};
    probe.events = EPOLLET | EPOLLONESHOT;
    probe.data.u64 = hidden_data();
    if (epoll_ctl(epfd_, EPOLL_CTL_ADD, fd, &probe) != 0) return -errno;
    epoll_ctl(epfd_, EPOLL_CTL_DEL, fd, &probe);

    auto made = std::make_unique<Member>(*this, *source, fd, event);
    Member& member = *made;
    member.inode = inode_of(fd);
    const auto at = members_.emplace(fd, std::move(made));
    source->add_watcher(member);
    if (source->kernel_ready()) {
        const int result = enter_kernel(member);
        if (result != 0) {
            source->remove_watcher(member);
            forget(at);
        }
        return result;
    }
    use_progress(member, source->progress());
    check_member(member);
    return 0;
}

int EpollSet::adopt(int fd, Source& source) {
    forget_if_forked();
    const std::lock_guard both(epoll_membership_lock());
    const std::lock_guard hold(mutex_);
    apply_mode_changes();
    // Exactly, for ways that passed us by.
    kernel_members_ = count_registered(epfd_).value_or(kernel_members_);
    for (const Registration& registration : registrations_of(fd, epfd_)) {
        if (registration.event.data.u64 == hidden_data()) continue;
        if (find(registration.fd, &source) != members_.end()) continue;
        auto made = std::make_unique<Member>(*this, source, registration.fd, registration.event);
        Member& member = *made;
        member.inode = inode_of(registration.fd);
        member.in_kernel = true;
        members_.emplace(registration.fd, std::move(made));
        source.add_watcher(member);
        if (!source.kernel_ready()) leave_kernel(member);
    }
    return 0;
}

int EpollSet::modify(int fd, Source* source, const epoll_event& given) {
    forget_if_forked();
    epoll_event event = given;
    event.events |= kAlways;
    const std::lock_guard hold(mutex_);
    apply_mode_changes();
    auto at = find(fd, source);
    if (at == members_.end()) at = find(fd, nullptr);
    if (at == members_.end()) {
        return epoll_ctl(epfd_, EPOLL_CTL_MOD, fd, &event) == 0 ? 0 : -errno;
    }
    Member& member = *at->second;
    if (((event.events | member.wanted) & EPOLLEXCLUSIVE) != 0) return -EINVAL;
    {
        const std::lock_guard list(ready_lock_);
        member.wanted = event.events;
        member.data = event.data;
    }
    if (member.in_kernel) {
        return epoll_ctl(epfd_, EPOLL_CTL_MOD, fd, &event) == 0 ? 0 : -errno;
    }
    if (member.source == nullptr || member.source->kernel_ready()) {
        const int result = enter_kernel(member);
        if (member.source == nullptr) forget(at);
        return result;
    }
    check_member(member);
    return 0;
}

int EpollSet::remove(int fd, Source* source) {
    forget_if_forked();
    const std::lock_guard both(epoll_membership_lock());
    const std::lock_guard hold(mutex_);
    apply_mode_changes();
    auto at = find(fd, source);
    if (at == members_.end()) at = find(fd, nullptr);
    bool in_kernel = true;
    if (at != members_.end()) {
        Member& member = *at->second;
        in_kernel = member.in_kernel;
        if (member.source != nullptr) member.source->remove_watcher(member);
        forget(at);
    }
    epoll_event event{};
    if (!in_kernel) return 0;
    if (epoll_ctl(epfd_, EPOLL_CTL_DEL, fd, &event) != 0) return -errno;
    if (kernel_members_ > 0) --kernel_members_;
    return 0;
}

// ---- waiting ---------------------------------------------------------------

class EpollSet::Waiting final : public Target {
  public:
    Waiting(EpollSet& set, epoll_event* out, int room) : set_(set), out_(out), room_(room) {
        {
            const std::lock_guard hold(set_.ready_lock_);
            ++set_.awake_;
        }
        const std::lock_guard hold(set_.mutex_);
        copy_progresses();
    }
    ~Waiting() {
        const std::lock_guard hold(set_.ready_lock_);
        --set_.awake_;
        if (set_.first_ != nullptr) set_.wake_one();
    }
    Waiting(const Waiting&) = delete;
    Waiting& operator=(const Waiting&) = delete;

    int check(Kernel kernel) override {
        if (found_ != 0) return found_;  // level-triggered ones would come twice
        if (kernel == Kernel::polled) kernel = fds_[0].revents != 0 ? Kernel::ask : Kernel::skip;
        const std::lock_guard hold(set_.mutex_);
        if (set_.apply_mode_changes()) kernel = Kernel::ask;
        const bool ask = kernel == Kernel::ask && set_.kernel_members_ != 0;
        bool kernel_next = false;
        if (ask) {
            // Neither kind of member keeps the other out when there is not room for both.
            kernel_next = set_.kernel_first_ = !set_.kernel_first_;
        }
        if (kernel_next) {
            if (const int n = take_kernel(); n < 0) return n;
        }
        found_ += set_.collect(out_ + found_, room_ - found_);
        if (ask && !kernel_next) {
            if (const int n = take_kernel(); n < 0 && found_ == 0) return n;
        }
        copy_progresses();
        return found_;
    }
    std::span<PollGroup* const> progresses() override {
        return {progresses_.data(), progress_count_};
    }
    KernelSet kernel() override {
        fds_[0] = {set_.epfd_, POLLIN, 0};
        return {fds_, 1};
    }
    void prepare_wait(Waiter& waiter) override {
        const std::lock_guard hold(set_.ready_lock_);
        --set_.awake_;
        waiter.listed = true;
        waiter.previous = nullptr;
        waiter.next = set_.waiters_;
        if (waiter.next != nullptr) waiter.next->previous = &waiter;
        set_.waiters_ = &waiter;
    }
    void finish_wait(Waiter& waiter) override {
        const std::lock_guard hold(set_.ready_lock_);
        set_.unlist(waiter);
        ++set_.awake_;
    }

  private:
    int take_kernel() {
        if (found_ == room_) return 0;
        const int n = set_.collect_kernel(out_ + found_, room_ - found_);
        if (n > 0) found_ += n;
        return n;
    }
    void copy_progresses() {
        progress_count_ = std::min(set_.uses_.size(), progresses_.size());
        for (std::size_t i = 0; i < progress_count_; ++i) {
            progresses_[i] = set_.uses_[i].progress;
        }
    }

    EpollSet& set_;
    epoll_event* const out_;
    const int room_;
    int found_ = 0;
    std::array<pollfd, 1 + kExtraFds> fds_{};
    std::array<PollGroup*, kMaxProgresses> progresses_;
    std::size_t progress_count_ = 0;
};

int EpollSet::wait(epoll_event* out, int room, Time deadline, const sigset_t* mask) {
    forget_if_forked();
    Waiting waiting(*this, out, room);
    return wait_for(waiting, deadline, mask);
}

int EpollSet::collect(epoll_event* out, int room) {
    int found = 0;
    Member* told = nullptr;  // latest first; linked by next_told
    std::size_t checks = members_.size() + 1;
    while (found < room && checks-- > 0) {
        Member* member = nullptr;
        {
            const std::lock_guard hold(ready_lock_);
            if (first_ == nullptr) break;
            member = first_;
            unlink(*member);  // before it is asked: a wake-up from here on lists it again
        }
        const std::uint32_t ready = member->source == nullptr ? 0 : member->source->events();
        const std::lock_guard hold(ready_lock_);
        const std::uint32_t events = ready & member->wanted;
        if (member->in_kernel || (member->wanted & ~kHow) == 0 || events == 0) continue;
        out[found].events = events;
        out[found].data = member->data;
        ++found;
        // Once in one answer, however often it is woken meanwhile.
        member->told = true;
        member->woken = member->ready;
        unlink(*member);
        member->next_told = std::exchange(told, member);
        if ((member->wanted & EPOLLONESHOT) != 0) member->wanted &= kHow;
    }
    {
        const std::lock_guard hold(ready_lock_);
        Member* in_order = nullptr;
        while (told != nullptr) {
            Member* const member = std::exchange(told, told->next_told);
            member->next_told = std::exchange(in_order, member);
        }
        // Level-triggered ones go to the end of the list, in the order in which they were told.
        while (in_order != nullptr) {
            Member* const member = std::exchange(in_order, in_order->next_told);
            const bool level = (member->wanted & EPOLLET) == 0;
            member->told = false;
            if ((member->wanted & ~kHow) != 0 && (level || member->woken)) append(*member);
        }
    }
    clear_mirror_if_empty();
    return found;
}

// The events of the members that the kernel keeps, without those of our own descriptors among them.
int EpollSet::collect_kernel(epoll_event* out, int room) {
    int found = 0;
    for (int round = 0; round < kKernelRounds; ++round) {
        const int asked = room - found;
        const int n = epoll_wait(epfd_, out + found, asked, 0);
        if (n < 0) return found > 0 || errno == EINTR ? found : -errno;
        const int shown = filter_internal(out + found, n);
        found += shown;
        if (shown > 0 || n < asked) break;
    }
    return found;
}

int EpollSet::filter_internal(epoll_event* events, int count) noexcept {
    const std::uint64_t hidden = hidden_data();
    epoll_event* const end = std::remove_if(
        events, events + count, [&](const epoll_event& e) { return e.data.u64 == hidden; });
    return static_cast<int>(end - events);
}

// Level-triggered, so that none is left out; the kernel wakes one after the other. What comes new
// is in our wait already. A thread that has checked for a handle, but not entered the kernel yet,
// is not seen; it sleeps until something plain happens, or its time limit.
void EpollSet::wake_kernel_waiters() {
    constexpr int kChecks = 2000;  // one that runs on in the program is not waited for any longer
    constexpr unsigned kPauseUs = 500;
    EventFd always;
    // Nothing is asked of it yet: it only marks the instance.
    epoll_event event{};
    event.data.u64 = hidden_data();
    if (!always.open(EventFd::Kind::flag, 1) ||
        epoll_ctl(epfd_, EPOLL_CTL_ADD, always.fd(), &event) != 0) {
        log(LogLevel::warn, "epoll-wake", "threads asleep in an epoll set cannot be woken: %s",
            std::strerror(errno));
        return;
    }
    try {
        KernelWaiters waiters(always.fd());
        if (waiters.check()) {
            event.events = EPOLLIN;
            epoll_ctl(epfd_, EPOLL_CTL_MOD, always.fd(), &event);
            for (int checks = 0; checks < kChecks && waiters.check(); ++checks) usleep(kPauseUs);
        }
    } catch (...) {
        log(LogLevel::error, "no-memory", "threads asleep in an epoll set cannot be woken");
    }
    epoll_ctl(epfd_, EPOLL_CTL_DEL, always.fd(), &event);
}

// ---- watched from outside --------------------------------------------------

void EpollSet::allow_outside_watch() {
    forget_if_forked();
    const std::lock_guard hold(mutex_);
    if (mirror_.is_open()) return;
    EventFd mirror;
    epoll_event event{};
    event.events = EPOLLIN;
    event.data.u64 = hidden_data();
    if (!mirror.open() || epoll_ctl(epfd_, EPOLL_CTL_ADD, mirror.fd(), &event) != 0) {
        log(LogLevel::warn, "epoll-nested", "a nested epoll set cannot be watched: %s",
            std::strerror(errno));
        return;
    }
    ++kernel_members_;
    {
        const std::lock_guard list(ready_lock_);
        mirror_ = std::move(mirror);
        if (first_ != nullptr) push(*first_);
    }
    for (const Use& use : uses_) embed_if_watched(*use.progress);
}

// While the program sleeps on the outer descriptor it is woken for each cycle that may be of use:
// the background thread would be woken first and take the program's last calls for activity.
void EpollSet::embed_if_watched(PollGroup& progress) {
    const int fd = mirror_.is_open() ? progress.embed() : -1;
    if (fd < 0) return;
    epoll_event event{};
    event.events = EPOLLIN;
    event.data.u64 = hidden_data();
    if (epoll_ctl(epfd_, EPOLL_CTL_ADD, fd, &event) == 0) ++kernel_members_;
}

std::uint32_t EpollSet::events() const noexcept {
    auto& self = const_cast<EpollSet&>(*this);
    const std::lock_guard hold(self.mutex_);
    self.apply_mode_changes();
    for (std::size_t checks = members_.size(); checks > 0; --checks) {
        Member* member = nullptr;
        {
            const std::lock_guard list(self.ready_lock_);
            if (first_ == nullptr) break;
            member = first_;
            self.unlink(*member);
        }
        const std::uint32_t ready = member->source == nullptr ? 0 : member->source->events();
        const std::lock_guard list(self.ready_lock_);
        if (member->in_kernel || (ready & member->wanted & ~kHow) == 0) continue;
        if (!member->ready) self.append(*member);
        return EPOLLIN | EPOLLRDNORM;
    }
    self.clear_mirror_if_empty();
    return 0;
}

std::vector<PollGroup*> EpollSet::progresses() {
    const std::lock_guard hold(mutex_);
    std::vector<PollGroup*> all;
    for (const Use& use : uses_) all.push_back(use.progress);
    return all;
}

}  // namespace xsock::readiness
