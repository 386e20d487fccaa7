// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// From the caller's attributes to ours; shared by endpoints and listeners.
#pragma once

#include "libxsock/objects.hpp"

namespace xsock::api {

/// An xsock_ep_attr, checked. Refers to its private data.
struct CheckedAttr {
    xsock_ep_attr attr{};
    QpAttr qp;
    ConnectAttr connect;

    /// False with errno EINVAL, or EPERM (an object of the process that this was forked from).
    bool from(const xsock_ep_attr* given, ConnectAttr::Role automatic) noexcept;
};

/// What xsock_ep_query() and DDPSTATUS tell of a peer's extension frame.
xsock_peer peer_of(const Implementation& peer) noexcept;

/// 0, or -1 with the errno of xsock_ep_wait().
int started(Qp& qp);

/// An endpoint over `fd`, which is taken on success; null with errno.
xsock_ep* make_endpoint(int fd, const CheckedAttr& checked);

}  // namespace xsock::api
