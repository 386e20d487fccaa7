// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Protection domains and memory regions. lkey and rkey are the STag.
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <cstring>

#include "base/once.hpp"
#include "verbs/device_profile.hpp"
#include "verbs/engine.hpp"
#include "verbs/ops.hpp"

namespace xsock::verbs {
namespace {

constexpr int kKnownAccess = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
                             IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC |
                             IBV_ACCESS_MW_BIND | IBV_ACCESS_ZERO_BASED;
// May be ignored: by definition, or a hint for adapters that have page tables.
constexpr unsigned kOptionalAccess =
    unsigned{IBV_ACCESS_OPTIONAL_RANGE} | unsigned{IBV_ACCESS_HUGETLB};

/// 0 or an errno.
int translate(unsigned access, std::uint32_t& out) noexcept {
    access &= ~kOptionalAccess;
    if ((access & ~static_cast<unsigned>(kKnownAccess)) != 0) return EOPNOTSUPP;
    const bool writes = (access & (IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC)) != 0;
    if (writes && (access & IBV_ACCESS_LOCAL_WRITE) == 0) return EINVAL;
    out = 0;
    if ((access & IBV_ACCESS_LOCAL_WRITE) != 0) out |= kLocalWrite;
    if ((access & IBV_ACCESS_REMOTE_WRITE) != 0) out |= kRemoteWrite;
    if ((access & IBV_ACCESS_REMOTE_READ) != 0) out |= kRemoteRead;
    if ((access & IBV_ACCESS_REMOTE_ATOMIC) != 0) out |= kRemoteAtomic;
    if ((access & IBV_ACCESS_MW_BIND) != 0) out |= kWindows;
    return 0;
}

bool elsewhere(const Mr& mr) noexcept {
    return mr.iova != reinterpret_cast<std::uintptr_t>(mr.base.addr);
}

/// False: nothing can be read there (no mapping, PROT_NONE, beyond the end of a file). This call
/// copies eight bytes before it refuses what it is asked for, at a cost that does not depend on how
/// many mappings there are.
bool readable(std::uintptr_t at) noexcept {
    constexpr int kNothing = -1;
    constexpr std::uintptr_t kSize = 8;  // of the kernel's sigset_t
    if (at < kSize) return false;
    return syscall(SYS_rt_sigprocmask, kNothing, at & ~(kSize - 1), nullptr, kSize) == 0 ||
           errno != EFAULT;
}

/// valgrind reports what readable() does where those bytes have not been written yet.
bool is_watched_by_valgrind() noexcept {
    static constinit Once<bool> known;
    return known.get([] {
        const char* const preloads = std::getenv("LD_PRELOAD");
        return preloads != nullptr && std::strstr(preloads, "vgpreload") != nullptr;
    });
}

/// Pages between the first and the last are looked at when something is moved.
bool ends_are_readable(const ibv_mr& mr) noexcept {
    const auto first = reinterpret_cast<std::uintptr_t>(mr.addr);
    if (mr.length == 0 || mr.length - 1 > UINTPTR_MAX - first) return true;  // the device's
    return readable(first) && readable(first + mr.length - 1);
}

/// 0 or EFAULT.
int check_memory(const Mr& mr) noexcept {
    if (!device_profile().checks_memory || is_watched_by_valgrind()) return 0;
    return ends_are_readable(mr.base) ? 0 : EFAULT;
}

/// What `mr` says, for the device. 0 or an errno.
int describe(Mr& mr) noexcept {
    RegionAttr attr;
    if (const int error = translate(static_cast<unsigned>(mr.access), attr.access); error != 0) {
        return error;
    }
    attr.address = static_cast<std::byte*>(mr.base.addr);
    attr.length = mr.base.length;
    attr.pd = reinterpret_cast<Pd*>(mr.base.pd)->id;
    attr.access |= kZeroBased;
    attr.first_to = mr.iova;
    mr.attr = attr;
    return 0;
}

/// 0 or an errno.
int enter(VerbsState& engine, Mr& mr) {
    if (const int error = describe(mr); error != 0) return error;
    auto stag = engine.device().register_memory(mr.attr);
    if (!stag) return stag.error().code;
    mr.base.lkey = mr.base.rkey = mr.base.handle = *stag;
    try {
        engine.mrs.emplace(*stag, &mr);
    } catch (const std::bad_alloc&) {
        (void)engine.device().deregister_memory(*stag);
        return ENOMEM;
    }
    if (elsewhere(mr)) ++engine.regions_elsewhere;
    return 0;
}

/// 0 or an errno.
int leave(VerbsState& engine, Mr& mr) {
    if (auto r = engine.device().deregister_memory(mr.base.lkey); !r) return r.error().code;
    engine.mrs.erase(mr.base.lkey);
    if (elsewhere(mr)) --engine.regions_elsewhere;
    return 0;
}

}  // namespace

ibv_pd* alloc_pd_locked(VerbsState& engine, Context& context) {
    auto pd = std::make_unique<Pd>();
    engine.add(pd.get(), Kind::pd);
    pd->base.context = context.base();
    pd->id = engine.device().create_pd();
    pd->base.handle = pd->id;
    ++context.objects;
    return &pd.release()->base;
}

ibv_pd* alloc_pd(ibv_context* context) noexcept {
    return locked_object<ibv_pd>([&](VerbsState& engine) {
        if (!engine.alive(context, Kind::context)) return fail<ibv_pd>(EINVAL);
        return alloc_pd_locked(engine, *Context::of(context));
    });
}

int dealloc_pd(ibv_pd* given) noexcept {
    return locked_errno([&](VerbsState& engine) {
        if (!engine.alive(given, Kind::pd)) return EINVAL;
        auto* const pd = reinterpret_cast<Pd*>(given);
        if (pd->users != 0) return EBUSY;
        if (given == engine.own.pd) engine.own.pd = nullptr;  // the next id makes another
        engine.remove(pd);
        if (pd->parent_of != nullptr) --pd->parent_of->users;
        if (pd->td != nullptr) --pd->td->users;
        Context& context = *Context::of(pd->base.context);
        delete pd;
        --context.objects;
        release_locked(engine, context);
        return 0;
    });
}

ibv_mr* reg_mr_iova2(ibv_pd* given, void* address, size_t length, std::uint64_t iova,
                     unsigned int access) noexcept {
    return locked_object<ibv_mr>([&](VerbsState& engine) {
        if (!engine.alive(given, Kind::pd)) return fail<ibv_mr>(EINVAL);
        auto mr = std::make_unique<Mr>();
        Registration registration(engine, mr.get(), Kind::mr);
        mr->base.context = given->context;
        mr->base.pd = given;
        mr->base.addr = address;
        mr->base.length = length;
        mr->iova = (access & IBV_ACCESS_ZERO_BASED) != 0 ? 0 : iova;
        mr->access = static_cast<int>(access);
        int error = check_memory(*mr);
        if (error == 0) error = enter(engine, *mr);
        if (error != 0) return fail<ibv_mr>(error);
        registration.keep();
        ++reinterpret_cast<Pd*>(given)->users;
        return &mr.release()->base;
    });
}

ibv_mr* reg_mr(ibv_pd* pd, void* address, size_t length, int access) noexcept {
    return reg_mr_iova2(pd, address, length, reinterpret_cast<std::uintptr_t>(address),
                        static_cast<unsigned>(access));
}

ibv_mr* reg_mr_iova(ibv_pd* pd, void* address, size_t length, std::uint64_t iova,
                    int access) noexcept {
    return reg_mr_iova2(pd, address, length, iova, static_cast<unsigned>(access));
}

int rereg_mr(ibv_mr* given, int flags, ibv_pd* pd, void* address, size_t length,
             int access) noexcept {
    constexpr int kKnown =
        IBV_REREG_MR_CHANGE_TRANSLATION | IBV_REREG_MR_CHANGE_PD | IBV_REREG_MR_CHANGE_ACCESS;
    VerbsState* const found = VerbsState::get();
    if (found == nullptr) return IBV_REREG_MR_ERR_CMD;
    return locked<int>(IBV_REREG_MR_ERR_CMD, IBV_REREG_MR_ERR_CMD, [&](VerbsState& engine) -> int {
        if (flags == 0 || (flags & ~kKnown) != 0 || !engine.alive(given, Kind::mr) ||
            ((flags & IBV_REREG_MR_CHANGE_PD) != 0 && !engine.alive(pd, Kind::pd)) ||
            ((flags & IBV_REREG_MR_CHANGE_TRANSLATION) != 0 && length == 0)) {
            errno = EINVAL;
            return IBV_REREG_MR_ERR_INPUT;
        }
        Mr& mr = *reinterpret_cast<Mr*>(given);
        Mr changed = mr;
        if ((flags & IBV_REREG_MR_CHANGE_TRANSLATION) != 0) {
            changed.base.addr = address;
            changed.base.length = length;
            changed.iova = reinterpret_cast<std::uintptr_t>(address);
        }
        if ((flags & IBV_REREG_MR_CHANGE_PD) != 0) changed.base.pd = pd;
        if ((flags & IBV_REREG_MR_CHANGE_ACCESS) != 0) changed.access = access;
        int error = describe(changed);
        if (error == 0 && (flags & IBV_REREG_MR_CHANGE_TRANSLATION) != 0) {
            error = check_memory(changed);
        }
        if (error != 0) {
            errno = error;
            return IBV_REREG_MR_ERR_INPUT;
        }
        // The key stays: peers may know it.
        if (auto r = engine.device().replace_memory(mr.base.lkey, changed.attr); !r) {
            errno = r.error().code;
            return IBV_REREG_MR_ERR_CMD;
        }
        engine.regions_elsewhere += static_cast<int>(elsewhere(changed)) - elsewhere(mr);
        if (changed.base.pd != mr.base.pd) {
            --reinterpret_cast<Pd*>(mr.base.pd)->users;
            ++reinterpret_cast<Pd*>(changed.base.pd)->users;
        }
        mr = changed;
        return 0;
    });
}

int dereg_mr(ibv_mr* given) noexcept {
    return locked_errno([&](VerbsState& engine) {
        if (!engine.alive(given, Kind::mr)) return EINVAL;
        auto* const mr = reinterpret_cast<Mr*>(given);
        if (const int error = leave(engine, *mr); error != 0) return error;  // a window is bound
        engine.remove(mr);
        --reinterpret_cast<Pd*>(mr->base.pd)->users;
        delete mr;
        return 0;
    });
}

}  // namespace xsock::verbs
