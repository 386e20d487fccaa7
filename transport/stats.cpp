// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "transport/stats.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <time.h>
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
#include "include/xsock/xsock.h"
#include "transport/log.hpp"

namespace xsock {
namespace {

// A page of memory holds few slots, and most processes have few connections.
constexpr std::uint32_t kSlotsPerStep = 16;
constexpr std::size_t kMapped = kStatsSlotsAt + std::size_t{kStatsMaxSlots} * sizeof(StatsSlot);

std::uint64_t wall_clock_ns() noexcept {
    timespec now{};
    clock_gettime(CLOCK_REALTIME, &now);
    return static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000u +
           static_cast<std::uint64_t>(now.tv_nsec);
}

/// The file of this process, mapped. Connections come and go far less often than they work, so a
/// mutex is good enough for taking slots and giving them back.
class Page {
  public:
    /// Null when there shall be none, or cannot be one.
    static std::unique_ptr<Page> create() noexcept;

    /// A zeroed slot and its index; null when all are taken.
    StatsSlot* take(std::uint32_t& index);
    void give_back(std::uint32_t index) noexcept;
    void count_startup_dropped() noexcept {
        StatsHeader& h = header();
        std::atomic_ref(h.startups_dropped)
            .store(h.startups_dropped + 1, std::memory_order_relaxed);
    }
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
    static std::unique_ptr<Page> create_in(int folder, const std::string& folder_path);
    bool grow();

    std::byte* memory_;  // never unmapped: pollers store into it until the process ends
    const std::string path_;
    const std::uint32_t pid_;
    std::vector<std::uint32_t> free_;
};

// Never destroyed: other threads may still be in here when the process exits.
std::mutex mutex;            // guards all below
Page* page = nullptr;        // of the process `page_pid`
std::uint32_t page_pid = 0;  // 0: not tried yet
bool exit_registered = false;

void remove_at_exit() {
    const std::lock_guard lock(mutex);
    if (page != nullptr && page->pid() == static_cast<std::uint32_t>(getpid())) {
        page->unlink_file();
    }
}

/// Reserves the memory behind `size` bytes of the file: a store into a hole that shared memory has
/// no room for would be a SIGBUS.
bool reserve(int fd, std::size_t size) {
    rlimit limit{};
    if (getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur < size) return false;  // SIGXFSZ
    return posix_fallocate(fd, 0, static_cast<off_t>(size)) == 0;
}

std::unique_ptr<Page> Page::create() noexcept {
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
        sweep_stats_folder(folder);
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
    if (fd >= 0 && reserve(fd, kStatsSlotsAt)) {
        memory = mmap(nullptr, kMapped, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd, 0);
    }
    std::unique_ptr<Page> made;
    if (memory != MAP_FAILED) {
        made.reset(new (std::nothrow) Page(static_cast<std::byte*>(memory), std::move(path), pid));
    }
    if (made == nullptr) {
        log(LogLevel::info, "stat-unavailable", "%s/%s: %s", folder_path.c_str(), name,
            std::strerror(errno));
        if (memory != MAP_FAILED) munmap(memory, kMapped);
        if (fd >= 0) unlinkat(folder, name, 0);
    } else {
        StatsHeader& header = made->header();
        header.version = kStatsVersion;
        header.slots_at = kStatsSlotsAt;
        header.slot_size = sizeof(StatsSlot);
        header.start_time = start_time;
        header.opened_ns = wall_clock_ns();
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

bool Page::grow() {
    const std::uint32_t slots = header().slots;
    if (slots + kSlotsPerStep > kStatsMaxSlots) return false;
    const int fd = open(path_.c_str(), O_RDWR | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0) return false;
    const bool reserved =
        reserve(fd, kStatsSlotsAt + std::size_t{slots + kSlotsPerStep} * sizeof(StatsSlot));
    ::close(fd);
    if (!reserved) return false;
    free_.reserve(slots + kSlotsPerStep);  // giving back must not fail
    for (std::uint32_t i = kSlotsPerStep; i-- > 0;) free_.push_back(slots + i);
    std::atomic_ref(header().slots).store(slots + kSlotsPerStep, std::memory_order_release);
    return true;
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
    taken.description = {};
    taken.description.opened_ns = wall_clock_ns();
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
    // (Kept reachable, for leak checkers.)
    static const Page* volatile inherited;
    inherited = page;
    page = Page::create().release();
    if (page == nullptr) return;
    page->inherited = inherited;
    if (!exit_registered) exit_registered = std::atexit(remove_at_exit) == 0;
}

}  // namespace

void count_startup_dropped() noexcept {
    const std::lock_guard lock(mutex);
    try {
        ensure_page(static_cast<std::uint32_t>(getpid()));
    } catch (const std::bad_alloc&) {
        return;
    }
    if (page != nullptr) page->count_startup_dropped();
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
        slot_->description.opened_ns = wall_clock_ns();
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
