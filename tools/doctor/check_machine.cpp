// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// doctor's checks of the machine: kernel, limits, processors, devices, TCP.
#include <linux/ethtool.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "base/crc32c.hpp"
#include "tools/doctor/checks.hpp"
#include "tools/endpoint.hpp"
#include "tools/fd.hpp"
#include "tools/text.hpp"

namespace xsock::tools {
namespace {

constexpr std::uint64_t kFewDescriptors = 4096;
constexpr double kSlowCrc = 4e9;  // bytes a second: below, CRCs show in the throughput
constexpr long kSmallBuffer = 4L << 20;

/// The numbers of a file below /proc or /sys; empty when it is not there.
std::vector<long> numbers_of(const std::string& path) {
    std::vector<long> numbers;
    const std::string text = file_text(path);
    const char* at = text.c_str();
    for (;;) {
        char* end = nullptr;
        const long n = std::strtol(at, &end, 10);
        if (end == at) return numbers;
        numbers.push_back(n);
        at = end;
    }
}

std::string sysctl_path(const char* name) { return std::string("/proc/sys/net/") + name; }

ifreq request_for(const char* device) {
    ifreq request{};
    std::strncpy(request.ifr_name, device, sizeof request.ifr_name - 1);
    return request;
}

/// 1 on, 0 off, -1 not known.
int offload(int fd, const char* device, std::uint32_t command) {
    ethtool_value value{};
    value.cmd = command;
    ifreq request = request_for(device);
    request.ifr_data = reinterpret_cast<char*>(&value);
    return ioctl(fd, SIOCETHTOOL, &request) == 0 ? static_cast<int>(value.data != 0) : -1;
}

void check_device(Findings& findings, int fd, const char* device) {
    ifreq request = request_for(device);
    if (ioctl(fd, SIOCGIFFLAGS, &request) != 0 || (request.ifr_flags & IFF_UP) == 0) return;
    const bool loopback = (request.ifr_flags & IFF_LOOPBACK) != 0;
    request = request_for(device);
    if (ioctl(fd, SIOCGIFMTU, &request) != 0) return;
    const int mtu = request.ifr_mtu;

    const int tso = offload(fd, device, ETHTOOL_GTSO);
    const int gso = offload(fd, device, ETHTOOL_GGSO);
    const int gro = offload(fd, device, ETHTOOL_GGRO);
    const auto word = [](int state) { return state < 0 ? "unknown" : state != 0 ? "on" : "off"; };
    std::string text =
        fmt::format("MTU {}, TSO {}, GSO {}, GRO {}", mtu, word(tso), word(gso), word(gro));
    const std::string subject = std::string("device ") + device;
    if (mtu < 1280) {
        findings.warning(subject, text + ": the MTU is very small",
                         fmt::format("ip link set {} mtu 1500", device));
    } else if (tso == 0 && gso == 0) {
        findings.warning(subject, text + ": each segment is built by the processor",
                         fmt::format("ethtool -K {} tso on gso on", device));
    } else if (gro == 0 && !loopback) {
        findings.note(subject, text + ": each segment is received by itself",
                      fmt::format("ethtool -K {} gro on", device));
    } else {
        findings.ok(subject, text);
    }
}

}  // namespace

void check_kernel(Findings& findings) {
    utsname kernel{};
    uname(&kernel);
    unsigned major = 0;
    unsigned minor = 0;
    std::sscanf(kernel.release, "%u.%u", &major, &minor);
    const std::string text = fmt::format("Linux {}, {}", kernel.release, kernel.machine);
    if (major < 5) {
        findings.warning("kernel", text + ": older than any that xsock is tried on",
                         "use Linux 5.10 or newer");
    } else {
        findings.ok("kernel", text);
    }
    if (file_text("/proc/self/stat").empty()) {
        findings.note("proc", "/proc is not mounted: less can be looked at",
                      "mount -t proc proc /proc");
    }
    const std::string status = file_text("/proc/self/status");
    if (const std::size_t at = status.find("\nSeccomp:"); at != status.npos) {
        const long mode = std::strtol(status.c_str() + at + 9, nullptr, 10);
        if (mode != 0) {
            findings.note("seccomp",
                          "a system call filter is active (a container?); xsock needs sockets, "
                          "epoll, eventfd and timers only");
        }
    }
}

void check_limits(Findings& findings) {
    rlimit files{};
    if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
        const rlim_t limit = files.rlim_cur;
        if (files.rlim_cur < kFewDescriptors) {
            findings.note("descriptors",
                          fmt::format("at most {} open files, and each connection is one", limit),
                          files.rlim_max > files.rlim_cur
                              ? fmt::format("ulimit -n {}", files.rlim_max)
                              : std::string("raise nofile in /etc/security/limits.conf"));
        } else {
            findings.ok("descriptors", fmt::format("at most {} open files", limit));
        }
    }
    findings.ok("locked memory", "not needed: nothing is pinned");
    rlimit space{};
    if (getrlimit(RLIMIT_AS, &space) == 0 && space.rlim_cur != RLIM_INFINITY) {
        findings.note("address space", fmt::format("limited to {}", bytes_text(space.rlim_cur)),
                      "ulimit -v unlimited");
    }
}

void check_processors(Findings& findings) {
    const long processors = sysconf(_SC_NPROCESSORS_ONLN);
    if (processors <= 1) {
        findings.note("processors", "one: no call spins, so each wait costs a change of context");
    } else {
        findings.ok("processors", fmt::format("{}", processors));
    }
    const std::string quota = file_text("/sys/fs/cgroup/cpu.max");
    double allowed = 0;
    double period = 0;
    if (std::sscanf(quota.c_str(), "%lf %lf", &allowed, &period) == 2 && period > 0 &&
        allowed / period < static_cast<double>(processors)) {
        findings.note("processor quota",
                      fmt::format("this container may use {:.2g} processors; spinning uses them up",
                                  allowed / period),
                      "XSOCK_SPIN_US=0, or a larger quota");
    }
}

void check_crc(Findings& findings) {
    std::vector<std::byte> data(64 * 1024);
    std::uint64_t bytes = 0;
    std::uint32_t crc = kCrc32cInit;
    const std::uint64_t begin = now_ns();
    std::uint64_t end = begin;
    while (end - begin < 10'000'000) {
        crc = crc32c(crc, data);
        bytes += data.size();
        end = now_ns();
    }
    volatile const std::uint32_t keep = crc;
    (void)keep;
    const double speed = static_cast<double>(bytes) * 1e9 / static_cast<double>(end - begin);
    const std::string text = fmt::format("{}, {:.1f} GB/s", crc32c_method(), speed / 1e9);
    if (speed < kSlowCrc) {
        findings.warning("crc32c", text + ": CRCs will show in the throughput",
                         "a processor with SSE4.2 or ARMv8 CRC; or ask both ends for none "
                         "(XSOCK_EP_NO_CRC)");
    } else {
        findings.ok("crc32c", text);
    }
}

void check_loss_recovery(Findings& findings) {
    constexpr int kRtoMinUs = 45, kDelackMaxUs = 46;  // TCP_*, which older headers lack
    const Fd any(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    const auto has = [&](int name) {
        int value = 0;
        socklen_t size = sizeof value;
        return getsockopt(any.get(), IPPROTO_TCP, name, &value, &size) == 0;
    };
    if (!any.good()) return;  // check_devices() says so
    if (has(kRtoMinUs) && has(kDelackMaxUs)) {
        findings.ok("lost segments", "repaired soon between xsocks");
    } else {
        findings.note("lost segments",
                      "the kernel cannot shorten TCP's retransmission time-out: a lost segment at "
                      "the end of a message costs 200 ms and more, as with plain TCP",
                      "Linux 6.15 or newer, at both ends");
    }
}

void check_devices(Findings& findings) {
    const Fd any(socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    if (!any.good()) {
        findings.failure("sockets", std::string("no socket can be made: ") + std::strerror(errno),
                         "a system call filter or a limit forbids it");
        return;
    }
    struct if_nameindex* const all = if_nameindex();
    bool loopback = false;
    for (const struct if_nameindex* i = all; i != nullptr && i->if_index != 0; ++i) {
        ifreq request = request_for(i->if_name);
        if (ioctl(any.get(), SIOCGIFFLAGS, &request) == 0 &&
            (request.ifr_flags & IFF_LOOPBACK) != 0 && (request.ifr_flags & IFF_UP) != 0) {
            loopback = true;
        }
        check_device(findings, any.get(), i->if_name);
    }
    if (all != nullptr) if_freenameindex(all);
    if (!loopback) {
        findings.warning("loopback", "the loopback device is down", "ip link set lo up");
    }
}

void check_tcp_settings(Findings& findings) {
    for (const auto& [name, what] : {std::pair{"ipv4/tcp_rmem", "receive buffer"},
                                     std::pair{"ipv4/tcp_wmem", "send buffer"}}) {
        const std::vector<long> sizes = numbers_of(sysctl_path(name));
        if (sizes.size() != 3) continue;
        const std::string text =
            fmt::format("grows to {}", bytes_text(static_cast<std::uint64_t>(sizes[2])));
        if (sizes[2] < kSmallBuffer) {
            findings.note(what, text + ": too little for long fast paths",
                          fmt::format("sysctl -w net.{}.{}='{} {} {}'", "ipv4", name + 5, sizes[0],
                                      sizes[1], kSmallBuffer));
        } else {
            findings.ok(what, text);
        }
    }
    struct Wanted {
        const char* name;
        long value;
        Verdict verdict;
        const char* text;
    };
    static constexpr Wanted kWanted[] = {
        {"ipv4/tcp_window_scaling", 1, Verdict::warning,
         "windows above 64 KiB are switched off: fast or long paths are slow"},
        {"ipv4/tcp_sack", 1, Verdict::note,
         "selective acknowledgements are switched off: losses cost more"},
        {"ipv4/tcp_timestamps", 1, Verdict::note,
         "timestamps are switched off: round trips are measured less often"},
        {"ipv4/tcp_slow_start_after_idle", 0, Verdict::note,
         "a connection that was idle begins with a small window again"},
    };
    for (const Wanted& wanted : kWanted) {
        const std::vector<long> value = numbers_of(sysctl_path(wanted.name));
        if (value.size() != 1 || (value[0] != 0) == (wanted.value != 0)) continue;
        findings.add(wanted.verdict, wanted.name + 5, wanted.text,
                     fmt::format("sysctl -w net.ipv4.{}={}", wanted.name + 5, wanted.value));
    }
    const std::vector<long> backlog = numbers_of(sysctl_path("core/somaxconn"));
    if (backlog.size() == 1 && backlog[0] < 1024) {
        findings.note("backlog",
                      fmt::format("at most {} connections wait to be accepted", backlog[0]),
                      "sysctl -w net.core.somaxconn=4096");
    }
    const std::vector<long> ports = numbers_of(sysctl_path("ipv4/ip_local_port_range"));
    if (ports.size() == 2 && ports[1] - ports[0] < 10'000) {
        findings.note("local ports",
                      fmt::format("{} ports for connections to one peer", ports[1] - ports[0] + 1),
                      "sysctl -w net.ipv4.ip_local_port_range='32768 60999'");
    }
}

void check_firewall(Findings& findings) {
    const std::vector<long> count = numbers_of(sysctl_path("netfilter/nf_conntrack_count"));
    const std::vector<long> most = numbers_of(sysctl_path("netfilter/nf_conntrack_max"));
    if (count.size() == 1 && most.size() == 1 && most[0] > 0) {
        const std::string text = fmt::format("connection tracking: {} of {}", count[0], most[0]);
        if (count[0] > most[0] / 10 * 9) {
            findings.warning("firewall", text + ": new connections will be dropped",
                             "sysctl -w net.netfilter.nf_conntrack_max=...");
        } else {
            findings.ok("firewall", text);
        }
    }
    const bool filters = !file_text("/proc/net/ip_tables_names").empty() ||
                         !file_text("/proc/net/ip6_tables_names").empty();
    if (filters) {
        findings.note("firewall",
                      "packet filters are loaded here; 'xsock doctor HOST PORT' tells whether one "
                      "is in the way");
    }
}

}  // namespace xsock::tools
