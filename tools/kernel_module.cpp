// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "tools/kernel_module.hpp"

#include <fcntl.h>
#include <sys/ioctl.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <cerrno>

#include "tools/command.hpp"
#include "tools/fd.hpp"
#include "tools/text.hpp"

namespace xsock::tools {
namespace {

kernel::Reason reason_of_open(int error) {
    return error == EACCES || error == EPERM ? kernel::Reason::denied : kernel::Reason::absent;
}

constexpr struct {
    ddp_u64 bit;
    const char* name;
} kFeatures[] = {
    {DDP_FEATURE_CRC, "crc"},         {DDP_FEATURE_NO_CRC, "no-crc"},
    {DDP_FEATURE_MARKERS, "markers"}, {DDP_FEATURE_AHEAD, "ahead"},
    {DDP_FEATURE_VIEWS, "views"},     {DDP_FEATURE_READS, "reads"},
};

}  // namespace

KernelModule probe_kernel_module(const char* device) {
    KernelModule module;
    const Fd domain(::open(device, O_RDWR | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
    if (domain.get() < 0) {
        module.error = errno;
        module.why_not = reason_of_open(module.error);
        return module;
    }
    ddp_hello hello{};
    if (::ioctl(domain.get(), DDP_IOC_HELLO, &hello) != 0) {
        module.error = errno;
        module.foreign = true;
        module.why_not = kernel::Reason::abi;
        return module;
    }
    module.hello = hello;
    if (hello.abi != DDP_ABI) module.why_not = kernel::Reason::abi;
    return module;
}

std::string feature_names(ddp_u64 features) {
    std::string names;
    for (const auto& [bit, name] : kFeatures) {
        if ((features & bit) == 0) continue;
        features &= ~bit;
        names += names.empty() ? "" : " ";
        names += name;
    }
    if (features != 0) names += fmt::format("{}{:#x}", names.empty() ? "" : " ", features);
    return names;
}

KernelModulePlaces kernel_module_places() {
    utsname kernel{};
    uname(&kernel);
    KernelModulePlaces places;
    places.modules = fmt::format("/lib/modules/{}", kernel.release);
    return places;
}

std::string kernel_module_file(const KernelModulePlaces& places) {
    // Where `make modules_install`, DKMS and people put what comes from outside.
    for (const char* const folder : {"updates/dkms", "updates", "extra", "misc"}) {
        for (const char* const packed : {"", ".xz", ".zst", ".gz"}) {
            const std::string path =
                fmt::format("{}/{}/ddp_kernel.ko{}", places.modules, folder, packed);
            if (access(path.c_str(), F_OK) == 0) return path;
        }
    }
    return {};
}

}  // namespace xsock::tools
