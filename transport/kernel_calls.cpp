// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "transport/kernel_calls.hpp"

#include <fcntl.h>
#include <netinet/in.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>

#include "base/permanent.hpp"
#include "include/xsock/ddp_uapi.h"
#include "transport/descriptors.hpp"

namespace xsock {
namespace {

constexpr int kTcpUlp = 31;  // TCP_ULP, which older headers lack

class SystemCalls final : public KernelCalls {
  public:
    int open() override {
        const DescriptorChange change;
        const int fd = ::open(DDP_DEVICE, O_RDWR | O_CLOEXEC);
        if (fd < 0) return -errno;
        return move_and_register(fd);
    }
    void close(int domain) noexcept override {
        const DescriptorChange change;
        close_internal_fd(domain);
    }
    int control(int domain, unsigned long request, void* argument) noexcept override {
        return ::ioctl(domain, request, argument) == 0 ? 0 : -errno;
    }
    int attach(int socket) noexcept override {
        return ::setsockopt(socket, IPPROTO_TCP, kTcpUlp, DDP_ULP, sizeof DDP_ULP - 1) == 0
                   ? 0
                   : -errno;
    }
    // Past the C library, as all reads of the data path (transport/tcp_socket.cpp).
    long receive(int socket, Bytes into) noexcept override {
        const long n =
            ::syscall(SYS_recvfrom, socket, into.data(), into.size(), MSG_DONTWAIT, 0L, 0L);
        return n >= 0 ? n : -errno;
    }
};

constinit Permanent<SystemCalls> the_calls;

}  // namespace

KernelCalls& system_kernel_calls() noexcept { return the_calls.value; }

}  // namespace xsock
