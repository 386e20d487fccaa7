// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "transport/stats.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <mutex>
#include <new>
#include <string>
#include <vector>

#include "base/random.hpp"
#include "base/wall_clock.hpp"
#include "include/xsock/xsock.h"
#include "transport/descriptors.hpp"
#include "transport/fork.hpp"
#include "transport/log.hpp"
#include "transport/plain_sockets.hpp"

namespace xsock {
namespace {

// A page of memory holds few slots, and most processes have few connections.
constexpr std::uint32_t kSlotsPerStep = 16;
constexpr std::uint32_t kPlainPerStep = 256;
constexpr std::size_t kMappedBytes =
    kStatsSlotsAt + std::size_t{kStatsMaxSlots} * sizeof(StatsSlot);

/// The file of this process, mapped. Connections come and go far less often than they work, so a
/// mutex is good enough for taking slots and giving them back.
class Page {
  public:
    /// Null when there shall be none, or cannot be one. `sweep`: removes those of killed processes.
    static std::unique_ptr<Page> create(bool sweep) noexcept;

    /// A zeroed slot and its index; null when all are taken.
    StatsSlot* take(std::uint32_t& index);
    void give_back(std::uint32_t index) noexcept;
    void count_startup_dropped() noexcept {
        StatsHeader& h = header();
        std::atomic_ref(h.startups_dropped)
            .store(h.startups_dropped + 1, std::memory_order_relaxed);
    }
    void count_unpinned(kernel::Unpinned reason) noexcept {
        std::uint64_t& count = header().unpinned[static_cast<std::size_t>(reason)];
        std::atomic_ref(count).store(count + 1, std::memory_order_relaxed);
    }
    /// Of the descriptor `fd`, whose socket has that inode.
    void note_plain(std::uint32_t fd, std::uint64_t inode, PlainReason reason,
                    PlainRole role) noexcept;
    /// The listener `fd` has that record already, by the same number.
    [[nodiscard]] bool has_listener(std::uint32_t fd, PlainReason reason) const noexcept;
    void unlink_file() const noexcept { ::unlink(path_.c_str()); }
    [[nodiscard]] std::uint32_t pid() const noexcept { return pid_; }

    const Page* inherited = nullptr;  // of the parent of a forked process: kept, not used

  private:
    Page(std::byte* memory, std::string path, std::uint32_t pid)
        : memory_(memory), path_(std::move(path)), pid_(pid) {}
    [[nodiscard]] StatsHeader& header() const noexcept {
        return *reinterpret_cast<StatsHeader*>(memory_);
    }
    [[nodiscard]] StatsSlot& slot(std::uint32_t index) const noexcept {
        return *reinterpret_cast<StatsSlot*>(memory_ + kStatsSlotsAt + index * sizeof(StatsSlot));
    }
    [[nodiscard]] PlainRecord& plain(std::uint32_t fd) const noexcept {
        return *reinterpret_cast<PlainRecord*>(memory_ + kStatsPlainAt + fd * sizeof(PlainRecord));
    }
    static std::unique_ptr<Page> create_in(int folder, const std::string& folder_path);
    bool grow();
    bool grow_plain(std::uint32_t fd) noexcept;
    [[nodiscard]] bool reserve_more(std::size_t from, std::size_t to) const noexcept;

    std::byte* memory_;  // never unmapped: pollers store into it until the process ends
    const std::string path_;
    const std::uint32_t pid_;
    std::vector<std::uint32_t> free_;
};

// Never destroyed: other threads may still be in here when the process exits.
std::mutex mutex;            // guards all below
Page* page = nullptr;        // of the process `page_pid`
std::uint32_t page_pid = 0;  // 0: not tried yet
std::uint32_t page_generation = 0;
bool exit_registered = false;

void remove_at_exit() {
    const std::lock_guard lock(mutex);
    if (page != nullptr && page->pid() == static_cast<std::uint32_t>(getpid())) {
        page->unlink_file();
    }
}

/// A file may be so long; to exceed the limit would be a SIGXFSZ.
bool allows(std::size_t bytes) {
    rlimit limit{};
    if (getrlimit(RLIMIT_FSIZE, &limit) != 0 || limit.rlim_cur >= bytes) return true;
    errno = EFBIG;
    return false;
}

/// Reserves the memory behind a part of the file: a store into a hole that shared memory has no
/// room for would be a SIGBUS.
bool reserve(int fd, std::size_t from, std::size_t to) {
    return allows(to) &&
           posix_fallocate(fd, static_cast<off_t>(from), static_cast<off_t>(to - from)) == 0;
}

constexpr std::size_t plain_end(std::uint32_t records) {
    return kStatsPlainAt + records * sizeof(PlainRecord);
}
constexpr std::size_t slots_end(std::uint32_t slots) {
    return kStatsSlotsAt + slots * sizeof(StatsSlot);
}

std::unique_ptr<Page> Page::create(bool sweep) noexcept {
    int folder = -1;
    std::unique_ptr<Page> made;
    try {
        const std::string folder_path = stats_folder();
        if (folder_path.empty()) return nullptr;
        folder = open_stats_folder(folder_path, true);
        if (folder < 0) {
            log(LogLevel::info, "stat-unavailable", "%s: %s", folder_path.c_str(),
                std::strerror(errno));
            return nullptr;
        }
        if (sweep) sweep_stats_folder(folder);
        made = create_in(folder, folder_path);
    } catch (const std::bad_alloc&) {
        log(LogLevel::info, "stat-unavailable", "out of memory");
    }
    if (folder >= 0) ::close(folder);
    return made;
}

std::unique_ptr<Page> Page::create_in(int folder, const std::string& folder_path) {
    const auto pid = static_cast<std::uint32_t>(getpid());
    char name[64];
    std::snprintf(name, sizeof name, "%u-%llu-%08x%08x", pid,
                  static_cast<unsigned long long>(own_pid_namespace()), random_u32(), random_u32());
    // What may run out of memory comes before there is anything to give back.
    std::string path = folder_path + "/" + name;
    const std::uint64_t start_time = process_start_time(pid);
    const int fd = openat(folder, name, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    void* memory = MAP_FAILED;
    // The first records belong to it; between them and the slots lies a hole until it is needed.
    if (fd >= 0 && allows(kStatsSlotsAt) && reserve(fd, 0, plain_end(kPlainPerStep)) &&
        ftruncate(fd, kStatsSlotsAt) == 0) {
        memory =
            mmap(nullptr, kMappedBytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd, 0);
    }
    std::unique_ptr<Page> made;
    if (memory != MAP_FAILED) {
        made.reset(new (std::nothrow) Page(static_cast<std::byte*>(memory), std::move(path), pid));
    }
    if (made == nullptr) {
        log(LogLevel::info, "stat-unavailable", "%s/%s: %s", folder_path.c_str(), name,
            std::strerror(errno));
        if (memory != MAP_FAILED) munmap(memory, kMappedBytes);
        if (fd >= 0) unlinkat(folder, name, 0);
    } else {
        StatsHeader& header = made->header();
        header.version = kStatsVersion;
        header.slots_at = kStatsSlotsAt;
        header.slot_size = sizeof(StatsSlot);
        header.plain_at = kStatsPlainAt;
        header.plain_records = kPlainPerStep;
        header.start_time = start_time;
        header.opened_ns = wall_clock_now();
        header.pid = pid;
        set_stats_text(header.program, program_invocation_short_name);
        std::snprintf(header.library, sizeof header.library, "%d.%d.%d", XSOCK_VERSION_MAJOR,
                      XSOCK_VERSION_MINOR, XSOCK_VERSION_PATCH);
        std::atomic_thread_fence(std::memory_order_release);
        std::memcpy(header.magic, kStatsMagic, sizeof kStatsMagic);
    }
    if (fd >= 0) ::close(fd);  // the mapping keeps the file; no descriptor of the program's is used
    return made;
}

bool Page::reserve_more(std::size_t from, std::size_t to) const noexcept {
    const int fd = open(path_.c_str(), O_RDWR | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0) return false;
    const bool reserved = reserve(fd, from, to);
    ::close(fd);
    return reserved;
}

bool Page::grow() {
    const std::uint32_t slots = header().slots;
    if (slots + kSlotsPerStep > kStatsMaxSlots) return false;
    if (!reserve_more(slots_end(slots), slots_end(slots + kSlotsPerStep))) return false;
    free_.reserve(slots + kSlotsPerStep);  // giving back must not fail
    for (std::uint32_t i = kSlotsPerStep; i-- > 0;) free_.push_back(slots + i);
    std::atomic_ref(header().slots).store(slots + kSlotsPerStep, std::memory_order_release);
    return true;
}

bool Page::grow_plain(std::uint32_t fd) noexcept {
    if (fd >= kStatsMaxPlain) return false;
    const std::uint32_t records = header().plain_records;
    const std::uint32_t wanted = (fd / kPlainPerStep + 1) * kPlainPerStep;
    if (!reserve_more(plain_end(records), plain_end(wanted))) return false;
    std::atomic_ref(header().plain_records).store(wanted, std::memory_order_release);
    return true;
}

bool Page::has_listener(std::uint32_t fd, PlainReason reason) const noexcept {
    if (fd >= header().plain_records) return false;
    const PlainRecord& there = plain(fd);
    return there.inode != 0 && there.role == static_cast<std::uint8_t>(PlainRole::listener) &&
           there.reason == static_cast<std::uint8_t>(reason);
}

void Page::note_plain(std::uint32_t fd, std::uint64_t inode, PlainReason reason,
                      PlainRole role) noexcept {
    StatsHeader& h = header();
    if (fd >= h.plain_records && !grow_plain(fd)) {
        std::atomic_ref(h.plain_unlisted).store(h.plain_unlisted + 1, std::memory_order_relaxed);
        return;
    }
    const PlainRecord record{
        .inode = inode,
        .since = static_cast<std::uint32_t>(wall_clock_now() / kSecond),
        .reason = static_cast<std::uint8_t>(reason),
        .role = static_cast<std::uint8_t>(role),
        .reserved = {},
    };
    std::uint64_t words[2];
    static_assert(sizeof words == sizeof record);
    std::memcpy(words, &record, sizeof record);
    auto* const to = reinterpret_cast<std::uint64_t*>(&plain(fd));
    std::atomic_ref(to[0]).store(0, std::memory_order_relaxed);
    std::atomic_thread_fence(std::memory_order_release);
    std::atomic_ref(to[1]).store(words[1], std::memory_order_relaxed);
    std::atomic_ref(to[0]).store(inode, std::memory_order_release);
}

StatsSlot* Page::take(std::uint32_t& index) {
    StatsHeader& h = header();
    std::atomic_ref(h.connections).store(h.connections + 1, std::memory_order_relaxed);
    if (free_.empty() && !grow()) {
        std::atomic_ref(h.unlisted).store(h.unlisted + 1, std::memory_order_relaxed);
        return nullptr;
    }
    index = free_.back();
    free_.pop_back();
    StatsSlot& taken = slot(index);
    // The sequence goes on from where the last tenant left it: a reader that saw it notices.
    std::atomic_ref(taken.sequence).fetch_add(1, std::memory_order_acq_rel);
    taken.tx_bytes = taken.rx_bytes = 0;
    taken.counters = {};
    taken.stream = {};
    taken.placed_early = 0;
    taken.description = {};
    taken.description.opened_ns = wall_clock_now();
    std::atomic_ref(taken.taken).store(1, std::memory_order_relaxed);
    std::atomic_ref(taken.sequence).fetch_add(1, std::memory_order_release);
    return &taken;
}

void Page::give_back(std::uint32_t index) noexcept {
    std::atomic_ref(slot(index).taken).store(0, std::memory_order_release);
    free_.push_back(index);
}

// With the mutex held. For the first connection, or the first of a forked child: it leaves its
// parent's page alone.
void ensure_page(std::uint32_t pid) {
    if (page_pid == pid) return;
    page_pid = pid;
    page_generation = process_generation();
    // (Kept reachable, for leak checkers.)
    static const Page* volatile inherited;
    inherited = page;
    // A server that forks for each connection makes one for each: to look at all of them each time
    // would be too much, never to do so would leave those of children that were killed.
    constexpr std::uint32_t kChildrenPerSweep = 16;
    page = Page::create(inherited == nullptr || pid % kChildrenPerSweep == 0).release();
    if (page == nullptr) return;
    page->inherited = inherited;
    if (!exit_registered) exit_registered = std::atexit(remove_at_exit) == 0;
}

}  // namespace

void remove_stats_page() noexcept {
    const std::unique_lock lock(mutex, std::try_to_lock);  // a handler may end the process
    if (lock && page != nullptr && page->pid() == static_cast<std::uint32_t>(getpid())) {
        page->unlink_file();
    }
}

namespace {
template <typename F>
void with_page(F&& count) noexcept {
    const std::lock_guard lock(mutex);
    try {
        ensure_page(static_cast<std::uint32_t>(getpid()));
    } catch (const std::bad_alloc&) {
        return;
    }
    if (page != nullptr) count(*page);
}
}  // namespace

void count_startup_dropped() noexcept {
    with_page([](Page& own) { own.count_startup_dropped(); });
}

void count_unpinned(kernel::Unpinned reason) noexcept {
    with_page([reason](Page& own) { own.count_unpinned(reason); });
}

void note_plain_socket(int fd, PlainReason reason, PlainRole role) noexcept {
    static std::once_flag once;
    std::call_once(once, [] { call_in_child(StatsEntry::forget_lock); });
    const int saved = errno;
    const DescriptorChange files;
    const std::lock_guard lock(mutex);
    try {
        // A child of vfork() has the memory of its parent, and the page in it.
        if (page_pid == 0 || page_generation != process_generation()) {
            ensure_page(static_cast<std::uint32_t>(getpid()));
        }
    } catch (const std::bad_alloc&) {  // page is null
    }
    const auto number = static_cast<std::uint32_t>(fd);
    struct stat status {};
    if (page != nullptr && !(role == PlainRole::listener && page->has_listener(number, reason)) &&
        fstat(fd, &status) == 0 && S_ISSOCK(status.st_mode)) {
        page->note_plain(number, status.st_ino, reason, role);
    }
    errno = saved;
}

StatsEntry::StatsEntry() {
    const auto pid = static_cast<std::uint32_t>(getpid());
    {
        const std::lock_guard lock(mutex);
        ensure_page(pid);
        slot_ = page != nullptr ? page->take(index_) : nullptr;
    }
    pid_ = pid;
    if (slot_ == nullptr) {
        index_ = kPrivate;
        slot_ = new StatsSlot{};
        slot_->description.opened_ns = wall_clock_now();
    }
}

void StatsEntry::forget_lock() noexcept { new (&mutex) std::mutex; }

StatsEntry::~StatsEntry() {
    if (index_ == kPrivate) {
        delete slot_;
        return;
    }
    const std::lock_guard lock(mutex);
    // In a forked child the slot is still the parent's.
    if (page != nullptr && page->pid() == pid_ && pid_ == static_cast<std::uint32_t>(getpid())) {
        page->give_back(index_);
    }
}

void StatsEntry::describe(const StatsDescription& description) noexcept {
    StatsSlot& s = *slot_;
    const std::uint64_t opened = s.description.opened_ns;
    const std::uint32_t before = s.sequence;
    std::atomic_ref(s.sequence).store(before + 1, std::memory_order_relaxed);
    std::atomic_thread_fence(std::memory_order_release);
    s.description = description;
    s.description.opened_ns = opened;
    std::atomic_ref(s.sequence).store(before + 2, std::memory_order_release);
}

}  // namespace xsock
