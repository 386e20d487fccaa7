// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// doctor's checks of the installation: settings, engine, a connection to ourselves, the overlay.
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "base/stats_page.hpp"
#include "tools/doctor/checks.hpp"
#include "tools/doctor/child.hpp"
#include "tools/endpoint.hpp"
#include "tools/paths.hpp"
#include "tools/settings.hpp"
#include "tools/text.hpp"

namespace xsock::tools {
namespace {

constexpr std::size_t kTestBytes = 256 * 1024;
constexpr int kTestMs = 10'000;

// Libraries that put themselves in front of the same calls.
constexpr const char* kRivals[] = {"libvma",       "libxlio", "libonload",
                                   "librspreload", "libsdp",  "libsmc"};

void await(xsock_cq* cq, std::uint64_t id) {
    xsock_wc wc;
    for (;;) {
        if (!next_completion(cq, wc, kTestMs)) fail("nothing came within {} s", kTestMs / 1000);
        if (wc.status != XSOCK_WC_SUCCESS) fail("an operation failed: {}", xsock_wc_str(wc.status));
        if (wc.wr_id == id) return;
    }
}

/// Send, Write and Read between two endpoints of this process; answers with the round trip of 64
/// bytes in nanoseconds.
double talk_to_ourselves(const char* host) {
    const CqPtr cq = make_cq();
    std::vector<char> from(kTestBytes);
    std::vector<char> to(kTestBytes);
    for (std::size_t i = 0; i < from.size(); ++i) from[i] = static_cast<char>(i * 7 + i / 251);
    const MrPtr mr(xsock_mr_register(nullptr, to.data(), to.size(),
                                     XSOCK_REMOTE_WRITE | XSOCK_REMOTE_READ, nullptr));
    if (mr == nullptr) fail_errno("no memory region");
    XSOCK_INIT(xsock_ep_attr, attr);
    attr.send_cq = cq.get();
    const ListenerPtr listener(xsock_listen(host, "0", 4, &attr));
    if (listener == nullptr) fail_errno("cannot listen on {}", host);
    const std::string port = std::to_string(xsock_listener_port(listener.get()));
    const EpPtr near(xsock_connect(host, port.c_str(), &attr, kTestMs));
    if (near == nullptr) fail_errno("cannot connect to {} port {}", host, port);
    const EpPtr far(xsock_accept(listener.get(), kTestMs));
    if (far == nullptr) fail_errno("the connection does not come out of the listener");

    const auto size = static_cast<std::uint32_t>(kTestBytes);
    ensure(xsock_recv(far.get(), 1, to.data(), size), "xsock_recv");
    ensure(xsock_send(near.get(), 2, from.data(), size, XSOCK_UNSIGNALED), "xsock_send");
    await(cq.get(), 1);
    if (from != to) fail("what was sent is not what came");
    std::fill(to.begin(), to.end(), '\0');
    const xsock_remote remote = remote_of(mr.get(), kTestBytes);
    ensure(xsock_write(near.get(), 3, from.data(), size, &remote, 0, 0), "xsock_write");
    await(cq.get(), 3);
    std::vector<char> back(kTestBytes);
    ensure(xsock_read(near.get(), 4, back.data(), size, &remote, 0, 0), "xsock_read");
    await(cq.get(), 4);
    if (from != back) fail("what was written is not what is read");

    double best = 0;
    for (int i = 0; i < 50; ++i) {
        const std::uint64_t begin = now_ns();
        ensure(xsock_read(near.get(), 5, back.data(), 64, &remote, 0, 0), "xsock_read");
        await(cq.get(), 5);
        const auto took = static_cast<double>(now_ns() - begin);
        best = best == 0 ? took : std::min(best, took);
    }
    return best;
}

}  // namespace

void check_settings(Findings& findings) {
    bool any = false;
    for (const Setting& setting : settings()) {
        const char* value = std::getenv(setting.variable);
        if (value == nullptr || *value == '\0') continue;
        any = true;
        const std::string wrong = setting.check(value);
        if (wrong.empty()) {
            findings.ok(setting.variable, printable(value));
        } else {
            findings.warning(setting.variable,
                             fmt::format("{}: {}; ignored", printable(value), wrong),
                             fmt::format("unset {}", setting.variable));
        }
    }
    if (!any) findings.ok("settings", "none in the environment");
    const char* preloaded = std::getenv("LD_PRELOAD");
    if (preloaded == nullptr || *preloaded == '\0') return;
    for (const char* rival : kRivals) {
        if (std::strstr(preloaded, rival) == nullptr) continue;
        findings.warning("LD_PRELOAD",
                         fmt::format("{} answers to the same calls as the overlay", rival),
                         "run the program with one of the two only");
        return;
    }
    findings.note("LD_PRELOAD",
                  fmt::format("{} is preloaded into every program", printable(preloaded)));
}

void check_engine(Findings& findings) {
    const std::string library = library_path();
    if (xsock_cq* cq = xsock_cq_create(nullptr)) {
        xsock_cq_destroy(cq);
        findings.ok("engine", fmt::format("{} from {}", xsock_version(), library));
        return;
    }
    findings.failure("engine",
                     fmt::format("does not start: {} ({})", std::strerror(errno), library),
                     "reinstall xsock; XSOCK_LOG=debug may say more");
}

void check_loopback(Findings& findings) {
    for (const char* host : {"127.0.0.1", "::1"}) {
        const std::string subject = std::string("self-test ") + host;
        try {
            const double round_trip = talk_to_ourselves(host);
            findings.ok(subject,
                        fmt::format("Send, Write and Read of {}; a Read of 64 bytes takes {}",
                                    bytes_text(kTestBytes), time_text(round_trip)));
        } catch (const Failure& failure) {
            const bool second = std::strcmp(host, "::1") == 0;
            // Many containers have no IPv6, and need none.
            findings.add(second ? Verdict::note : Verdict::failure, subject, failure.what(),
                         second ? "" : "ip link set lo up; XSOCK_LOG=debug says more");
        }
    }
}

void check_overlay(Findings& findings) {
    const std::string path = part_path("libxsock-preload.so");
    if (path.empty()) {
        findings.warning("overlay",
                         "libxsock-preload.so is not beside libxsock.so: 'xsock run' cannot work",
                         "reinstall xsock");
        return;
    }
    const ChildEnd end = run_child({"/bin/sh", "-c", ":"}, {{"LD_PRELOAD", path}});
    if (end.status == 0 && end.said.empty()) {
        findings.ok("overlay", path);
    } else {
        findings.failure("overlay",
                         fmt::format("{}: {}", path,
                                     end.said.empty() ? "a shell with it does not run"
                                                      : printable(trimmed(end.said))),
                         "reinstall xsock");
    }
}

void check_statistics(Findings& findings) {
    const std::string folder = stats_folder();
    if (folder.empty()) {
        findings.note("statistics", "XSOCK_STAT=off: xsock stat shows nothing");
        return;
    }
    const int fd = open_stats_folder(folder, true);
    if (fd >= 0) {
        close(fd);
        findings.ok("statistics", folder);
        return;
    }
    findings.warning("statistics",
                     fmt::format("{}: {}", folder,
                                 errno == EPERM ? "it is not ours alone" : std::strerror(errno)),
                     fmt::format("chmod 700 {}, or XSOCK_STAT=FOLDER", folder));
}

}  // namespace xsock::tools
