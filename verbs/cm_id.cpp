// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Ids: made, bound, resolved, given queues, moved between channels, destroyed.
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "transport/log.hpp"
#include "verbs/addresses.hpp"
#include "verbs/cm.hpp"
#include "verbs/device_profile.hpp"
#include "verbs/ops.hpp"

namespace xsock::verbs {
namespace {

sockaddr* src_of(CmId& id) noexcept { return &id.base.route.addr.src_addr; }

/// The address that packets to `to` would leave from. 0 or an errno.
int source_toward(const sockaddr* to, sockaddr_storage& from) {
    const int fd = socket(to->sa_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0) return errno;
    sockaddr_storage copy{};
    copy_address(copy, to);
    auto* const any = reinterpret_cast<sockaddr*>(&copy);
    if (port_of(any) == 0) set_port(any, 9);  // any port will do: nothing is sent
    socklen_t size = sizeof from;
    int error = 0;
    if (::connect(fd, any, length_of(any)) != 0 ||
        getsockname(fd, reinterpret_cast<sockaddr*>(&from), &size) != 0) {
        error = errno;
    }
    close(fd);
    set_port(reinterpret_cast<sockaddr*>(&from), 0);
    return error;
}

void fill_gids(CmId& id) noexcept {
    auto& addr = id.base.route.addr;
    addr.addr.ibaddr.sgid = gid_of(addr.src_storage);
    addr.addr.ibaddr.dgid = gid_of(addr.dst_storage);
    addr.addr.ibaddr.pkey = 0xffff;
}

}  // namespace

CmId* create_id_locked(VerbsState& engine, CmChannel* channel, void* context, rdma_port_space ps) {
    auto id = std::make_unique<CmId>();
    if (ps == RDMA_PS_UDP) id->sidr = std::make_unique<SidrId>();
    Registration registration(engine, id.get(), Kind::cm_id);
    if (channel == nullptr) {
        channel = create_channel(engine);
        if (channel == nullptr) return nullptr;
        id->own_channel = true;
        id->sync = 1;
    }
    ++channel->ids;
    id->engine = &engine;
    id->base.channel = &channel->base;
    id->base.context = context;
    id->base.ps = ps;
    id->base.qp_type = ps == RDMA_PS_UDP ? IBV_QPT_UD : IBV_QPT_RC;
    registration.keep();
    return id.release();
}

int attach_device(VerbsState& engine, CmId& id) {
    if (id.base.verbs != nullptr) return 0;
    ibv_context* const context = default_context_locked(engine);
    if (context == nullptr) return errno;
    if (engine.own.pd == nullptr) {
        engine.own.pd = alloc_pd_locked(engine, *Context::of(context));
    }
    // Programs that make QPs by themselves take both from the id.
    id.base.verbs = context;
    id.base.pd = engine.own.pd;
    id.base.port_num = kPort;
    return 0;
}

void close_sockets(VerbsState& engine, CmId& id) {
    for (Loop::Token* token : {&id.listen_token, &id.fd_token}) {
        if (*token != 0) engine.loop().forget(*token);
        *token = 0;
    }
    if (id.timer != 0) engine.loop().forget(id.timer);
    id.timer = 0;
    for (int* fd : {&id.listen_fd, &id.fd}) {
        if (*fd >= 0) close(*fd);
        *fd = -1;
    }
}

void close_inherited(CmId& id) noexcept {
    for (const int fd : {std::exchange(id.listen_fd, -1), std::exchange(id.fd, -1)}) {
        if (fd >= 0) close(fd);
    }
    if (id.of_datagrams() && id.sidr->socket != nullptr) id.sidr->socket->close_inherited();
}

void detach_locked(VerbsState& engine, CmId& id) {
    close_sockets(engine, id);
    if (id.of_datagrams()) detach_datagrams(engine, id);
    purge_events(engine, id);  // first: the children have none then that would be searched for
    if (id.reading != nullptr) {
        id.reading->for_each([&](StartupTable::Id each) {
            auto& child = *static_cast<CmId*>(each);
            child.listener = nullptr;
            detach_locked(engine, child);
            free_id_locked(engine, child);
        });
        id.reading->clear();
    }
    // Those that the program holds outlive their listener.
    for (CmId* const child : id.waiting) child->listener = nullptr;
    id.waiting.clear();
    leave_listener(engine, id);
    if (id.qp != nullptr) confirm_end_locked(engine, *id.qp);
    close_stand_in(engine, id);
    release_qp(id);
}

void release_qp(CmId& id) noexcept {
    if (id.qp != nullptr) id.qp->id = nullptr;
    id.qp = nullptr;
}

void free_id_locked(VerbsState& engine, CmId& id) {
    engine.remove(&id);
    for (CmEvent* const event : id.reserved) {
        engine.remove(event);
        delete event;
    }
    auto& channel = *reinterpret_cast<CmChannel*>(id.base.channel);
    --channel.ids;
    if (id.own_channel || (channel.destroyed && channel.ids == 0)) destroy_channel(engine, channel);
    free_path(id);
    delete &id;
}

int tcp_address(const VerbsState& engine, const sockaddr* named, sockaddr_storage& to) {
    copy_address(to, named);
    if (to_tcp_port(reinterpret_cast<sockaddr*>(&to), engine.port_offset)) return 0;
    log(LogLevel::error, "port-offset", "%s: the port and XSOCK_VERBS_PORT_OFFSET=%d make no port",
        text_of(named).c_str(), engine.port_offset);
    return EADDRNOTAVAIL;
}

namespace cm {

int create_id(rdma_event_channel* channel, rdma_cm_id** out, void* context,
              rdma_port_space ps) noexcept {
    return locked_cm([&](VerbsState& engine) {
        if (out == nullptr || (channel != nullptr && !engine.alive(channel, Kind::cm_channel))) {
            return fail(EINVAL);
        }
        // InfiniBand's own addresses have no place here, nor have datagrams on iWARP.
        const bool datagrams = value_in(ps) == RDMA_PS_UDP && device_profile().roce;
        if (value_in(ps) != RDMA_PS_TCP && !datagrams) return fail(EPROTONOSUPPORT);
        CmId* const id =
            create_id_locked(engine, reinterpret_cast<CmChannel*>(channel), context, ps);
        if (id == nullptr) return -1;
        *out = &id->base;
        return 0;
    });
}

int destroy_id(rdma_cm_id* given) noexcept {
    VerbsState* const engine = VerbsState::get();
    if (engine == nullptr) return -1;
    try {
        std::unique_lock lock(engine->mutex);
        if (!engine->alive(given, Kind::cm_id)) return fail(EINVAL);
        CmId& id = *CmId::of(given);
        if (given->event != nullptr) {
            auto* const event = reinterpret_cast<CmEvent*>(given->event);
            if (engine->alive(event, Kind::cm_event)) acknowledge_locked(*engine, *event);
            given->event = nullptr;
        }
        detach_locked(*engine, id);
        // While this thread waits, the mutex is free: to every other call the id is gone already.
        engine->turn(&id, Kind::cm_id_ending);
        // Memory of events that the program still holds is its own until it acknowledges them.
        engine->acknowledged.wait(lock,
                                  [&] { return id.events.delivered == id.events.acknowledged; });
        free_id_locked(*engine, id);
        return 0;
    } catch (...) {
        return fail(ENOMEM);
    }
}

int bind_addr(rdma_cm_id* given, sockaddr* address) noexcept {
    return locked_cm([&](VerbsState& engine) {
        if (!engine.alive(given, Kind::cm_id) || length_of(address) == 0) return fail(EINVAL);
        CmId& id = *CmId::of(given);
        if (id.state != IdState::idle) return fail(EINVAL);
        if (!is_wildcard(address)) {
            if (const int error = attach_device(engine, id); error != 0) return fail(error);
        }
        copy_address(given->route.addr.src_storage, address);
        if (const int error = open_listener(engine, id); error != 0) {
            given->route.addr.src_storage = {};
            return fail(error);
        }
        id.state = IdState::bound;
        fill_gids(id);
        return 0;
    });
}

int resolve_addr(rdma_cm_id* given, sockaddr* src, sockaddr* dst, int) noexcept {
    return locked_cm([&](VerbsState& engine) {
        if (!engine.alive(given, Kind::cm_id) || length_of(dst) == 0 ||
            (src != nullptr && length_of(src) == 0)) {
            return fail(EINVAL);
        }
        CmId& id = *CmId::of(given);
        if (id.state != IdState::idle && id.state != IdState::bound) return fail(EINVAL);
        sockaddr_storage from{}, tcp;
        if (const int error = tcp_address(engine, dst, tcp); error != 0) return fail(error);
        if (src != nullptr) {
            if (const int error = tcp_address(engine, src, tcp); error != 0) return fail(error);
        }
        if (const int error = source_toward(dst, from); error != 0) return fail(error);
        if (id.state == IdState::idle && src != nullptr) {
            copy_address(given->route.addr.src_storage, src);
        }
        sockaddr* const source = src_of(id);
        if (source->sa_family == AF_UNSPEC || is_wildcard(source)) {
            const std::uint16_t port = length_of(source) != 0 ? port_of(source) : 0;
            given->route.addr.src_storage = from;
            set_port(source, port);
        }
        copy_address(given->route.addr.dst_storage, dst);
        if (const int error = attach_device(engine, id); error != 0) return fail(error);
        reserve_events(engine, id, 1);
        fill_gids(id);
        id.state = IdState::addr_resolved;
        tell(engine, id, RDMA_CM_EVENT_ADDR_RESOLVED);
        return 0;
    });
}

int resolve_route(rdma_cm_id* given, int) noexcept {
    return locked_cm([&](VerbsState& engine) {
        if (!engine.alive(given, Kind::cm_id)) return fail(EINVAL);
        CmId& id = *CmId::of(given);
        if (id.state != IdState::addr_resolved) return fail(EINVAL);
        reserve_events(engine, id, 1);
        fill_path(engine.gids(), id);
        id.state = IdState::route_resolved;  // IP routes by itself
        tell(engine, id, RDMA_CM_EVENT_ROUTE_RESOLVED);
        return 0;
    });
}

int migrate_id(rdma_cm_id* given, rdma_event_channel* channel) noexcept {
    return locked_cm([&](VerbsState& engine) {
        if (!engine.alive(given, Kind::cm_id) ||
            (channel != nullptr && !engine.alive(channel, Kind::cm_channel))) {
            return fail(EINVAL);
        }
        CmId& id = *CmId::of(given);
        auto& from = *reinterpret_cast<CmChannel*>(given->channel);
        const bool synchronous = channel == nullptr;
        if (synchronous && id.own_channel) return 0;
        CmChannel* const to =
            synchronous ? create_channel(engine) : reinterpret_cast<CmChannel*>(channel);
        if (to == nullptr) return -1;
        const auto add_child = [&](CmId& child) {
            --from.ids;
            ++to->ids;
            child.base.channel = &to->base;
        };
        // Events about it that were not fetched move along, and the ids that were not reported.
        // (Of datagrams an event is queued about each.)
        if (id.reading != nullptr && !id.of_datagrams()) {
            id.reading->for_each(
                [&](StartupTable::Id child) { add_child(*static_cast<CmId*>(child)); });
        }
        for (auto i = from.events.begin(); i != from.events.end();) {
            if ((*i)->owner != &id) {
                ++i;
                continue;
            }
            if ((*i)->base.id != given) add_child(*CmId::of((*i)->base.id));
            const auto moved = i++;
            to->events.splice(to->events.end(), from.events, moved);
            to->events_waiting.notify();
            from.events_waiting.take();
        }
        --from.ids;
        ++to->ids;
        if (id.own_channel || (from.destroyed && from.ids == 0)) destroy_channel(engine, from);
        id.own_channel = synchronous;
        id.sync = synchronous ? 1 : 0;
        given->channel = &to->base;
        return 0;
    });
}

int set_option(rdma_cm_id* given, int level, int name, void* value, size_t length) noexcept {
    return locked_cm([&](VerbsState& engine) {
        if (!engine.alive(given, Kind::cm_id)) return fail(EINVAL);
        if (level != RDMA_OPTION_ID) return fail(ENOSYS);
        CmId& id = *CmId::of(given);
        if (name == RDMA_OPTION_ID_TOS || name == RDMA_OPTION_ID_ACK_TIMEOUT) {
            if (length != sizeof(std::uint8_t)) return fail(EINVAL);
            const auto byte = *static_cast<std::uint8_t*>(value);
            if (name == RDMA_OPTION_ID_TOS) {
                id.options.tos = byte;
            } else if (id.qp != nullptr) {
                id.qp->asked.timeout = byte;  // TCP has its own; kept for queries
            }
            return 0;
        }
        if (length != sizeof(int)) return fail(EINVAL);
        int number = 0;
        std::memcpy(&number, value, sizeof number);
        if (name == RDMA_OPTION_ID_REUSEADDR) {
            id.options.reuse_address = number != 0;
        } else if (name == RDMA_OPTION_ID_AFONLY) {
            if (id.state != IdState::idle) return fail(EINVAL);
            id.options.v6_only = number != 0;
        } else {
            return fail(ENOSYS);
        }
        return 0;
    });
}

__be16 get_src_port(rdma_cm_id* id) noexcept { return htons(port_of(&id->route.addr.src_addr)); }
__be16 get_dst_port(rdma_cm_id* id) noexcept { return htons(port_of(&id->route.addr.dst_addr)); }

ibv_context** get_devices(int* count) noexcept {
    return locked_object<ibv_context*>([&](VerbsState& engine) -> ibv_context** {
        ibv_context* const context = default_context_locked(engine);
        if (context == nullptr) return nullptr;
        // NOLINTNEXTLINE(bugprone-sizeof-expression): an array of pointers
        auto** const list = static_cast<ibv_context**>(std::calloc(2, sizeof(ibv_context*)));
        if (list == nullptr) return fail<ibv_context*>(ENOMEM);
        list[0] = context;
        if (count != nullptr) *count = 1;
        return list;
    });
}

void free_devices(ibv_context** list) noexcept { std::free(list); }

int set_local_ece(rdma_cm_id*, ibv_ece*) noexcept { return 0; }  // nothing vendors could add
int get_remote_ece(rdma_cm_id*, ibv_ece* ece) noexcept {
    *ece = {};
    return 0;
}

}  // namespace cm
}  // namespace xsock::verbs
