// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Protection domains, memory regions and keys of xsock.h.
#include "base/bytes.hpp"
#include "libxsock/api.hpp"
#include "libxsock/objects.hpp"

namespace xsock::api {
namespace {

static_assert(XSOCK_LOCAL_WRITE == kLocalWrite);
static_assert(XSOCK_REMOTE_WRITE == kRemoteWrite);
static_assert(XSOCK_REMOTE_READ == kRemoteRead);
static_assert(XSOCK_ZERO_BASED == kZeroBased);
static_assert(XSOCK_REMOTE_ATOMIC == kRemoteAtomic);
constexpr unsigned kKnownAccess = XSOCK_LOCAL_WRITE | XSOCK_REMOTE_WRITE | XSOCK_REMOTE_READ |
                                  XSOCK_ZERO_BASED | XSOCK_REMOTE_ATOMIC;

}  // namespace

xsock_pd* pd_create() noexcept {
    Device* const d = device();
    if (d == nullptr) return nullptr;
    return guarded<xsock_pd*>(nullptr, [&] {
        auto* pd = new xsock_pd;  // NOLINT(bugprone-unhandled-exception-at-new): guarded
        pd->id = d->create_pd();
        return pd;
    });
}

int pd_destroy(xsock_pd* pd) noexcept { return destroy_unused(pd); }

xsock_mr* mr_register(xsock_pd* pd, void* address, std::size_t length, unsigned access,
                      xsock_ep* only) noexcept {
    if ((access & ~kKnownAccess) != 0 || (address == nullptr && length != 0)) {
        errno = EINVAL;
        return nullptr;
    }
    if ((pd != nullptr && !same_process(pd)) || (only != nullptr && !same_process(only)))
        return nullptr;
    Device* const d = device();
    if (d == nullptr) return nullptr;
    return guarded<xsock_mr*>(nullptr, [&]() -> xsock_mr* {
        RegionAttr attr;
        attr.address = static_cast<std::byte*>(address);
        attr.length = length;
        attr.access = access;
        if ((access & (XSOCK_REMOTE_WRITE | XSOCK_REMOTE_ATOMIC)) != 0) attr.access |= kLocalWrite;
        attr.pd = pd != nullptr ? pd->id : 0;
        attr.only_qp = only != nullptr ? only->qp->num() : 0;
        auto mr = std::make_unique<xsock_mr>();
        auto stag = d->register_memory(attr);
        if (!stag) {
            errno = stag.error().code;
            return nullptr;
        }
        mr->stag = *stag;
        mr->attr = attr;
        mr->pd = pd;
        if (pd != nullptr) pd->users.fetch_add(1);
        return mr.release();
    });
}

int mr_deregister(xsock_mr* mr) noexcept {
    if (!usable(mr)) return -1;
    Device* const d = device();
    if (d == nullptr) return -1;
    return guarded(-1, [&] {
        const auto removed = d->deregister_memory(mr->stag);
        if (mr->pd != nullptr) mr->pd->users.fetch_sub(1);
        delete mr;
        return finish(removed);
    });
}

std::uint32_t mr_stag(const xsock_mr* mr) noexcept {
    if (mr == nullptr) {
        errno = EINVAL;
        return 0;
    }
    return mr->stag;
}

int mr_key(const xsock_mr* mr, std::size_t offset, std::size_t length, xsock_key* key) noexcept {
    if (mr == nullptr || key == nullptr) return fail(EINVAL);
    if (offset > mr->attr.length || length > mr->attr.length - offset) return fail(ERANGE);
    const std::uint64_t base = (mr->attr.access & kZeroBased) != 0
                                   ? 0
                                   : reinterpret_cast<std::uintptr_t>(mr->attr.address);
    store_be64(key->bytes, base + offset);
    store_be64(key->bytes + 8, length);
    store_be32(key->bytes + 16, mr->stag);
    store_be32(key->bytes + 20, mr->attr.access);
    return 0;
}

}  // namespace xsock::api
