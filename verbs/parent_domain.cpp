// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Parent domains and thread domains. A parent domain is another name for a protection domain: what
// is made in it belongs to that one. Neither has an effect of its own: queues do not lie in memory
// that a device reads, so custom allocators are never called, and locks that a thread domain could
// save are not taken.
#include "verbs/engine.hpp"
#include "verbs/ops.hpp"

namespace xsock::verbs {

ibv_td* alloc_td(ibv_context* context, ibv_td_init_attr* attr) noexcept {
    return locked_object<ibv_td>([&](VerbsState& engine) {
        if (!engine.alive(context, Kind::context)) return fail<ibv_td>(EINVAL);
        if (attr->comp_mask != 0) return fail<ibv_td>(EOPNOTSUPP);
        auto td = std::make_unique<Td>();
        td->base.context = context;
        engine.add(td.get(), Kind::td);
        ++Context::of(context)->objects;
        return &td.release()->base;
    });
}

int dealloc_td(ibv_td* given) noexcept {
    return locked_errno([&](VerbsState& engine) {
        if (!engine.alive(given, Kind::td)) return EINVAL;
        auto* const td = reinterpret_cast<Td*>(given);
        if (td->users != 0) return EBUSY;
        engine.remove(td);
        Context& context = *Context::of(given->context);
        delete td;
        --context.objects;
        release_locked(engine, context);
        return 0;
    });
}

ibv_pd* alloc_parent_domain(ibv_context* context, ibv_parent_domain_init_attr* attr) noexcept {
    return locked_object<ibv_pd>([&](VerbsState& engine) {
        constexpr std::uint32_t kKnown =
            IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS | IBV_PARENT_DOMAIN_INIT_ATTR_PD_CONTEXT;
        if ((attr->comp_mask & ~kKnown) != 0) return fail<ibv_pd>(EOPNOTSUPP);
        if (!engine.alive(context, Kind::context) || !engine.alive(attr->pd, Kind::pd) ||
            (attr->td != nullptr && !engine.alive(attr->td, Kind::td))) {
            return fail<ibv_pd>(EINVAL);
        }
        auto* const of = reinterpret_cast<Pd*>(attr->pd);
        if (of->parent_of != nullptr) return fail<ibv_pd>(EINVAL);
        auto pd = std::make_unique<Pd>();
        pd->base.context = context;
        pd->base.handle = of->base.handle;
        pd->id = of->id;
        pd->parent_of = of;
        pd->td = reinterpret_cast<Td*>(attr->td);
        ++of->users;
        if (pd->td != nullptr) ++pd->td->users;
        engine.add(pd.get(), Kind::pd);
        ++Context::of(context)->objects;
        return &pd.release()->base;
    });
}

}  // namespace xsock::verbs
