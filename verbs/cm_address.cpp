// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// rdma_getaddrinfo(): getaddrinfo() in rdma_cm's terms.
#include <netdb.h>

#include <cstdlib>
#include <cstring>

#include "verbs/addresses.hpp"
#include "verbs/cm.hpp"
#include "verbs/device_profile.hpp"

namespace xsock::verbs::cm {
namespace {

bool copy(sockaddr*& to, socklen_t& length, const sockaddr* from, socklen_t n) noexcept {
    if (from == nullptr || n == 0) return true;
    to = static_cast<sockaddr*>(std::malloc(n));
    if (to == nullptr) return false;
    std::memcpy(to, from, n);
    length = n;
    return true;
}

/// The first address that others can reach, or that of the loopback interface.
bool copy_first_address(rdma_addrinfo& info) noexcept {
    try {
        const auto all = local_addresses();
        if (all.empty()) return true;
        const auto* const first = reinterpret_cast<const sockaddr*>(&all.front().address);
        info.ai_family = first->sa_family;
        return copy(info.ai_src_addr, info.ai_src_len, first, length_of(first));
    } catch (...) {
        return false;
    }
}

int errno_of(int gai) noexcept {
    switch (gai) {
        case EAI_MEMORY:
            return ENOMEM;
        case EAI_FAMILY:
        case EAI_SOCKTYPE:
        case EAI_BADFLAGS:
        case EAI_SERVICE:
            return EINVAL;
        case EAI_SYSTEM:
            return errno;
        case EAI_AGAIN:
            return EAGAIN;
        default:
            return ENODEV;
    }
}

struct Found {
    addrinfo* list = nullptr;
    ~Found() {
        if (list != nullptr) ::freeaddrinfo(list);
    }
};

}  // namespace

int getaddrinfo(const char* node, const char* service, const rdma_addrinfo* hints,
                rdma_addrinfo** result) noexcept {
    static const rdma_addrinfo none{};
    if (result == nullptr || (node == nullptr && service == nullptr && hints == nullptr)) {
        return fail(EINVAL);
    }
    if (hints == nullptr) hints = &none;
    const bool datagrams = device_profile().roce &&
                           (hints->ai_port_space == RDMA_PS_UDP || hints->ai_qp_type == IBV_QPT_UD);
    const int type = datagrams ? IBV_QPT_UD : IBV_QPT_RC;
    if (hints->ai_qp_type != 0 && hints->ai_qp_type != type) return fail(EOPNOTSUPP);
    auto* const info = static_cast<rdma_addrinfo*>(std::calloc(1, sizeof(rdma_addrinfo)));
    if (info == nullptr) return fail(ENOMEM);
    info->ai_flags = hints->ai_flags;
    info->ai_family = hints->ai_family;
    info->ai_qp_type = type;
    info->ai_port_space = hints->ai_port_space != 0 ? hints->ai_port_space
                          : datagrams               ? RDMA_PS_UDP
                                                    : RDMA_PS_TCP;
    int error = 0;
    if (node != nullptr && service == nullptr && (hints->ai_flags & RAI_PASSIVE) != 0 &&
        std::strcmp(node, "localhost") == 0) {
        // libfabric's question for the address that a server of its may be reached at. It knows
        // devices that have none on the loopback interface; for others it would be that one.
        error = copy_first_address(*info) ? 0 : ENOMEM;
    } else if (node != nullptr || service != nullptr) {
        addrinfo wanted{};
        Found found;
        wanted.ai_family = hints->ai_family;
        wanted.ai_socktype = datagrams ? SOCK_DGRAM : SOCK_STREAM;
        if ((hints->ai_flags & RAI_PASSIVE) != 0) wanted.ai_flags |= AI_PASSIVE;
        if ((hints->ai_flags & RAI_NUMERICHOST) != 0) wanted.ai_flags |= AI_NUMERICHOST;
        if (const int gai = ::getaddrinfo(node, service, &wanted, &found.list); gai != 0) {
            error = errno_of(gai);
        } else {
            info->ai_family = found.list->ai_family;
            const bool passive = (hints->ai_flags & RAI_PASSIVE) != 0;
            if (!copy(passive ? info->ai_src_addr : info->ai_dst_addr,
                      passive ? info->ai_src_len : info->ai_dst_len, found.list->ai_addr,
                      found.list->ai_addrlen)) {
                error = ENOMEM;
            }
        }
    } else if (!copy(info->ai_dst_addr, info->ai_dst_len, hints->ai_dst_addr, hints->ai_dst_len)) {
        error = ENOMEM;
    }
    if (error == 0 && info->ai_src_addr == nullptr &&
        !copy(info->ai_src_addr, info->ai_src_len, hints->ai_src_addr, hints->ai_src_len)) {
        error = ENOMEM;
    }
    if (error != 0) {
        freeaddrinfo(info);
        return fail(error);
    }
    *result = info;
    return 0;
}

void freeaddrinfo(rdma_addrinfo* list) noexcept {
    while (list != nullptr) {
        rdma_addrinfo* const next = list->ai_next;
        std::free(list->ai_connect);
        std::free(list->ai_route);
        std::free(list->ai_src_canonname);
        std::free(list->ai_dst_canonname);
        std::free(list->ai_src_addr);
        std::free(list->ai_dst_addr);
        std::free(list);
        list = next;
    }
}

}  // namespace xsock::verbs::cm
