// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The regions that a device has given to the kernel module, and those that it shall get. A region
// is pinned when the first Write for it has come up unplaced, by a thread of its own: registering
// stays O(1), and who receives waits for no pages. Pollers ask (want()); the memory table tells of
// ends (MemoryMirror).
//
//   begin: queued -> pinning -> pinned        refused: served at user level, tried again later
//
// Pinning is done without the lock, and hidden from the module's look-ups; the lock is taken to
// decide whether the region is still wanted, and to show it. So revoking waits for no pages.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <mutex>
#include <thread>
#include <unordered_map>

#include "base/bytes.hpp"
#include "base/memory_table.hpp"
#include "base/result.hpp"
#include "transport/kernel_calls.hpp"

namespace xsock {

class KernelRegions final : public MemoryMirror {
  public:
    struct Limits {
        std::uint64_t region_bytes = std::uint64_t{64} << 20;  ///< longer ones are not pinned
        /// Longer ones are pinned by the thread; 0: all are. Without a thread they are refused.
        std::uint64_t inline_bytes = 0;
        bool threads = true;
    };

    /// `table` calls this: MemoryTable::set_mirror(). Both outlive the regions.
    KernelRegions(KernelCalls& calls, MemoryTable& table, Limits limits);
    /// The domain's regions end with its descriptor.
    ~KernelRegions() { stop(); }
    KernelRegions(const KernelRegions&) = delete;
    KernelRegions& operator=(const KernelRegions&) = delete;

    /// From now on regions are pinned in this domain. Once.
    void open(int domain);
    /// On return no request to the domain is under way, and none is made any more: its descriptor
    /// may be closed. Waits for pages that are being pinned.
    void stop() noexcept;

    /// A Write to `stag` came up unplaced: it shall be pinned, unless it is, or was refused a short
    /// while ago, or is no region. One that is pinned may have lost its memory (it was unmapped, or
    /// moved): it is pinned anew, at most once in 100 ms, doubling to 10 s. The poller's: waits for
    /// pages only where it pins them itself (Limits::inline_bytes).
    void want(std::uint32_t stag, Time now) noexcept;
    /// Pins it now, in the caller. Not inside a section. What the module answers: ENOMEM
    /// (RLIMIT_MEMLOCK), EOPNOTSUPP (memory of a file), E2BIG; ENOENT: no region that peers write.
    Result<void> pin(std::uint32_t stag);

    /// Regions that could not be pinned, since the beginning.
    [[nodiscard]] std::uint64_t refusals() const noexcept;

    // -- MemoryMirror --
    void begin(std::uint32_t stag, const RegionAttr& attr) noexcept override;
    void revoke(std::uint32_t stag) noexcept override;
    void release(std::uint32_t stag) noexcept override;

  private:
    enum class State : std::uint8_t { idle, queued, pinning, pinned, refused };
    struct Entry {
        RegionAttr attr;
        State state = State::idle;
        bool held = false;  ///< the module has a region of this STag, though it may be stale
        bool revoked = false;
        bool told = false;  ///< that it cannot be pinned
        Time next_try = 0;
        Time pause = kFirstPause;
    };
    using Lock = std::unique_lock<std::mutex>;

    static constexpr Time kFirstPause = 100 * kMillisecond;
    static constexpr Time kLongestPause = 10 * kSecond;

    Entry* find(std::uint32_t stag) noexcept;
    void queue(std::uint32_t stag, Entry& entry, Lock& lock) noexcept;
    int pin_entry(std::uint32_t stag, Entry& entry, Lock& lock) noexcept;
    void refuse(Entry& entry, int error) noexcept;
    void wait_pinning(std::uint32_t stag, Lock& lock) noexcept;
    int give(std::uint32_t stag, Entry& entry, Lock& lock) noexcept;
    int control(unsigned long request, std::uint32_t stag) noexcept;
    void run() noexcept;

    KernelCalls& calls_;
    MemoryTable& table_;
    const Limits limits_;
    mutable std::mutex mutex_;
    std::condition_variable changed_;
    int domain_ = -1;
    std::unordered_map<std::uint32_t, Entry> entries_;
    std::deque<std::uint32_t> queue_;
    std::thread thread_;
    bool stop_ = false;
    std::uint64_t refusals_ = 0;
};

}  // namespace xsock
