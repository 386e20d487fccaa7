// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// XSOCK_SHM_DIR: a folder in which a listener for links has a name too, so that processes of other
// network namespaces reach it, which do not see its abstract one. What protects is the user id at
// the other end, as there. Any thread.
#pragma once

#include <cstdint>
#include <string>
#include <utility>

#include "base/result.hpp"
#include "shm/offer.hpp"

namespace xsock {

/// A name that is removed with this, but not in a forked child. Movable.
class ShmName {
  public:
    ShmName() = default;
    explicit ShmName(std::string path);
    ShmName(ShmName&& other) noexcept
        : path_(std::exchange(other.path_, {})), generation_(other.generation_) {}
    ShmName& operator=(ShmName&& other) noexcept;
    ~ShmName() { remove(); }
    void remove() noexcept;

  private:
    std::string path_;
    std::uint32_t generation_ = 0;  // of the process
};

namespace shm_folder {

/// A socket that listens under the folder's name of this key, close-on-exec, registered as
/// internal, the caller's; every user may connect. Names of our own user that no process listens
/// under any more, as a killed one leaves them, are removed first. What socket calls fail with;
/// ENAMETOOLONG, ENOMEM.
Result<std::pair<int, ShmName>> listen_in(const std::string& folder, const shm::Key& key);
/// A socket connected to that listener. ECONNREFUSED, ENOENT: there is none. EACCES. EAGAIN: too
/// many wait to be accepted.
Result<int> connect_in(const std::string& folder, const shm::Key& key) noexcept;

}  // namespace shm_folder
}  // namespace xsock
