// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Copies between a program's registered memory and the library's, for what no connection moves
// (datagrams): keys, rights and bounds are checked, and memory that is not mapped is an error of
// the request, not of the process. Any thread.
#pragma once

#include <span>

#include "base/epoch.hpp"
#include "base/memory_table.hpp"
#include "base/work.hpp"

namespace xsock {

/// For one copy: as long as it lives, a region that it has found stays.
class MemoryAccess {
  public:
    MemoryAccess(const MemoryTable& memory, Epochs& epochs, PdId pd)
        : memory_(memory), reader_(epochs), pd_(pd) {
        reader_.enter();
    }
    ~MemoryAccess() { reader_.leave(); }
    MemoryAccess(const MemoryAccess&) = delete;
    MemoryAccess& operator=(const MemoryAccess&) = delete;

    /// Fills `to`. @pre `from` has as many bytes in all
    WcStatus gather(std::span<const Sge> from, Bytes to) noexcept;
    /// All of `from`, into as much of `to` as it takes. @pre `to` has room for it
    WcStatus scatter(ConstBytes from, std::span<const Sge> to) noexcept;

  private:
    const MemoryTable& memory_;
    Epochs::Reader reader_;
    const PdId pd_;
};

}  // namespace xsock
