// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// `xsock info --verbs`: the device as an RDMA program sees it.
#pragma once

namespace xsock::tools {

/// Opens the drop-in libibverbs as a program would and prints what it says. @return exit status
int verbs_info(bool json);

}  // namespace xsock::tools
