// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// What ddp_kernel/core/env.h asks of whoever embeds core/: here, arrays.
#include <cstring>

#include "base/crc32c.hpp"
#include "tests/unit/ddp_kernel/module_model.hpp"

using xsock::ConstBytes;

extern "C" {

bool ddp_env_peek(ddp_env* env, u64 at, void* to, u32 n) {
    if (n == 0) return true;
    if (!env->has(at, n)) return false;
    std::memcpy(to, env->stream.data() + at, n);
    return true;
}

bool ddp_env_crc_holds(ddp_env* env, u64 at, u32 octets) {
    if (!env->has(at, octets)) return false;
    env->crc_octets += octets;
    const ConstBytes fpdu = ConstBytes(env->stream).subspan(at, octets);
    const std::uint32_t crc =
        xsock::crc32c_finish(xsock::crc32c(xsock::kCrc32cInit, fpdu.first(octets - 4)));
    return crc == xsock::load_le32(fpdu.data() + octets - 4);
}

ddp_mr* ddp_env_get(ddp_env* env, ddp_want want, const ddp_fpdu* fpdu, u64* address) {
    const bool response = want == DDP_WANT_RESPONSE;
    ddp_mr& mr = response ? env->sink : env->region;
    using Model = xsock::test::ModuleModel;
    if (fpdu->stag != (response ? Model::kSinkStag : Model::kStag) || !mr.pinned) return nullptr;
    if (want == DDP_WANT_WRITE_AHEAD && mr.to_atomics) return nullptr;
    const std::uint64_t size = mr.memory.size();
    if (fpdu->to > size || fpdu->payload > size - fpdu->to) return nullptr;
    if (response && fpdu->to != mr.responded) return nullptr;
    *address = mr.address + fpdu->to;
    ++mr.users;
    return &mr;
}

void ddp_env_put(ddp_env*, ddp_mr* mr) { --mr->users; }

bool ddp_env_place(ddp_env* env, ddp_mr* mr, u64 address, u64 at, u32 n) {
    const std::uint64_t size = mr->memory.size();
    address -= mr->address;
    if (mr->users < 1 || n == 0 || address > size || n > size - address) {
        ++env->faults;
        return false;
    }
    if (!env->has(at, n)) return false;
    std::memcpy(mr->memory.data() + address, env->stream.data() + at, n);
    return true;
}

void ddp_env_responded(ddp_env* env, ddp_mr* mr, u32 n) {
    if (mr->users < 1 || !mr->is_sink) ++env->faults;
    mr->responded += n;
}

bool ddp_env_give(ddp_env* env, const void* from, u32 n) {
    const auto* const bytes = static_cast<const std::byte*>(from);
    env->out.insert(env->out.end(), bytes, bytes + n);
    return !env->is_full();
}

void ddp_env_skip(ddp_env* env, u32 n) { env->out.insert(env->out.end(), n, std::byte{0xa5}); }

bool ddp_env_give_stream(ddp_env* env, u64 at, u32 n) {
    if (!env->has(at, n)) return false;
    return ddp_env_give(env, env->stream.data() + at, n);
}
}
