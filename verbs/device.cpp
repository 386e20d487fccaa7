// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The one device, xsock0: found, opened, asked.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>

#include "base/once.hpp"
#include "include/xsock/xsock.h"
#include "verbs/addresses.hpp"
#include "verbs/device_profile.hpp"
#include "verbs/engine.hpp"
#include "verbs/gid_rendezvous.hpp"
#include "verbs/ops.hpp"

namespace xsock::verbs {
namespace {

constexpr std::uint64_t kGuid = 0x0258'736f'636b'0001;  // locally administered: "Xsock"
constexpr std::uint32_t kMaxMessage = 0x7fffffff;

DeviceEntry& the_device() noexcept {
    static constinit Once<DeviceEntry> entry;
    return entry.get([] {
        const DeviceProfile& profile = device_profile();
        DeviceEntry e;
        e.base.node_type = profile.node_type;
        e.base.transport_type = profile.transport;
        std::strcpy(e.base.name, "xsock0");
        std::strcpy(e.base.dev_name, profile.dev_name);
        std::strcpy(e.base.dev_path, profile.dev_path);
        std::strcpy(e.base.ibdev_path, "/sys/class/infiniband/xsock0");
        return e;
    });
}

__be64 guid() noexcept {
    return std::endian::native == std::endian::little ? __builtin_bswap64(kGuid) : kGuid;
}

ibv_gid_entry entry_of(const GidTable& all, std::size_t index) noexcept {
    ibv_gid_entry entry{};
    entry.gid = all[index].gid;
    entry.gid_index = static_cast<std::uint32_t>(index);
    entry.port_num = kPort;
    entry.gid_type = device_profile().gid_type;
    entry.ndev_ifindex = all[index].interface;
    return entry;
}

/// InfiniBand's counters stop at their highest value.
template <typename T>
T saturated(std::uint64_t n) noexcept {
    return static_cast<T>(std::min<std::uint64_t>(n, std::numeric_limits<T>::max()));
}

int dup_cloexec(int fd) noexcept { return fcntl(fd, F_DUPFD_CLOEXEC, 0); }

void fill(ibv_device_attr& attr) noexcept {
    attr = {};
    std::snprintf(attr.fw_ver, sizeof attr.fw_ver, "%d.%d.%d", XSOCK_VERSION_MAJOR,
                  XSOCK_VERSION_MINOR, XSOCK_VERSION_PATCH);
    attr.node_guid = attr.sys_image_guid = guid();
    attr.max_mr_size = ~std::uint64_t{0};
    attr.page_size_cap = 0xfffff000;
    attr.vendor_id = 0x0258'73;  // of kGuid, not a registered one
    attr.vendor_part_id = 1;
    attr.hw_ver = 1;
    attr.max_qp = 1 << 16;
    attr.max_qp_wr = kMaxQpWr;
    attr.device_cap_flags = IBV_DEVICE_CURR_QP_STATE_MOD | IBV_DEVICE_SYS_IMAGE_GUID |
                            IBV_DEVICE_MEM_WINDOW | IBV_DEVICE_MEM_WINDOW_TYPE_2B;
    attr.max_mw = 1 << 20;
    attr.max_sge = attr.max_sge_rd = attr.max_srq_sge = static_cast<int>(kMaxSge);
    attr.max_cq = 1 << 16;
    attr.max_cqe = kMaxCqe;
    attr.max_mr = 1 << 24;
    attr.max_pd = 1 << 20;
    attr.max_qp_rd_atom = attr.max_qp_init_rd_atom = kMaxReads;
    attr.max_res_rd_atom = kMaxReads * attr.max_qp;
    attr.atomic_cap = device_profile().atomic_cap;
    attr.max_ah = device_profile().roce ? 1 << 20 : 0;
    attr.max_srq = 1 << 16;
    attr.max_srq_wr = kMaxSrqWr;
    attr.max_pkeys = 1;
    attr.phys_port_cnt = 1;
}

}  // namespace

// ---- the list ----

ibv_device** get_device_list(int* count) noexcept {
    // NOLINTNEXTLINE(bugprone-sizeof-expression): an array of pointers
    auto** const list = static_cast<ibv_device**>(std::calloc(2, sizeof(ibv_device*)));
    if (list == nullptr) return fail<ibv_device*>(ENOMEM);
    list[0] = &the_device().base;
    if (count != nullptr) *count = 1;
    return list;
}

void free_device_list(ibv_device** list) noexcept { std::free(list); }

const char* get_device_name(ibv_device* device) noexcept { return device->name; }
int get_device_index(ibv_device*) noexcept { return device_profile().index; }
__be64 get_device_guid(ibv_device*) noexcept { return guid(); }

// ---- opening ----

ibv_context* open_locked(VerbsState& engine) {
    auto context = std::make_unique<Context>();
    ibv_context& base = context->verbs.context;
    Registration registration(engine, &base, Kind::context);
    auto fd = context->events_waiting.open_for_program();
    if (!fd) return fail<ibv_context>(fd.error().code);
    context->engine = &engine;
    verbs_context& verbs = context->verbs;
    verbs.sz = sizeof(verbs_context);
    verbs.priv = reinterpret_cast<verbs_ex_private*>(context.get());
    verbs.query_port = query_port_ex;
    verbs.query_device_ex = query_device_ex;
    verbs.create_cq_ex = create_cq_ex;
    verbs.create_qp_ex = create_qp_ex;
    verbs.create_srq_ex = create_srq_ex;
    verbs.alloc_td = alloc_td;
    verbs.dealloc_td = dealloc_td;
    verbs.alloc_parent_domain = alloc_parent_domain;
    base.device = &the_device().base;
    // Where a kernel's device would be: programs duplicate it to share the device.
    base.cmd_fd = dup_cloexec(*fd);
    base.async_fd = *fd;
    base.num_comp_vectors = 1;
    pthread_mutex_init(&base.mutex, nullptr);
    base.abi_compat = reinterpret_cast<void*>(UINTPTR_MAX);
    base.ops.alloc_mw = alloc_mw;
    base.ops.bind_mw = bind_mw;
    base.ops.dealloc_mw = dealloc_mw;
    base.ops.poll_cq = poll_cq;
    base.ops.req_notify_cq = req_notify_cq;
    base.ops.post_send = post_send;
    base.ops.post_recv = post_recv;
    base.ops.post_srq_recv = post_srq_recv;
    registration.keep();
    return &context.release()->verbs.context;
}

ibv_context* default_context_locked(VerbsState& engine) {
    if (engine.own.context == nullptr) engine.own.context = open_locked(engine);
    return engine.own.context;
}

void release_locked(VerbsState&, Context& context) {
    if (!context.closed || context.objects != 0) return;
    close(context.base()->async_fd);
    if (context.base()->cmd_fd >= 0) close(context.base()->cmd_fd);
    pthread_mutex_destroy(&context.base()->mutex);
    delete &context;
}

ibv_context* open_device(ibv_device*) noexcept {
    return locked_object<ibv_context>([](VerbsState& engine) { return open_locked(engine); });
}

int close_device(ibv_context* context) noexcept {
    return locked_cm([&](VerbsState& engine) {
        if (!engine.alive(context, Kind::context)) return fail(EINVAL);
        // That of the ids (id->verbs): it is not the program's.
        if (context == engine.own.context) return fail(EBUSY);
        engine.remove(context);
        Context& ours = *Context::of(context);
        ours.closed = true;
        release_locked(engine, ours);
        return 0;
    });
}

// ---- queries ----

int query_device(ibv_context*, ibv_device_attr* attr) noexcept {
    fill(*attr);
    return 0;
}

int query_device_ex(ibv_context*, const ibv_query_device_ex_input* input, ibv_device_attr_ex* attr,
                    size_t size) noexcept {
    if (input != nullptr && input->comp_mask != 0) return EINVAL;
    if (size < sizeof attr->orig_attr) return EINVAL;
    ibv_device_attr_ex all{};
    fill(all.orig_attr);
    all.phys_port_cnt_ex = 1;
    std::memcpy(attr, &all, std::min(size, sizeof all));
    return 0;
}

int query_port_ex(ibv_context* context, std::uint8_t port, ibv_port_attr* attr,
                  size_t size) noexcept {
    if (port != kPort) return EINVAL;
    const DeviceProfile& profile = device_profile();
    ibv_port_attr all{};
    all.state = IBV_PORT_ACTIVE;
    all.max_mtu = IBV_MTU_4096;
    all.active_mtu = profile.active_mtu;
    all.max_msg_sz = kMaxMessage;
    all.pkey_tbl_len = 1;
    all.active_width = 2;   // 4x
    all.active_speed = 32;  // EDR; a software device has none, but some programs want one
    all.phys_state = 5;     // link up
    all.link_layer = IBV_LINK_LAYER_ETHERNET;
    all.port_cap_flags = profile.port_cap_flags;
    all.flags = profile.port_flags;
    const int error = locked_errno([&](VerbsState& engine) {
        (void)context;
        all.gid_tbl_len = static_cast<int>(engine.gids().size());
        if (engine.rendezvous == nullptr) return 0;
        const DatagramCounters& datagrams = engine.rendezvous->datagrams().counters();
        all.qkey_viol_cntr = saturated<std::uint16_t>(datagrams.wrong_qkey);
        all.bad_pkey_cntr = saturated<std::uint32_t>(datagrams.wrong_pkey);
        return 0;
    });
    if (error != 0) return error;
    std::memcpy(attr, &all, std::min(size, sizeof all));
    return 0;
}

int query_port(ibv_context* context, std::uint8_t port, _compat_ibv_port_attr* attr) noexcept {
    // What programs gave before the structure grew.
    return query_port_ex(context, port, reinterpret_cast<ibv_port_attr*>(attr),
                         offsetof(ibv_port_attr, port_cap_flags2));
}

int query_gid(ibv_context*, std::uint8_t port, int index, ibv_gid* gid) noexcept {
    return locked_cm([&](VerbsState& engine) {
        const GidTable& all = engine.gids();
        if (port != kPort || index < 0 || static_cast<std::size_t>(index) >= all.size()) {
            return fail(EINVAL);
        }
        *gid = all[static_cast<std::size_t>(index)].gid;
        return 0;
    });
}

int query_gid_ex(ibv_context*, std::uint32_t port, std::uint32_t index, ibv_gid_entry* entry,
                 std::uint32_t flags, size_t entry_size) noexcept {
    if (flags != 0) return EOPNOTSUPP;
    return locked_errno([&](VerbsState& engine) {
        const GidTable& all = engine.gids();
        if (port != kPort || index >= all.size()) return EINVAL;
        const ibv_gid_entry found = entry_of(all, index);
        std::memcpy(entry, &found, std::min(entry_size, sizeof found));
        return 0;
    });
}

ssize_t query_gid_table(ibv_context*, ibv_gid_entry* entries, size_t max_entries,
                        std::uint32_t flags, size_t entry_size) noexcept {
    if (flags != 0) return -EOPNOTSUPP;
    if (entry_size < sizeof(ibv_gid_entry)) return -EINVAL;
    return locked<ssize_t>(-EPERM, -ENOMEM, [&](VerbsState& engine) -> ssize_t {
        const GidTable& all = engine.gids();
        if (all.size() > max_entries) return -EINVAL;
        for (std::size_t i = 0; i < all.size(); ++i) {
            const ibv_gid_entry found = entry_of(all, i);
            std::memcpy(reinterpret_cast<char*>(entries) + i * entry_size, &found, sizeof found);
        }
        return static_cast<ssize_t>(all.size());
    });
}

int query_gid_type(ibv_context*, std::uint8_t port, unsigned int index, int* type) noexcept {
    return locked_cm([&](VerbsState& engine) {
        if (port != kPort || index >= engine.gids().size()) return fail(EINVAL);
        *type = device_profile().private_gid_type;
        return 0;
    });
}

int query_pkey(ibv_context*, std::uint8_t port, int index, __be16* pkey) noexcept {
    if (port != kPort || index != 0) return fail(EINVAL);
    *pkey = 0xffff;
    return 0;
}

int get_pkey_index(ibv_context*, std::uint8_t port, __be16 pkey) noexcept {
    return port == kPort && pkey == 0xffff ? 0 : fail(EINVAL);
}

int fork_init() noexcept { return 0; }  // nothing is pinned

}  // namespace xsock::verbs
