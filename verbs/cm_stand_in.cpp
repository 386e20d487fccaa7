// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "verbs/cm_stand_in.hpp"

#include <cerrno>
#include <utility>

#include "transport/log.hpp"
#include "verbs/addresses.hpp"
#include "verbs/cm.hpp"
#include "verbs/cm_greeting.hpp"
#include "verbs/device_profile.hpp"
#include "verbs/gid_greeting.hpp"
#include "verbs/ops.hpp"

namespace xsock::verbs {
namespace {

// A domain and a queue of the library's own, of all of them: nothing is registered in the one, and
// nothing comes to the other. 0 or an errno.
int make_queues(VerbsState& engine, Context& context) {
    OwnObjects& own = engine.own;
    if (own.stand_in_pd == nullptr) own.stand_in_pd = alloc_pd_locked(engine, context);
    if (own.stand_in_pd == nullptr) return errno;
    if (own.stand_in_cq == nullptr) {
        own.stand_in_cq = create_cq_locked(engine, context, 1, nullptr, nullptr);
    }
    return own.stand_in_cq != nullptr ? 0 : errno;
}

std::string peer_of(const CmId& id) { return text_of(&id.base.route.addr.dst_addr); }

}  // namespace

bool needs_stand_in(VerbsState& engine, const CmId& id, const rdma_conn_param* param) {
    if (!device_profile().roce || id.base.qp != nullptr || param == nullptr) return false;
    if (param->qp_num == 0 || param->qp_num > kQpNumMax) return false;
    const auto found = engine.qps.find(param->qp_num);
    return found == engine.qps.end() || found->second->datagrams != nullptr ||
           is_stand_in(*found->second);
}

Qp* open_stand_in(VerbsState& engine, CmId& id, const rdma_conn_param& param) {
    id.stand_in.own_num = param.qp_num;
    if (id.stand_in.qp != nullptr) return id.stand_in.qp;  // of an attempt that could not begin
    if (id.base.verbs == nullptr) return fail<Qp>(EINVAL);
    if (const int error = make_queues(engine, *Context::of(id.base.verbs)); error != 0) {
        return fail<Qp>(error);
    }
    ibv_qp_init_attr attr{};
    attr.send_cq = attr.recv_cq = engine.own.stand_in_cq;
    attr.qp_type = IBV_QPT_RC;
    attr.cap.max_send_wr = attr.cap.max_recv_wr = 1;
    // No receive will ever be posted: a message of the peer ends the connection at once.
    ibv_qp* const made = create_qp_locked(engine, engine.own.stand_in_pd, attr, 0);
    if (made == nullptr) return nullptr;
    release_qp(id);
    id.qp = id.stand_in.qp = Qp::of(made);
    id.qp->id = &id;
    return id.qp;
}

void close_stand_in(VerbsState& engine, CmId& id) noexcept {
    Qp* const qp = std::exchange(id.stand_in.qp, nullptr);
    if (qp == nullptr) return;
    if (id.qp == qp) release_qp(id);
    remove_qp_locked(engine, *qp);
    free_qp_locked(*qp);
}

bool is_stand_in(const Qp& qp) noexcept { return qp.id != nullptr && qp.id->stand_in.qp == &qp; }

bool take_peer_num(CmId& id, ConstBytes& data) {
    const auto greeting = decode_cm_greeting(data);
    if (!greeting) return true;
    id.stand_in.peer_num = greeting->qp_num;
    data = greeting->data;
    return greeting->qp_num != 0;
}

int check_accept(const CmId& id, bool stands_in) {
    if (stands_in == (id.stand_in.peer_num != 0)) return 0;
    log(LogLevel::error, "cm-other-kind",
        stands_in ? "%s: it connects a queue pair, and the program accepts with one that it cannot "
                    "connect"
                  : "%s: it connects no queue pair, and the program accepts with one that it can",
        peer_of(id).c_str());
    return EINVAL;
}

bool take_reply(CmId& id, ConstBytes& data) {
    if (take_peer_num(id, data) && id.stand_in.peer_num != 0) return true;
    log(LogLevel::error, "cm-other-kind",
        "%s: it has accepted a connection without a queue pair as any other; it is no xsock",
        peer_of(id).c_str());
    return false;
}

}  // namespace xsock::verbs
