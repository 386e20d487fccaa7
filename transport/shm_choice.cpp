// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "transport/shm_choice.hpp"

#include <cerrno>

#include "transport/capture.hpp"
#include "transport/kernel_choice.hpp"
#include "transport/log.hpp"

namespace xsock {

Result<ShmChoice> shm_choice(const ConnectAttr& attr, const TransportConfig& settings) {
    const ShmMode mode = attr.shm == ShmMode::usual ? settings.shm : attr.shm;
    if (mode == ShmMode::off) return ShmChoice{};
    const KernelMode module = kernel_mode(attr, settings);
    if (module == KernelMode::require) {
        if (mode == ShmMode::require) {
            const char* const why = "shared memory and the kernel module are both required";
            log(LogLevel::error, "bad-setting", "XSOCK_SHM, XSOCK_KERNEL: %s", why);
            return Error{EINVAL, why};
        }
        return ShmChoice{.why_not = shm::Reason::kernel};
    }
    ShmChoice choice{.required = mode == ShmMode::require, .why_not = shm::Reason::none};
    if (!attr.extensions || !attr.xsock_mark || !settings.extensions) {
        if (choice.required) {
            const char* const why = "shared memory is required, and extension frames are off";
            log(LogLevel::error, "bad-setting", "XSOCK_SHM, XSOCK_EXTENSIONS: %s", why);
            return Error{EINVAL, why};
        }
        choice.why_not = shm::Reason::extensions_off;
    } else if (attr.markers) {
        choice.why_not = shm::Reason::markers;
    } else if (Capture::is_wanted()) {
        choice.why_not = shm::Reason::capture;
    }
    return choice;
}

}  // namespace xsock
