// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// doctor's checks of the optional kernel module (docs/kernel.md): whether it is there, built for
// this kernel, loaded and ours to use, and whether what it needs of the system is enough.
#include <sys/resource.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>

#include "tools/command.hpp"
#include "tools/doctor/checks.hpp"
#include "tools/kernel_module.hpp"
#include "tools/text.hpp"

namespace xsock::tools {
namespace {

constexpr const char* kSubject = "kernel module";
constexpr std::uint64_t kPinned = std::uint64_t{64} << 20;        // of one region at most
constexpr std::uint64_t kReceiveBuffer = std::uint64_t{4} << 20;  // holds what is behind a hole

/// Locked down: only modules that are signed by a key of the kernel's are loaded.
bool wants_signatures(const KernelModulePlaces& places) {
    const std::string lockdown = file_text(places.sys + "/kernel/security/lockdown");
    const bool locked = lockdown.find("[integrity]") != lockdown.npos ||
                        lockdown.find("[confidentiality]") != lockdown.npos;
    const std::string enforced = file_text(places.sys + "/module/module/parameters/sig_enforce");
    return locked || trimmed(enforced) == "Y";
}

Finding absent(const KernelModulePlaces& places) {
    Finding found{Verdict::note, kSubject, {}, {}};
    const std::string file = kernel_module_file(places);
    if (access((places.sys + "/module/ddp_kernel").c_str(), F_OK) == 0) {
        found.text = fmt::format("it is loaded, but there is no {} here", places.device);
        found.mend =
            fmt::format("a container must be given the device (--device {})", places.device);
    } else if (file.empty()) {
        found.text = "ddp_kernel is not built for the kernel that runs";
        found.mend = "dkms install ddp_kernel/VERSION (docs/kernel.md)";
    } else if (wants_signatures(places)) {
        found.text = fmt::format("not loaded: {}; this kernel takes signed modules only", file);
        found.mend =
            "sign it with a key that mokutil --import has given to the firmware, then modprobe "
            "ddp_kernel";
    } else {
        found.text = fmt::format("not loaded: {}", file);
        found.mend = "as root: modprobe ddp_kernel";
    }
    return found;
}

Finding state_of(const KernelModule& module, const KernelModulePlaces& places) {
    switch (module.why_not) {
        case kernel::Reason::none:
            return {Verdict::ok,
                    kSubject,
                    fmt::format("ABI {}, features: {}", module.hello.abi,
                                feature_names(module.hello.features)),
                    {}};
        case kernel::Reason::denied:
            return {Verdict::note, kSubject,
                    fmt::format("{}: {}", places.device, std::strerror(module.error)),
                    "root can let the group ddp in (ddp_kernel/60-ddp.rules), and add the user to "
                    "it: usermod -aG ddp USER"};
        case kernel::Reason::abi:
            if (module.foreign) {
                return {Verdict::note, kSubject,
                        fmt::format("{} is no device of the module: {}", places.device,
                                    std::strerror(module.error)),
                        "remove what has that name, and load the module"};
            }
            return {Verdict::note, kSubject,
                    fmt::format("it speaks ABI {}, this xsock {}", module.hello.abi, DDP_ABI),
                    "build module and library from one source, and load the new one"};
        case kernel::Reason::absent:
            if (module.error == ENOENT || module.error == ENXIO || module.error == ENODEV) {
                return absent(places);
            }
            return {Verdict::note,
                    kSubject,
                    fmt::format("{}: {}", places.device, std::strerror(module.error)),
                    {}};
        case kernel::Reason::off:
        case kernel::Reason::capture:
        case kernel::Reason::pinning:
        case kernel::Reason::socket:
        case kernel::Reason::shared_memory:
        case kernel::Reason::kCount:
            break;
    }
    return {Verdict::note, kSubject, kernel::text_of(module.why_not), {}};
}

void check_memlock(Findings& findings) {
    rlimit limit{};
    if (getrlimit(RLIMIT_MEMLOCK, &limit) != 0 || geteuid() == 0) return;
    if (limit.rlim_cur != RLIM_INFINITY && limit.rlim_cur < kPinned) {
        findings.note("locked memory",
                      fmt::format("{} can be pinned for the kernel module; more is written at user "
                                  "level",
                                  bytes_text(limit.rlim_cur)),
                      "LimitMEMLOCK= of the service, or limits.conf(5): memlock");
    }
}

/// What lies behind a lost segment waits in TCP's receive buffer.
void check_receive_buffer(Findings& findings) {
    const std::string text = file_text("/proc/sys/net/ipv4/tcp_rmem");
    const auto words = split(trimmed(text), '\t');
    if (words.size() != 3) return;
    const std::uint64_t most = std::strtoull(std::string(words[2]).c_str(), nullptr, 10);
    if (most >= kReceiveBuffer) return;
    findings.note("tcp_rmem",
                  fmt::format("a receive buffer grows to {}: no more than that is placed behind a "
                              "lost segment",
                              bytes_text(most)),
                  "sysctl net.ipv4.tcp_rmem='4096 131072 6291456'");
}

}  // namespace

void check_kernel_module(Findings& findings, std::string_view mode,
                         const KernelModulePlaces& places) {
    const KernelModule module = probe_kernel_module(places.device.c_str());
    Finding found = state_of(module, places);
    if (mode == "off") return findings.ok(kSubject, "not used (XSOCK_KERNEL)");
    // It is used where it is there. That it is not is worth a remedy where the setting names it.
    if (mode.empty() && module.why_not == kernel::Reason::absent) {
        return findings.ok(kSubject, "none, which is optional: " + found.text);
    }
    if (mode == "require" && found.verdict != Verdict::ok) found.verdict = Verdict::failure;
    const bool serves = found.verdict == Verdict::ok;
    findings.add(found.verdict, found.subject, found.text, found.mend);
    if (!serves) return;
    check_memlock(findings);
    check_receive_buffer(findings);
}

void check_kernel_module(Findings& findings) {
    const char* const mode = std::getenv("XSOCK_KERNEL");
    check_kernel_module(findings, mode != nullptr ? mode : "", kernel_module_places());
}

}  // namespace xsock::tools
