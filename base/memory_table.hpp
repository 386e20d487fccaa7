// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// STag -> registered memory. Written by any thread (register, invalidate, deregister), read by
// pollers inside an Epochs::Reader section without locks.
//
// STags are 32 random bits (getrandom), unpredictable and sparse over the whole range (RFC 5040
// §8.1 item 8); 0 is never given out. base/stag_table.hpp leads from STag to slot.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "base/bytes.hpp"
#include "base/epoch.hpp"
#include "base/result.hpp"
#include "base/stream_error.hpp"

namespace xsock {

enum Access : std::uint32_t {
    kLocalRead = 0,  // always
    kLocalWrite = 1,
    kRemoteWrite = 2,
    kRemoteRead = 4,
    kZeroBased = 8,  ///< TO counts from `first_to` instead of from the virtual address
    kRemoteAtomic = 16,
    kWindows = 32,  ///< memory windows may be bound to parts of it
};

/// All that a peer may be allowed.
inline constexpr std::uint32_t kRemoteAccess = kRemoteWrite | kRemoteRead | kRemoteAtomic;

using PdId = std::uint32_t;
using QpNum = std::uint32_t;

struct RegionAttr {
    std::byte* address = nullptr;
    std::uint64_t length = 0;  ///< bytes; 0 is a region that matches nothing but zero lengths
    std::uint32_t access = kLocalWrite;
    PdId pd = 0;
    QpNum only_qp = 0;  ///< non-zero: the STag is valid on this QP only (RFC 5040 §8.1 item 2),
                        ///< and only then may the peer invalidate it (item 7)
    std::uint64_t first_to = 0;  ///< with kZeroBased: TO of the first byte
};

/// What else writes peers' data into regions (a kernel module), and so must know when one ends.
/// Told of regions that were offered to it only (MemoryTable::offer()). Any thread.
class MemoryMirror {
  public:
    /// The region may be taken over, now or later. Under the table's lock: no call of the table.
    virtual void begin(std::uint32_t stag, const RegionAttr& attr) noexcept = 0;
    /// No look-up of `stag` that begins after this finds it. Waits for no copy that is under way.
    /// Under the table's lock; may come more than once.
    virtual void revoke(std::uint32_t stag) noexcept = 0;
    /// The same, and on return its memory is not touched any more. Without the lock; the STag may
    /// mean something else afterwards.
    virtual void release(std::uint32_t stag) noexcept = 0;

  protected:
    ~MemoryMirror() = default;
};

/// What a tagged access wants.
enum class Right : std::uint8_t { remote_write, remote_read, remote_atomic };

class MemoryTable {
  public:
    explicit MemoryTable(Epochs& epochs, std::size_t max_regions = 1u << 24);
    ~MemoryTable();
    MemoryTable(const MemoryTable&) = delete;
    MemoryTable& operator=(const MemoryTable&) = delete;

    /// Makes memory reachable. Does not touch or pin it. O(1).
    ///
    /// @return the STag (both lkey and rkey). EINVAL: address or TO + length wraps, or an unknown
    ///         access bit; ENOMEM: max_regions or memory exhausted.
    Result<std::uint32_t> add(const RegionAttr& attr);

    /// Ends a region: look-ups fail from now on, and on return no poller is still touching the
    /// memory through it. ENOENT: no such STag; EBUSY: a window is bound to it. Not from inside a
    /// Reader section.
    Result<void> remove(std::uint32_t stag);

    /// Lets an STag mean something else (ibv_rereg_mr). On return no poller touches memory through
    /// its former meaning; meanwhile look-ups fail. Also after invalidate(). ENOENT, EBUSY as for
    /// remove(), and what add() refuses; then nothing has changed. Not from inside a Reader
    /// section, nor at once with remove() of the same.
    Result<void> replace(std::uint32_t stag, const RegionAttr& attr);

    // Memory windows: STags of the program's choice in a range of 256, for parts of regions. Each
    // binding is an entry of its own, so that it can be made ahead and switched on by a poller.

    /// A range of STags that no region has or will get: those that share the upper 24 bits with
    /// the answer. ENOMEM.
    Result<std::uint32_t> reserve_window();
    /// Gives the range back; its bindings are remove()d before.
    void release_window(std::uint32_t stag) noexcept;
    /// Makes an STag of a reserved range that matches nothing until bind(). EEXIST: it is in use;
    /// EINVAL: attributes that no region may have; ENOMEM.
    Result<void> prepare_window(std::uint32_t stag, const RegionAttr& attr, std::uint32_t region);
    /// Switches it on, once, and revokes what its range had bound, if its region is there, of the
    /// same PD, permits windows (and local writes, where the window permits remote ones) and covers
    /// it. Safe inside a section, as is unbind().
    bool bind(std::uint32_t stag) noexcept;
    /// Revokes what is bound in the range of `stag`.
    void unbind(std::uint32_t stag) noexcept;
    /// The request that was to bind it has failed: it counts as revoked. Safe inside a section.
    void abandon(std::uint32_t stag) noexcept;
    /// Was it bound, and is not any more? Any thread.
    [[nodiscard]] bool revoked(std::uint32_t stag) const noexcept;

    /// Revokes the STag but keeps the slot until remove(): what Local Invalidate and Send with
    /// Invalidate do. Does not wait (safe inside a section: the poller that runs this is the one
    /// that would touch the memory for that stream; what another has looked up may serve it until
    /// its section ends). False when it was not valid, or while windows are bound to it: they would
    /// outlive it.
    bool invalidate(std::uint32_t stag) noexcept;

    /// Names the mirror; it outlives the table. Before the first offer().
    void set_mirror(MemoryMirror& mirror) noexcept;
    /// Calls the mirror's begin() for a region that is valid, may be written by peers and was not
    /// offered since it got its meaning; from then on the mirror is told of its end, before the
    /// call that ends it returns. False: nothing was called. Not of a window. Any thread, also
    /// inside a section.
    bool offer(std::uint32_t stag) noexcept;

    /// Where `length` bytes at tagged offset `to` of `stag` lie, for a peer of QP `qp` in `pd`.
    ///
    /// Checks validity, association (PD, QP), right and bounds in 64-bit arithmetic that cannot
    /// wrap, in the order of RFC 5041 §7.1 / RFC 5040 §7.2: for a Write DDP checks bounds before
    /// RDMAP checks rights, for a Read or an atomic operation all is RDMAP's. Not called for zero
    /// lengths (RFC 5041 §7.1). Only inside a Reader section; the pointer is good until the section
    /// ends.
    struct Found {
        StreamError stream_error =
            StreamError::none;  ///< worded for Right: read_* or tagged_*/write_*
        std::byte* address = nullptr;
    };
    [[nodiscard]] Found check_remote(std::uint32_t stag, PdId pd, QpNum qp, Right right,
                                     std::uint64_t to, std::uint64_t length) const noexcept;

    /// True when [address, address + length) lies in region `lkey` of `pd` (any QP scope that
    /// fits), with kLocalWrite when `write`. Zero length is always true. Only inside a Reader
    /// section, or as a hint outside.
    [[nodiscard]] bool check_local(std::uint32_t lkey, PdId pd, QpNum qp, const std::byte* address,
                                   std::uint64_t length, bool write) const noexcept;

    /// May a peer of `qp` in `pd` invalidate `stag` (Send with Invalidate)? none, or
    /// invalidate_stag_invalid / invalidate_not_permitted.
    [[nodiscard]] StreamError check_invalidate(std::uint32_t stag, PdId pd,
                                               QpNum qp) const noexcept;

    /// A region's attributes, as given to add(); for keys handed to peers (the tagged offset of its
    /// first byte is 0 with kZeroBased, else the address). Also after invalidate(). ENOENT.
    Result<RegionAttr> query(std::uint32_t stag) const;

    /// Regions between add() and remove().
    [[nodiscard]] std::size_t size() const noexcept;

  private:
    struct Impl;
    std::unique_ptr<Impl> impl_;
};

}  // namespace xsock
