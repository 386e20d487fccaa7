// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// doctor's check of what shared memory between processes of one host needs of the kernel: sockets
// of AF_UNIX with abstract names, anonymous files, and their seals.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstring>
#include <string>

#include "tools/doctor/checks.hpp"
#include "tools/fd.hpp"
#include "tools/text.hpp"

#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 0x0008U
#endif

namespace xsock::tools {
namespace {

constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

std::string failed(const char* call) { return std::string(call) + ": " + std::strerror(errno); }

/// What fails, with the errno in words; empty: nothing does.
std::string try_socket() {
    const Fd fd(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
    if (fd.get() < 0) return failed("AF_UNIX");
    sockaddr_un name{};
    name.sun_family = AF_UNIX;
    // Abstract: a NUL comes first. The process makes it unique.
    const std::string text = "xsock-doctor-" + std::to_string(getpid());
    std::memcpy(name.sun_path + 1, text.data(), text.size());
    const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + text.size());
    if (::bind(fd.get(), reinterpret_cast<const sockaddr*>(&name), size) != 0 ||
        ::listen(fd.get(), 1) != 0) {
        return failed("a name of AF_UNIX");
    }
    const Fd other(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
    if (other.get() < 0) return failed("AF_UNIX");
    if (::connect(other.get(), reinterpret_cast<const sockaddr*>(&name), size) != 0) {
        return failed("connect() to AF_UNIX");
    }
    return {};
}

std::string try_memory() {
    int memory = memfd_create("xsock-doctor", MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_NOEXEC_SEAL);
    if (memory < 0 && errno == EINVAL) {  // before Linux 6.3
        memory = memfd_create("xsock-doctor", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    }
    const Fd fd(memory);
    if (fd.get() < 0) return failed("memfd_create()");
    const auto bytes = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
    if (::ftruncate(fd.get(), static_cast<off_t>(bytes)) != 0) return failed("ftruncate()");
    if (::fallocate(fd.get(), 0, 0, static_cast<off_t>(bytes)) != 0) return failed("fallocate()");
    if (::fcntl(fd.get(), F_ADD_SEALS, kSeals) != 0) return failed("F_ADD_SEALS");
    void* const at = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 0);
    if (at == MAP_FAILED) return failed("mmap()");
    munmap(at, bytes);
    return {};
}

}  // namespace

void check_shm(Findings& findings) {
    for (const auto& [try_it, mend] :
         {std::pair{&try_socket,
                    "a seccomp profile or RestrictAddressFamilies= of the service "
                    "forbids it; data stay on TCP"},
          std::pair{&try_memory,
                    "a seccomp profile or the limit of a cgroup forbids it; data stay "
                    "on TCP"}}) {
        const std::string problem = try_it();
        if (!problem.empty()) return findings.note("shared memory", problem, mend);
    }
    findings.ok("shared memory",
                "the kernel gives what it needs: AF_UNIX, sealed anonymous memory");
}

}  // namespace xsock::tools
