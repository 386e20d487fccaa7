// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Memory windows: rights for peers to part of a region, given and taken by work requests. Type 1
// serves all QPs of the protection domain and changes its rkey with each binding, type 2 (2B)
// serves the QP that bound it, under an rkey whose lower eight bits the program chooses, and may be
// invalidated by that QP or its peer.
#include <algorithm>

#include "verbs/cancel.hpp"
#include "verbs/engine.hpp"
#include "verbs/ops.hpp"

namespace xsock::verbs {
namespace {

constexpr std::uint32_t kKeyBits = 0xff;
constexpr unsigned kKnownRights = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
                                  IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC |
                                  IBV_ACCESS_ZERO_BASED;

/// Bindings that are revoked need no entry any more.
void forget_revoked(VerbsState& engine, Mw& mw) {
    const auto gone = [&](std::uint32_t stag) {
        return engine.device().window_revoked(stag) && engine.device().deregister_memory(stag).ok();
    };
    mw.bindings.erase(std::remove_if(mw.bindings.begin(), mw.bindings.end(), gone),
                      mw.bindings.end());
}

/// 0 or an errno. The mutex is held.
int describe(Qp& qp, const Mw& mw, const ibv_mw_bind_info& info, RegionAttr& attr) noexcept {
    const auto& mr = *reinterpret_cast<const Mr*>(info.mr);
    if ((info.mw_access_flags & ~kKnownRights) != 0) return EOPNOTSUPP;
    const PdId pd = reinterpret_cast<const Pd*>(mw.base.pd)->id;
    if (reinterpret_cast<const Pd*>(mr.base.pd)->id != pd) return EPERM;
    // Addresses are as the region's; within it or not, bind() sees.
    attr.address = static_cast<std::byte*>(mr.base.addr) + (info.addr - mr.iova);
    attr.length = info.length;
    attr.first_to = (info.mw_access_flags & IBV_ACCESS_ZERO_BASED) != 0 ? 0 : info.addr;
    attr.pd = pd;
    attr.only_qp = mw.base.type == IBV_MW_TYPE_2 ? qp.qp->num() : 0;
    attr.access = kZeroBased;
    if ((info.mw_access_flags & IBV_ACCESS_REMOTE_WRITE) != 0) attr.access |= kRemoteWrite;
    if ((info.mw_access_flags & IBV_ACCESS_REMOTE_READ) != 0) attr.access |= kRemoteRead;
    if ((info.mw_access_flags & IBV_ACCESS_REMOTE_ATOMIC) != 0) attr.access |= kRemoteAtomic;
    return 0;
}

}  // namespace

int prepare_binding(Qp& qp, ibv_mw* given, std::uint32_t rkey, const ibv_mw_bind_info& info,
                    SendWr& to) noexcept {
    return locked_errno([&](VerbsState& engine) {
        const bool binds = info.length != 0;
        if (!engine.alive(given, Kind::mw) || (binds && !engine.alive(info.mr, Kind::mr))) {
            return EINVAL;
        }
        Mw& mw = *reinterpret_cast<Mw*>(given);
        if (reinterpret_cast<Pd*>(given->pd)->id != qp.attr.pd) return EPERM;
        forget_revoked(engine, mw);
        to.opcode = SendOpcode::bind_window;
        to.immediate = given->rkey;  // not sent: for cancel_binding()
        to.invalidate_stag = given->rkey;
        if (!binds) return 0;
        const std::uint32_t stag = (given->rkey & ~kKeyBits) | (rkey & kKeyBits);
        RegionAttr attr;
        if (const int error = describe(qp, mw, info, attr); error != 0) return error;
        mw.bindings.reserve(mw.bindings.size() + 1);
        if (auto r = engine.device().prepare_window(stag, attr, info.mr->lkey); !r) {
            return r.error().code == EEXIST ? EINVAL : r.error().code;
        }
        mw.bindings.push_back(stag);
        to.remote_stag = given->rkey = stag;
        return 0;
    });
}

void cancel_binding(ibv_mw* given, const SendWr& wr) noexcept {
    if (wr.remote_stag == 0) return;
    (void)locked_errno([&](VerbsState& engine) {
        if (!engine.alive(given, Kind::mw)) return EINVAL;
        Mw& mw = *reinterpret_cast<Mw*>(given);
        (void)engine.device().deregister_memory(wr.remote_stag);
        mw.bindings.erase(std::remove(mw.bindings.begin(), mw.bindings.end(), wr.remote_stag),
                          mw.bindings.end());
        if (given->rkey == wr.remote_stag) given->rkey = static_cast<std::uint32_t>(wr.immediate);
        return 0;
    });
}

ibv_mw* alloc_mw(ibv_pd* pd, ibv_mw_type type) noexcept {
    return locked_object<ibv_mw>([&](VerbsState& engine) {
        if (!engine.alive(pd, Kind::pd) ||
            (value_in(type) != IBV_MW_TYPE_1 && value_in(type) != IBV_MW_TYPE_2)) {
            return fail<ibv_mw>(EINVAL);
        }
        auto mw = std::make_unique<Mw>();
        auto reserved = engine.device().reserve_window();
        if (!reserved) return fail<ibv_mw>(reserved.error().code);
        mw->base.context = pd->context;
        mw->base.pd = pd;
        mw->base.rkey = mw->base.handle = *reserved;
        mw->base.type = type;
        engine.add(mw.get(), Kind::mw);
        ++reinterpret_cast<Pd*>(pd)->users;
        return &mw.release()->base;
    });
}

int dealloc_mw(ibv_mw* given) noexcept {
    return locked_errno([&](VerbsState& engine) {
        if (!engine.alive(given, Kind::mw)) return EINVAL;
        auto* const mw = reinterpret_cast<Mw*>(given);
        for (const std::uint32_t stag : mw->bindings) {
            (void)engine.device().deregister_memory(stag);
        }
        engine.device().release_window(given->rkey);
        engine.remove(mw);
        --reinterpret_cast<Pd*>(given->pd)->users;
        delete mw;
        return 0;
    });
}

int bind_mw(ibv_qp* given, ibv_mw* mw, ibv_mw_bind* bind) noexcept {
    const HoldCancellation hold;
    Qp& qp = *Qp::of(given);
    if (qp.engine != VerbsState::current()) return EPERM;
    if (qp.state.load(std::memory_order_acquire) < IBV_QPS_RTS) return EINVAL;
    if (qp.datagrams != nullptr) return EINVAL;
    SendWr wr;
    wr.wr_id = bind->wr_id;
    wr.flags = 0;
    if ((bind->send_flags & IBV_SEND_SIGNALED) != 0 || qp.signal_all) wr.flags |= kSendSignaled;
    if ((bind->send_flags & IBV_SEND_FENCE) != 0) wr.flags |= kSendFence;
    if (const int error = prepare_binding(qp, mw, mw->rkey + 1, bind->bind_info, wr); error != 0) {
        return error;
    }
    const int error = post_one(qp, wr);
    if (error != 0) cancel_binding(mw, wr);
    return error;
}

}  // namespace xsock::verbs
