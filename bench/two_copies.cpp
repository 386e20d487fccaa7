// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// What two copies through a ring in shared memory can reach at most: nothing but the copies and
// two positions, no protocol. Figure 0: GB/s (1e9), as stream::write_*: 1 MiB each from one buffer
// to another.
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstring>

#include "bench/pair.hpp"

namespace xsock::bench::same_host {
namespace {

constexpr std::size_t kRing = std::size_t{1024} * 1024;
constexpr std::size_t kRecord = std::size_t{32} * 1024;  // as large as the link's
constexpr std::size_t kLarge = std::size_t{1024} * 1024;

struct Shared {
    alignas(64) std::atomic<std::uint64_t> head;  // bytes published
    alignas(64) std::atomic<std::uint64_t> tail;  // bytes taken
    alignas(64) std::atomic<bool> done;
    alignas(4096) std::uint8_t ring[kRing];
};

Shared& map(int fd) {
    void* const memory =
        mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd, 0);
    if (memory == MAP_FAILED) fail_errno("mmap");
    return *static_cast<Shared*>(memory);
}

struct Where {
    pid_t pid;
    int fd;
};

}  // namespace

void two_copies_server(Child& child, const Run&) {
    const int fd = memfd_create("xsock-bench", MFD_CLOEXEC);
    if (fd < 0 || ftruncate(fd, sizeof(Shared)) != 0) fail_errno("memfd_create");
    Shared& shared = map(fd);
    child.tell(Where{.pid = getpid(), .fd = fd});
    std::vector<std::uint8_t> target(kLarge);
    std::uint64_t tail = 0;
    for (;;) {
        const bool done = shared.done.load(std::memory_order_acquire);
        const std::uint64_t head = shared.head.load(std::memory_order_acquire);
        for (; tail < head; tail += kRecord) {
            std::memcpy(&target[tail % kLarge], &shared.ring[tail % kRing], kRecord);
            shared.tail.store(tail + kRecord, std::memory_order_release);
        }
        if (done) break;
    }
    for (const std::uint8_t byte : target) {
        if (byte != 0x5a) fail("the ring brought the wrong bytes");
    }
}

void two_copies_client(Child& child, const Run& run) {
    const auto where = child.hear<Where>();
    char path[64];
    std::snprintf(path, sizeof path, "/proc/%d/fd/%d", where.pid, where.fd);
    const int fd = open(path, O_RDWR | O_CLOEXEC);
    if (fd < 0) fail_errno(path);
    Shared& shared = map(fd);
    const std::vector<std::uint8_t> source(kLarge, 0x5a);
    std::uint64_t head = 0;
    const auto write_until = [&](std::int64_t end) {
        do {
            for (std::size_t at = 0; at < kLarge; at += kRecord, head += kRecord) {
                while (head - shared.tail.load(std::memory_order_acquire) > kRing - kRecord) {
                }
                std::memcpy(&shared.ring[head % kRing], &source[at], kRecord);
                shared.head.store(head + kRecord, std::memory_order_release);
            }
        } while (now_ns() < end);
        while (shared.tail.load(std::memory_order_acquire) != head) {
        }
    };
    write_until(now_ns() + to_ns(warm_up_seconds(run)));
    const std::uint64_t first = head;
    const std::int64_t before = now_ns();
    write_until(before + to_ns(run.seconds));
    const auto took_ns = static_cast<double>(now_ns() - before);
    shared.done.store(true, std::memory_order_release);
    child.report({static_cast<double>(head - first) / took_ns, 0, 0, 0});
}

}  // namespace xsock::bench::same_host
