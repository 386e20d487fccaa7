// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "libxsock/poll/epoll_set.hpp"

#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <new>
#include <utility>

#include "base/poll_group.hpp"
#include "libxsock/poll/membership.hpp"
#include "transport/descriptors.hpp"
#include "transport/fork.hpp"
#include "transport/log.hpp"

namespace xsock::readiness {
namespace {

constexpr std::uint32_t kAlways = EPOLLERR | EPOLLHUP;
constexpr std::uint32_t kExclusiveMay =
    EPOLLIN | EPOLLOUT | EPOLLERR | EPOLLHUP | EPOLLWAKEUP | EPOLLET | EPOLLEXCLUSIVE;
ino_t inode_of(int fd) noexcept {
    struct stat status {};
    return fstat(fd, &status) == 0 ? status.st_ino : 0;
}

}  // namespace

// ---- making and ending -----------------------------------------------------

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
    // What was there before. Without /proc the worst is assumed: it only costs system calls.
    const std::size_t members = count_registered(epfd).value_or(SIZE_MAX / 2);
    std::unique_ptr<EpollSet> set(new (std::nothrow) EpollSet(*own, members));
    if (set == nullptr) {
        close_internal_fd(*own);
        return Error{ENOMEM, "out of memory"};
    }
    if (is_nested(epfd).value_or(true)) set->allow_outside_watch();
    return set;
}

EpollSet::~EpollSet() {
    retire();
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
    ready_.forget_all();
    changing_ = {};
    set_generation_.store(process_generation(), std::memory_order_release);
}

// ---- the ready list --------------------------------------------------------

void EpollSet::push(Member& member) noexcept {
    ready_.push(member);
    wake(EPOLLIN | EPOLLRDNORM);
}

bool EpollSet::on_wake(Member& member, std::uint32_t events) noexcept {
    const std::lock_guard hold(ready_lock_);
    if (member.wants(events) == 0) return false;
    const bool has_waiters = ready_.has_waiters();
    push(member);
    return has_waiters;
}

void EpollSet::on_mode_changed(Member& member) noexcept {
    const std::lock_guard hold(ready_lock_);
    if (!changing_.linked(member)) changing_.push_front(member);
    // Waiting threads must check the kernel's set again; so must watchers outside.
    push(member);
}

// Asks at once what a wake-up would have told later.
void EpollSet::check_member(Member& member) noexcept {
    const std::uint32_t events = member.source->events();
    const std::lock_guard hold(ready_lock_);
    if (member.wants(events) != 0) push(member);
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
        ready_.remove(member);
        ready_.clear_mirror_if_empty();
        changing_.remove(member);
    }
    members_.erase(at);
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
            // The sleeping threads do not watch it: all wake, and one of them leads it.
            const std::lock_guard hold(ready_lock_);
            ready_.wake_all();
        }
    }
    if (member.progress != nullptr) {
        const auto use = of(member.progress);
        if (--use->members == 0) uses_.erase(use);
    }
    member.progress = progress;
}

// A socket that became plain TCP goes on under the program's own registration. The kernel checks
// it at once, so that nothing that has come meanwhile is missed.
int EpollSet::enter_kernel(Member& member) {
    epoll_event event{};
    {
        const std::lock_guard hold(ready_lock_);
        ready_.remove(member);
        event.events = member.wanted;
        event.data = member.data;
    }
    use_progress(member, nullptr);
    if (member.disabled()) return 0;                         // it enters when it is armed again
    if (inode_of(member.fd) != member.inode) return -EBADF;  // closed, and the number used again
    const int result = kernel_.add(member.fd, event);
    if (result == 0) member.in_kernel = true;
    return result;
}

void EpollSet::leave_kernel(Member& member) {
    if (inode_of(member.fd) == member.inode) {
        (void)kernel_.remove(member.fd);
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
            member = static_cast<Member*>(changing_.pop_front());
        }
        if (member == nullptr) return some;
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
    const auto at = find(member.fd, member.source);
    member.source->remove_watcher(member);
    if (!member.in_kernel && member.source->kernel_ready()) {
        // Not closed, but out of the program's table because it is plain TCP.
        (void)enter_kernel(member);
        if (!member.in_kernel && member.disabled()) {
            const std::lock_guard list(ready_lock_);
            changing_.remove(member);
            member.source = nullptr;  // stays until it is armed or taken out
            return;
        }
    }
    forget(at);
}

EpollSet::Members::iterator EpollSet::make_member(int fd, Source& source,
                                                  const epoll_event& event) {
    const auto at = members_.emplace(fd, std::make_unique<Member>(*this, source, fd, event));
    at->second->inode = inode_of(fd);
    source.add_watcher(*at->second);
    return at;
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
    if (source == nullptr) return kernel_.add(fd, given);
    if (find(fd, source) != members_.end()) return -EEXIST;

    // The kernel's readiness of the descriptor, and whether it was there before it was in DDPMODE.
    if (const int result = kernel_.probe(fd); result != 0) return result;

    const auto at = make_member(fd, *source, event);
    Member& member = *at->second;
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
    for (const Registration& registration : kernel_.registrations(fd)) {
        if (find(registration.fd, &source) != members_.end()) continue;
        Member& member = *make_member(registration.fd, source, registration.event)->second;
        member.in_kernel = true;
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
    if (at == members_.end()) return kernel_.modify(fd, event);
    Member& member = *at->second;
    if (((event.events | member.wanted) & EPOLLEXCLUSIVE) != 0) return -EINVAL;
    {
        const std::lock_guard list(ready_lock_);
        member.wanted = event.events;
        member.data = event.data;
    }
    if (member.in_kernel) return kernel_.modify(fd, event);
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
    return in_kernel ? kernel_.remove(fd) : 0;
}

// ---- waiting ---------------------------------------------------------------

class EpollSet::Waiting final : public Target {
  public:
    Waiting(EpollSet& set, epoll_event* out, int room) : set_(set), out_(out), room_(room) {
        {
            const std::lock_guard hold(set_.ready_lock_);
            set_.ready_.start_checks();
        }
        const std::lock_guard hold(set_.mutex_);
        copy_progresses();
    }
    ~Waiting() {
        const std::lock_guard hold(set_.ready_lock_);
        set_.ready_.stop_checks();
    }
    Waiting(const Waiting&) = delete;
    Waiting& operator=(const Waiting&) = delete;

    int check(Kernel kernel) override {
        if (found_ != 0) return found_;  // level-triggered ones would come twice
        if (kernel == Kernel::polled) kernel = fds_[0].revents != 0 ? Kernel::ask : Kernel::skip;
        const std::lock_guard hold(set_.mutex_);
        if (set_.apply_mode_changes()) kernel = Kernel::ask;
        const bool ask = kernel == Kernel::ask && !set_.kernel_.empty();
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
        fds_[0] = {set_.kernel_.fd(), POLLIN, 0};
        return {fds_, 1};
    }
    void prepare_wait(Waiter& waiter) override {
        const std::lock_guard hold(set_.ready_lock_);
        set_.ready_.prepare_wait(waiter);
    }
    void finish_wait(Waiter& waiter) override {
        const std::lock_guard hold(set_.ready_lock_);
        set_.ready_.finish_wait(waiter);
    }

  private:
    int take_kernel() {
        if (found_ == room_) return 0;
        const int n = set_.kernel_.collect(out_ + found_, room_ - found_);
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

/// Asks the members of the ready list, until `room` of them have events; `take` has those, with
/// ready_lock_ held. @return how many
template <typename Take>
int EpollSet::check_ready(int room, Take&& take) {
    int found = 0;
    for (std::size_t checks = members_.size() + 1; found < room && checks > 0; --checks) {
        Member* member = nullptr;
        {
            const std::lock_guard hold(ready_lock_);
            member = static_cast<Member*>(ready_.pop());
        }
        if (member == nullptr) break;
        const std::uint32_t ready = member->source == nullptr ? 0 : member->source->events();
        const std::lock_guard hold(ready_lock_);
        const std::uint32_t events = member->wants(ready);
        if (member->in_kernel || events == 0) continue;
        take(*member, events);
        ++found;
    }
    return found;
}

int EpollSet::collect(epoll_event* out, int room) {
    const int found = check_ready(room, [&](Member& member, std::uint32_t events) {
        out->events = events;
        out->data = member.data;
        ++out;
        ready_.tell(member);
    });
    const std::lock_guard hold(ready_lock_);
    ready_.end_answer();
    ready_.clear_mirror_if_empty();
    return found;
}

// ---- watched from outside --------------------------------------------------

void EpollSet::allow_outside_watch() {
    forget_if_forked();
    const std::lock_guard hold(mutex_);
    if (ready_.has_mirror()) return;
    EventFd mirror;
    if (!mirror.open() || kernel_.add_internal(mirror.fd()) != 0) {
        log(LogLevel::warn, "epoll-nested", "a nested epoll set cannot be watched: %s",
            std::strerror(errno));
        return;
    }
    {
        const std::lock_guard list(ready_lock_);
        ready_.set_mirror(std::move(mirror));
        if (!ready_.empty()) wake(EPOLLIN | EPOLLRDNORM);
    }
    for (const Use& use : uses_) embed_if_watched(*use.progress);
}

// While the program sleeps on the outer descriptor it is woken for each cycle that may be of use:
// the background thread would be woken first and take the program's last calls for activity.
void EpollSet::embed_if_watched(PollGroup& progress) {
    const int fd = ready_.has_mirror() ? progress.embed() : -1;
    if (fd >= 0) (void)kernel_.add_internal(fd);
}

std::uint32_t EpollSet::events() const noexcept {
    auto& self = const_cast<EpollSet&>(*this);
    const std::lock_guard hold(self.mutex_);
    self.apply_mode_changes();
    const bool ready =
        self.check_ready(1, [&](Member& member, std::uint32_t) { self.ready_.keep(member); }) != 0;
    const std::lock_guard list(self.ready_lock_);
    self.ready_.clear_mirror_if_empty();
    return ready ? EPOLLIN | EPOLLRDNORM : 0;
}

std::vector<PollGroup*> EpollSet::progresses() {
    const std::lock_guard hold(mutex_);
    std::vector<PollGroup*> all;
    for (const Use& use : uses_) all.push_back(use.progress);
    return all;
}

}  // namespace xsock::readiness
