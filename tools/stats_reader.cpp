// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "tools/stats_reader.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cinttypes>
#include <cstdio>
#include <cstring>

#include "base/fault.hpp"
#include "include/xsock/iwarp.h"
#include "tools/fd.hpp"
#include "tools/text.hpp"

namespace xsock::tools {
namespace {

constexpr std::size_t kMaxFile = 64u << 20;
constexpr std::uint32_t kMaxSlotSize = 65536;
constexpr int kTries = 16;  // a description is written within a microsecond

/// Copies memory that another process writes, word by word. False when the file behind it shrank.
bool copy_words(void* to, const void* from, std::size_t bytes) {
    static_assert(sizeof(std::uint64_t) == 8);
    return fault::guard([&] {
        const fault::Touch touch(0, from, bytes);
        const auto* source = static_cast<const std::uint64_t*>(from);
        auto* out = static_cast<std::byte*>(to);
        for (std::size_t i = 0; i < bytes / 8; ++i) {
            const std::uint64_t word = __atomic_load_n(&source[i], __ATOMIC_RELAXED);
            std::memcpy(out + 8 * i, &word, 8);
        }
    });
}

/// A page, mapped for reading.
class MappedPage {
  public:
    /// Takes the descriptor.
    explicit MappedPage(int fd) : fd_(fd) {
        struct stat s {};
        if (fstat(fd, &s) != 0 || !S_ISREG(s.st_mode) || s.st_uid != geteuid()) return;
        inode_ = s.st_ino;
        size_ = std::min(static_cast<std::size_t>(s.st_size), kMaxFile);
        if (size_ < sizeof(StatsHeader)) return;
        void* memory = mmap(nullptr, size_, PROT_READ, MAP_SHARED, fd, 0);
        if (memory != MAP_FAILED) memory_ = static_cast<const std::byte*>(memory);
    }
    ~MappedPage() {
        if (memory_ != nullptr) munmap(const_cast<std::byte*>(memory_), size_);
    }
    MappedPage(const MappedPage&) = delete;
    MappedPage& operator=(const MappedPage&) = delete;

    [[nodiscard]] const std::byte* memory() const { return memory_; }
    [[nodiscard]] std::size_t size() const { return size_; }
    [[nodiscard]] std::uint64_t inode() const { return inode_; }

  private:
    Fd fd_;
    const std::byte* memory_ = nullptr;
    std::size_t size_ = 0;
    std::uint64_t inode_ = 0;
};

template <std::size_t size>
std::string text_of(const char (&text)[size]) {
    return printable(std::string_view(text, strnlen(text, size)));
}

template <std::size_t size>
void terminate(char (&text)[size]) {
    text[size - 1] = '\0';
}

/// Does the process have this file mapped? A process that was replaced by exec, or whose number was
/// given to another, has not. Nothing when its mappings may not be seen.
enum class Mapped : std::uint8_t { no, yes, unknown };
Mapped maps_file(std::uint32_t pid, std::uint64_t inode, const std::string& name) {
    const std::string path = fmt::format("/proc/{}/maps", pid);
    FILE* maps = std::fopen(path.c_str(), "re");
    if (maps == nullptr) return errno == ENOENT ? Mapped::no : Mapped::unknown;
    Mapped mapped = Mapped::no;
    char* line = nullptr;
    std::size_t room = 0;
    errno = 0;
    while (getline(&line, &room, maps) > 0) {
        std::uint64_t found = 0;
        if (std::sscanf(line, "%*s %*s %*s %*s %" SCNu64, &found) != 1 || found != inode) continue;
        if (std::strstr(line, name.c_str()) == nullptr) continue;
        mapped = Mapped::yes;
        break;
    }
    // A dying process has no mappings left, and one that is not ours shows none.
    if (mapped == Mapped::no && errno == EACCES) mapped = Mapped::unknown;
    std::free(line);
    std::fclose(maps);
    return mapped;
}

bool alive(std::uint32_t pid, std::uint64_t inode, const std::string& name,
           std::uint64_t start_time) {
    switch (maps_file(pid, inode, name)) {
        case Mapped::yes:
            return true;
        case Mapped::no:
            return false;
        case Mapped::unknown:
            break;
    }
    return start_time != 0 && process_start_time(pid) == start_time;
}

bool read_slot(const std::byte* from, std::size_t size, ConnectionStats& out) {
    const auto* shared = reinterpret_cast<const StatsSlot*>(from);
    StatsSlot slot{};
    for (int i = 0; i < kTries; ++i) {
        if (!copy_words(&slot, from, std::min(size, sizeof slot))) return false;
        if (slot.taken == 0) return false;
        std::atomic_thread_fence(std::memory_order_acquire);
        std::uint64_t head = 0;  // sequence and taken
        if (!copy_words(&head, shared, sizeof head)) return false;
        std::uint32_t sequence = 0;
        std::memcpy(&sequence, &head, sizeof sequence);
        // Still being written after all tries: its writer died or lies. Shown as it is.
        if ((sequence == slot.sequence && sequence % 2 == 0) || i + 1 == kTries) break;
    }
    out.tx_bytes = slot.tx_bytes;
    out.rx_bytes = slot.rx_bytes;
    out.counters = slot.counters;
    out.stream = slot.stream;
    out.placed_early = slot.placed_early;
    out.description = slot.description;
    terminate(out.description.local);
    terminate(out.description.peer);
    terminate(out.description.error_text);
    terminate(out.description.peer_name);
    terminate(out.description.peer_version);
    terminate(out.description.congestion);
    return true;
}

bool read_plain(const std::byte* from, PublishedPlain& out) {
    PlainRecord record{}, again{};
    if (!copy_words(&record, from, sizeof record) || record.inode == 0) return false;
    std::atomic_thread_fence(std::memory_order_acquire);
    if (!copy_words(&again, from, sizeof again) || again.inode != record.inode) return false;
    if (record.reason >= static_cast<std::uint8_t>(PlainReason::undecided) ||
        record.role > static_cast<std::uint8_t>(PlainRole::listener)) {
        return false;
    }
    out.inode = record.inode;
    out.since = record.since;
    out.reason = static_cast<PlainReason>(record.reason);
    out.role = static_cast<PlainRole>(record.role);
    return true;
}

/// Empty when all went well; otherwise what is wrong with the page.
std::string read_page(const MappedPage& page, ProcessStats& out) {
    StatsHeader header;
    if (page.memory() == nullptr || !copy_words(&header, page.memory(), sizeof header)) {
        return "cannot be read";
    }
    if (std::memcmp(header.magic, kStatsMagic, sizeof kStatsMagic) != 0) return "is no page";
    if (header.version != kStatsVersion) {
        return fmt::format("is of version {}; this program knows {}", header.version,
                           kStatsVersion);
    }
    const std::uint64_t size = page.size();
    if (header.slots_at < sizeof header || header.slots_at % 8 != 0 || header.slots_at > size ||
        header.slot_size < kStatsSlotLeast || header.slot_size % 8 != 0 ||
        header.slot_size > kMaxSlotSize ||
        header.slots > (size - header.slots_at) / header.slot_size) {
        return "does not fit its own sizes";
    }
    if (header.plain_records != 0 &&
        (header.plain_at < sizeof header || header.plain_at % 8 != 0 || header.plain_at > size ||
         header.plain_records > (size - header.plain_at) / sizeof(PlainRecord))) {
        return "does not fit its own sizes";
    }
    out.program = text_of(header.program);
    out.library = text_of(header.library);
    out.opened_ns = header.opened_ns;
    out.connections_ever = header.connections;
    out.unlisted = header.unlisted;
    out.startups_dropped = header.startups_dropped;
    out.plain_unlisted = header.plain_unlisted;
    std::copy(std::begin(header.unpinned), std::end(header.unpinned), out.unpinned);
    for (std::uint32_t i = 0; i < header.plain_records; ++i) {
        PublishedPlain plain;
        const std::size_t at = header.plain_at + i * sizeof(PlainRecord);
        if (read_plain(page.memory() + at, plain)) out.published.push_back(plain);
    }
    for (std::uint32_t i = 0; i < header.slots; ++i) {
        ConnectionStats connection;
        const std::size_t at = header.slots_at + std::size_t{i} * header.slot_size;
        if (!read_slot(page.memory() + at, header.slot_size, connection)) continue;
        connection.slot = i;
        out.connections.push_back(connection);
    }
    return {};
}

std::uint64_t start_time_of(const MappedPage& page) {
    StatsHeader header;
    if (page.memory() == nullptr || !copy_words(&header, page.memory(), sizeof header)) return 0;
    return header.start_time;
}

void read_folder(const std::string& path, std::vector<ProcessStats>& processes,
                 std::vector<std::string>& errors) {
    const int folder = open_stats_folder(path, false);
    if (folder < 0) {
        if (errno == EPERM) {
            errors.push_back(fmt::format("{}: not read: others may write there", path));
        }
        return;
    }
    DIR* entries = fdopendir(folder);
    if (entries == nullptr) {
        close(folder);
        return;
    }
    const std::uint64_t here = own_pid_namespace();
    while (const dirent* entry = readdir(entries)) {
        StatsName name;
        if (!parse_stats_name(entry->d_name, name)) continue;
        const MappedPage page(openat(folder, entry->d_name,
                                     O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC));
        if (page.inode() == 0) continue;  // gone, or not ours
        ProcessStats process;
        process.pid = name.pid;
        process.foreign = here != 0 && name.pid_namespace != here;
        if (!process.foreign &&
            !alive(name.pid, page.inode(), entry->d_name, start_time_of(page))) {
            unlinkat(folder, entry->d_name, 0);
            continue;
        }
        if (const std::string wrong = read_page(page, process); !wrong.empty()) {
            errors.push_back(fmt::format("{}/{} {}", path, entry->d_name, wrong));
            continue;
        }
        processes.push_back(std::move(process));
    }
    closedir(entries);
}

}  // namespace

std::vector<ProcessStats> read_stats(const std::vector<std::string>& folders,
                                     std::vector<std::string>& errors) {
    fault::install();
    std::vector<ProcessStats> processes;
    for (const std::string& folder : folders) read_folder(folder, processes, errors);
    std::stable_sort(processes.begin(), processes.end(),
                     [](const ProcessStats& a, const ProcessStats& b) { return a.pid < b.pid; });
    return processes;
}

const char* api_name(std::uint8_t api) {
    static constexpr const char* kNames[] = {"endpoint", "message", "stream", "verbs"};
    return api < std::size(kNames) ? kNames[api] : "?";
}

const char* wire_name(std::uint8_t api) {
    return api == static_cast<std::uint8_t>(Api::stream) ? "sdp" : "iwarp";
}

const char* path_name(std::uint8_t path) {
    static constexpr const char* kNames[] = {"tcp", "shm"};
    return path < std::size(kNames) ? kNames[path] : "?";
}

const char* state_name(std::uint8_t state) {
    static constexpr const char* kNames[] = {"fresh",       "starting", "requested", "established",
                                             "peer-closed", "closing",  "error",     "closed"};
    return state < std::size(kNames) ? kNames[state] : "?";
}

Operations operations(const std::uint64_t (&messages)[16]) {
    Operations sum;
    sum.sends = messages[RDMAP_SEND] + messages[RDMAP_SEND_INVALIDATE] + messages[RDMAP_SEND_SE] +
                messages[RDMAP_SEND_SE_INVALIDATE] + messages[RDMAP_SEND_IMMEDIATE] +
                messages[RDMAP_SEND_SE_IMMEDIATE];
    sum.writes = messages[RDMAP_WRITE];
    sum.reads = messages[RDMAP_READ_REQUEST];
    sum.read_responses = messages[RDMAP_READ_RESPONSE];
    sum.terminates = messages[RDMAP_TERMINATE];
    sum.immediates = messages[RDMAP_IMMEDIATE] + messages[RDMAP_IMMEDIATE_SE];
    sum.atomics = messages[RDMAP_ATOMIC_REQUEST];
    return sum;
}

}  // namespace xsock::tools
