// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "transport/shm_memory.hpp"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <cerrno>
#include <new>

#include "base/page_size.hpp"
#include "transport/descriptors.hpp"
#include "transport/fault_handler.hpp"
#include "transport/fork.hpp"

namespace xsock {
namespace {

constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;
constexpr unsigned kNoExecSeal = 0x8;  // MFD_NOEXEC_SEAL, since Linux 6.3

std::size_t mapped_bytes(const shm::Layout& layout) noexcept {
    return (layout.bytes() + page_size() - 1) & ~(page_size() - 1);
}

// Where vm.memfd_noexec says so, one without the flag is refused, or told of in the kernel's log.
int open_memfd() noexcept {
    constexpr unsigned kFlags = MFD_CLOEXEC | MFD_ALLOW_SEALING;
    const int fd = memfd_create("xsock-shm", kFlags | kNoExecSeal);
    return fd >= 0 || errno != EINVAL ? fd : memfd_create("xsock-shm", kFlags);
}

bool is_sealed_memory(int fd, std::size_t bytes) noexcept {
    struct statfs system {};
    struct stat status {};
    if (fstatfs(fd, &system) != 0 || system.f_type != TMPFS_MAGIC || fstat(fd, &status) != 0 ||
        status.st_size < 0 || static_cast<std::uintmax_t>(status.st_size) != bytes) {
        return false;
    }
    const int seals = fcntl(fd, F_GET_SEALS);
    return seals >= 0 && (seals & kSeals) == kSeals;
}

}  // namespace

Result<int> make_shm_memfd(const shm::Layout& layout) noexcept {
    const DescriptorChange change;
    const int fd = open_memfd();
    if (fd < 0) return Error{errno, "memfd_create failed"};
    register_internal_fd(fd);
    if (ftruncate(fd, static_cast<off_t>(mapped_bytes(layout))) != 0 ||
        fcntl(fd, F_ADD_SEALS, kSeals) != 0) {
        const int error = errno;
        close_internal_fd(fd);
        return Error{error, "the shared memory cannot be sized and sealed"};
    }
    return fd;
}

ShmMemory::ShmMemory(Bytes bytes)
    : bytes_(bytes), range_(bytes), generation_(process_generation()) {}

ShmMemory::ShmMemory(ShmMemory&& other) noexcept
    : bytes_(std::exchange(other.bytes_, {})),
      range_(std::move(other.range_)),
      generation_(other.generation_) {}

ShmMemory::~ShmMemory() {
    {
        const SharedRange ended(std::move(range_));  // before others may get the addresses
    }
    if (!bytes_.empty() && generation_ == process_generation()) {
        munmap(bytes_.data(), bytes_.size());
    }
}

Result<ShmMemory> ShmMemory::map(int fd, const shm::Layout& layout) {
    const std::size_t bytes = mapped_bytes(layout);
    if (!is_sealed_memory(fd, bytes)) return Error{EINVAL, "it is not sealed shared memory"};
    void* const at = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    // A seal against writing: EPERM; opened for reading: EACCES.
    if (at == MAP_FAILED) {
        return Error{errno == ENOMEM ? ENOMEM : EINVAL, "the shared memory cannot be mapped"};
    }
    if (madvise(at, bytes, MADV_DONTFORK) == 0 && madvise(at, bytes, MADV_DONTDUMP) == 0) {
        keep_fault_handler();
        try {
            return ShmMemory(Bytes(static_cast<std::byte*>(at), bytes));
        } catch (const std::bad_alloc&) {
        }
    }
    munmap(at, bytes);
    return Error{ENOMEM, "the shared memory cannot be mapped"};
}

}  // namespace xsock
