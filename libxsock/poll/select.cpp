// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "libxsock/poll/select.hpp"

#include <poll.h>

#include <array>
#include <cerrno>
#include <climits>
#include <vector>

#include "libxsock/poll/poll.hpp"

namespace xsock::readiness {
namespace {

// The programs' sets may be longer than fd_set says (they know it), so the bits are found by hand.
using Word = unsigned long;
constexpr std::size_t kWordBits = sizeof(Word) * CHAR_BIT;

bool is_set(const fd_set* set, std::size_t fd) noexcept {
    if (set == nullptr) return false;
    const auto* words = reinterpret_cast<const Word*>(set);
    return (words[fd / kWordBits] >> (fd % kWordBits) & 1) != 0;
}

void put(fd_set* set, std::size_t fd, bool value) noexcept {
    if (set == nullptr) return;
    auto* words = reinterpret_cast<Word*>(set);
    const Word bit = Word{1} << (fd % kWordBits);
    words[fd / kWordBits] = value ? words[fd / kWordBits] | bit : words[fd / kWordBits] & ~bit;
}

// What poll() is asked for, and which of its answers make the bit (Linux, fs/select.c).
struct Kind {
    short asked;
    short counts;
};
constexpr Kind kReadable{POLLIN | POLLRDNORM | POLLRDBAND,
                         POLLIN | POLLRDNORM | POLLRDBAND | POLLHUP | POLLERR};
constexpr Kind kWritable{POLLOUT | POLLWRNORM | POLLWRBAND,
                         POLLOUT | POLLWRNORM | POLLWRBAND | POLLERR};
constexpr Kind kExceptional{POLLPRI, POLLPRI};

}  // namespace

int select(std::span<const Handle> handles, fd_set* readable, fd_set* writable, fd_set* exceptional,
           Time deadline, const sigset_t* mask) {
    const std::array<std::pair<fd_set*, Kind>, 3> sets{{
        {readable, kReadable},
        {writable, kWritable},
        {exceptional, kExceptional},
    }};
    std::vector<pollfd> entries;
    std::vector<Handle> of_entries;
    std::vector<short> counting;
    for (std::size_t fd = 0; fd < handles.size(); ++fd) {
        short asked = 0, counts = 0;
        for (const auto& [set, kind] : sets) {
            if (!is_set(set, fd)) continue;
            asked = static_cast<short>(asked | kind.asked);
            counts = static_cast<short>(counts | kind.counts);
        }
        if (asked == 0) continue;
        entries.push_back({static_cast<int>(fd), asked, 0});
        of_entries.push_back(handles[fd]);
        counting.push_back(static_cast<short>(counts | POLLNVAL));
    }

    int result = 0;
    {
        PollTarget target(entries, of_entries, counting);
        result = wait_for(target, deadline, mask);
    }
    if (result < 0) return result;
    for (const pollfd& entry : entries) {
        if ((entry.revents & POLLNVAL) != 0) return -EBADF;
    }
    int bits = 0;
    for (const pollfd& entry : entries) {
        const auto fd = static_cast<std::size_t>(entry.fd);
        for (const auto& [set, kind] : sets) {
            if (!is_set(set, fd)) continue;
            const bool ready = (entry.revents & kind.counts) != 0;
            put(set, fd, ready);
            bits += ready ? 1 : 0;
        }
    }
    return bits;
}

}  // namespace xsock::readiness
