// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "transport/kernel_choice.hpp"

#include <cerrno>

#include "transport/capture.hpp"
#include "transport/kernel_ddp.hpp"
#include "transport/log.hpp"

namespace xsock {
namespace {

using kernel::Reason;

int errno_of(Reason reason) noexcept {
    switch (reason) {
        case Reason::absent:
            return ENOENT;
        case Reason::denied:
            return EACCES;
        case Reason::abi:
            return EPROTO;
        case Reason::none:
        case Reason::off:
        case Reason::capture:
        case Reason::pinning:
        case Reason::socket:
        case Reason::shared_memory:
        case Reason::kCount:
            return EOPNOTSUPP;
    }
    return EOPNOTSUPP;
}

}  // namespace

KernelMode kernel_mode(const ConnectAttr& attr, const TransportConfig& settings) noexcept {
    return attr.kernel == KernelMode::usual ? settings.kernel : attr.kernel;
}

Result<KernelChoice> kernel_choice(const ConnectAttr& attr, Api api,
                                   const TransportConfig& settings, KernelDdp* module, Time now) {
    const KernelMode mode = kernel_mode(attr, settings);
    if (mode == KernelMode::off || module == nullptr) return KernelChoice{};
    // Programs of verbs poll memory and expect Writes in their order.
    KernelChoice choice{.required = mode == KernelMode::require,
                        .in_order = settings.kernel_ooo ? !*settings.kernel_ooo : api == Api::verbs,
                        .why_not = Reason::none};
    choice.why_not = Capture::is_wanted() ? Reason::capture : module->open(now);
    if (choice.required && !choice.possible()) {
        const char* const why = kernel::text_of(choice.why_not);
        log(LogLevel::warn, kernel::name_of(choice.why_not), "the kernel module is required: %s",
            why);
        return Error{errno_of(choice.why_not), why};
    }
    return choice;
}

}  // namespace xsock
