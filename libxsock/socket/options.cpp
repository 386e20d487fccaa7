// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "libxsock/socket/options.hpp"

#include <array>
#include <cerrno>
#include <climits>

#include "mpa/startup.hpp"

namespace xsock::sockets {
namespace {

static_assert(XSOCK_RTR_SEND == mpa::kRtrSend && XSOCK_RTR_WRITE == mpa::kRtrWrite &&
              XSOCK_RTR_READ == mpa::kRtrRead);

struct Row {
    int name;
    int Options::*field;
    int low, high;
};
constexpr std::array<Row, 19> kRows{{
    {DDPROLE, &Options::role, XSOCK_ROLE_AUTO, XSOCK_ROLE_RESPONDER},
    {DDPREQUIRE, &Options::require, 0, 1},
    {DDPCRC, &Options::crc, 0, 1},
    {DDPMARKERS, &Options::markers, 0, 1},
    {DDPREVISION, &Options::revision, 1, 2},
    {DDPRTR, &Options::rtr, 0, XSOCK_RTR_SEND | XSOCK_RTR_WRITE | XSOCK_RTR_READ},
    {DDPIRD, &Options::ird, 0, 16382},
    {DDPORD, &Options::ord, 0, 16382},
    {DDPSQDEPTH, &Options::sq_depth, 4, 65536},
    {DDPRQDEPTH, &Options::rq_depth, 1, 65536},
    {DDPBUFCOUNT, &Options::buffer_count, 1, 65536},
    {DDPBUFSIZE, &Options::buffer_size, 1, 1 << 28},
    {DDPINLINE, &Options::inline_limit, 0, XSOCK_MAX_INLINE},
    {DDPSTARTUP, &Options::startup_ms, 1, INT_MAX},
    {DDPUSERTIMEOUT, &Options::user_timeout_ms, 0, INT_MAX},
    {DDPKEEPALIVE, &Options::keepalive_s, 0, 32767},
    {DDPLINGER, &Options::linger_ms, 0, INT_MAX},
    {DDPSHM, &Options::shm, XSOCK_SHM_DEFAULT, XSOCK_SHM_REQUIRE},
    {DDPKERNEL, &Options::kernel, XSOCK_KERNEL_DEFAULT, XSOCK_KERNEL_REQUIRE},
}};

}  // namespace

Result<void> Options::set(int name, int value) {
    if (name == DDPFPDU) {
        if (value != 0 && (value < 128 || value > 65535)) {
            return Error{EINVAL, "FPDUs carry 128 to 65535 bytes"};
        }
        fpdu_limit = value;
        return {};
    }
    for (const Row& row : kRows) {
        if (row.name != name) continue;
        if (value < row.low || value > row.high) return Error{EINVAL, "out of range"};
        this->*row.field = value;
        return {};
    }
    return Error{ENOPROTOOPT, "no such option"};
}

Result<int> Options::get(int name) const {
    if (name == DDPFPDU) return int{fpdu_limit};
    for (const Row& row : kRows) {
        if (row.name == name) return int{this->*row.field};
    }
    return Error{ENOPROTOOPT, "no such option"};
}

QpAttr Options::qp_attr() const {
    QpAttr attr;
    attr.api = mode == DDPMODE_STREAM ? Api::stream : Api::message;
    attr.sq_depth = static_cast<std::uint32_t>(sq_depth);
    attr.rq_depth = static_cast<std::uint32_t>(rq_depth);
    attr.rnr_timeout = kNever;  // a program that does not read holds its peer by the window
    attr.linger_ms = static_cast<std::uint32_t>(linger_ms);
    return attr;
}

ConnectAttr Options::connect_attr() const {
    ConnectAttr attr;
    attr.revision = static_cast<std::uint8_t>(revision);
    attr.crc = crc != 0;
    attr.markers = markers != 0;
    attr.ird = static_cast<std::uint16_t>(ird);
    attr.ord = static_cast<std::uint16_t>(ord);
    attr.rtr = static_cast<std::uint8_t>(rtr);
    attr.fpdu_limit = static_cast<std::uint32_t>(fpdu_limit);
    attr.shm = static_cast<ShmMode>(shm);
    attr.kernel = static_cast<KernelMode>(kernel);
    attr.private_data = private_data;
    attr.startup_timeout_ms = static_cast<std::uint32_t>(startup_ms);
    attr.user_timeout_ms = static_cast<std::uint32_t>(user_timeout_ms);
    attr.keepalive_s = static_cast<std::uint32_t>(keepalive_s);
    attr.shared_descriptor = true;
    return attr;
}

}  // namespace xsock::sockets
