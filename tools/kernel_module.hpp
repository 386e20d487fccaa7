// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// What can be seen of the kernel module ddp_kernel (docs/kernel.md) from outside: its device, and
// what lies under /lib/modules and /sys. Nothing is loaded or changed.
#pragma once

#include <string>

#include "base/kernel_reason.hpp"
#include "include/xsock/ddp_uapi.h"

namespace xsock::tools {

struct KernelModule {
    /// `none`: its device is ours to open, and it speaks our ABI.
    kernel::Reason why_not = kernel::Reason::none;
    int error = 0;       ///< errno of opening the device, or of its greeting; 0 if well
    bool foreign = false;  ///< what has the name of the device is no device of the module
    ddp_hello hello{};   ///< meaningful once it has answered: abi != 0
};

/// Opens `device` and asks it what it is. A domain without regions is made and ended.
[[nodiscard]] KernelModule probe_kernel_module(const char* device = DDP_DEVICE);

/// "crc ahead ...": the names of DDP_FEATURE_*, and the rest as a number.
[[nodiscard]] std::string feature_names(ddp_u64 features);

/// Where the module and the system's word on it are looked for; tests have folders of their own.
struct KernelModulePlaces {
    std::string modules;               ///< /lib/modules/RELEASE
    std::string sys = "/sys";          ///< module/ddp_kernel, kernel/security/lockdown
    std::string device = DDP_DEVICE;
};
[[nodiscard]] KernelModulePlaces kernel_module_places();

/// The file of the module, built for the kernel that runs; empty: there is none.
[[nodiscard]] std::string kernel_module_file(const KernelModulePlaces& places);

}  // namespace xsock::tools
