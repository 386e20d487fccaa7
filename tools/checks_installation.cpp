// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// doctor's checks of the installation: settings, engine, a connection to ourselves, the overlay.
#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "base/stats_page.hpp"
#include "tools/checks.hpp"
#include "tools/endpoint.hpp"
#include "tools/paths.hpp"
#include "tools/settings.hpp"
#include "tools/text.hpp"

namespace xsock::tools {
namespace {

constexpr std::size_t kTestOctets = 256 * 1024;
constexpr int kTestMs = 10'000;

// Libraries that put themselves in front of the same calls.
constexpr const char* kRivals[] = {"libvma",       "libxlio", "libonload",
                                   "librspreload", "libsdp",  "libsmc"};

void await(xsock_cq* cq, std::uint64_t id) {
    xsock_wc wc;
    for (;;) {
        if (!next_completion(cq, wc, kTestMs)) fail("nothing came within %d s", kTestMs / 1000);
        if (wc.status != XSOCK_WC_SUCCESS) fail("an operation failed: %s", xsock_wc_str(wc.status));
        if (wc.wr_id == id) return;
    }
}

/// Send, Write and Read between two endpoints of this process; answers with the round trip of 64
/// octets in nanoseconds.
double talk_to_ourselves(const char* host) {
    const CqPtr cq = make_cq();
    std::vector<char> from(kTestOctets);
    std::vector<char> to(kTestOctets);
    for (std::size_t i = 0; i < from.size(); ++i) from[i] = static_cast<char>(i * 7 + i / 251);
    const MrPtr mr(xsock_mr_register(nullptr, to.data(), to.size(),
                                     XSOCK_REMOTE_WRITE | XSOCK_REMOTE_READ, nullptr));
    if (mr == nullptr) fail_errno("no memory region");
    XSOCK_INIT(xsock_ep_attr, attr);
    attr.send_cq = cq.get();
    const ListenerPtr listener(xsock_listen(host, "0", 4, &attr));
    if (listener == nullptr) fail_errno("cannot listen on %s", host);
    const std::string port = std::to_string(xsock_listener_port(listener.get()));
    const EpPtr near(xsock_connect(host, port.c_str(), &attr, kTestMs));
    if (near == nullptr) fail_errno("cannot connect to %s port %s", host, port.c_str());
    const EpPtr far(xsock_accept(listener.get(), kTestMs));
    if (far == nullptr) fail_errno("the connection does not come out of the listener");

    const auto size = static_cast<std::uint32_t>(kTestOctets);
    if (xsock_recv(far.get(), 1, to.data(), size) != 0) fail_errno("xsock_recv");
    if (xsock_send(near.get(), 2, from.data(), size, XSOCK_UNSIGNALED) != 0) {
        fail_errno("xsock_send");
    }
    await(cq.get(), 1);
    if (from != to) fail("what was sent is not what came");
    std::fill(to.begin(), to.end(), '\0');
    xsock_key key;
    xsock_remote remote;
    if (xsock_mr_key(mr.get(), 0, kTestOctets, &key) != 0) fail_errno("xsock_mr_key");
    xsock_key_read(&key, &remote);
    if (xsock_write(near.get(), 3, from.data(), size, &remote, 0, 0) != 0) {
        fail_errno("xsock_write");
    }
    await(cq.get(), 3);
    std::vector<char> back(kTestOctets);
    if (xsock_read(near.get(), 4, back.data(), size, &remote, 0, 0) != 0) fail_errno("xsock_read");
    await(cq.get(), 4);
    if (from != back) fail("what was written is not what is read");

    double best = 0;
    for (int i = 0; i < 50; ++i) {
        const std::uint64_t begin = now_ns();
        if (xsock_read(near.get(), 5, back.data(), 64, &remote, 0, 0) != 0)
            fail_errno("xsock_read");
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
            findings.add(Verdict::ok, setting.variable, printable(value));
        } else {
            findings.add(Verdict::warning, setting.variable,
                         format("%s: %s; ignored", printable(value).c_str(), wrong.c_str()),
                         format("unset %s", setting.variable));
        }
    }
    if (!any) findings.add(Verdict::ok, "settings", "none in the environment");
    const char* preloaded = std::getenv("LD_PRELOAD");
    if (preloaded == nullptr || *preloaded == '\0') return;
    for (const char* rival : kRivals) {
        if (std::strstr(preloaded, rival) == nullptr) continue;
        findings.add(Verdict::warning, "LD_PRELOAD",
                     format("%s answers to the same calls as the overlay", rival),
                     "run the program with one of the two only");
        return;
    }
    findings.add(Verdict::note, "LD_PRELOAD",
                 format("%s is preloaded into every program", printable(preloaded).c_str()));
}

void check_engine(Findings& findings) {
    const std::string library = library_path();
    if (xsock_cq* cq = xsock_cq_create(nullptr)) {
        xsock_cq_destroy(cq);
        findings.add(Verdict::ok, "engine", format("%s from %s", xsock_version(), library.c_str()));
        return;
    }
    findings.add(Verdict::failure, "engine",
                 format("does not start: %s (%s)", std::strerror(errno), library.c_str()),
                 "reinstall xsock; XSOCK_LOG=debug may say more");
}

void check_loopback(Findings& findings) {
    for (const char* host : {"127.0.0.1", "::1"}) {
        const std::string subject = std::string("self-test ") + host;
        try {
            const double round_trip = talk_to_ourselves(host);
            findings.add(Verdict::ok, subject,
                         format("Send, Write and Read of %s; a Read of 64 octets takes %s",
                                octets_text(kTestOctets).c_str(), time_text(round_trip).c_str()));
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
        findings.add(Verdict::warning, "overlay",
                     "libxsock-preload.so is not beside libxsock.so: 'xsock run' cannot work",
                     "reinstall xsock");
        return;
    }
    int pipes[2];
    if (pipe2(pipes, O_CLOEXEC) != 0) return;
    const pid_t child = fork();
    if (child == 0) {
        dup2(pipes[1], STDERR_FILENO);
        setenv("LD_PRELOAD", path.c_str(), 1);
        execl("/bin/sh", "sh", "-c", ":", nullptr);
        _exit(127);
    }
    close(pipes[1]);
    std::string said;
    char piece[512];
    for (ssize_t n = 0; (n = read(pipes[0], piece, sizeof piece)) > 0 && said.size() < 4096;) {
        said.append(piece, static_cast<std::size_t>(n));
    }
    close(pipes[0]);
    int status = -1;
    if (child > 0) waitpid(child, &status, 0);
    if (child > 0 && WIFEXITED(status) && WEXITSTATUS(status) == 0 && said.empty()) {
        findings.add(Verdict::ok, "overlay", path);
    } else {
        findings.add(Verdict::failure, "overlay",
                     format("%s: %s", path.c_str(),
                            said.empty() ? "a shell with it does not run"
                                         : printable(trimmed(said)).c_str()),
                     "reinstall xsock");
    }
}

void check_statistics(Findings& findings) {
    const std::string folder = stats_folder();
    if (folder.empty()) {
        findings.add(Verdict::note, "statistics", "XSOCK_STAT=off: xsock stat shows nothing");
        return;
    }
    const int fd = open_stats_folder(folder, true);
    if (fd >= 0) {
        close(fd);
        findings.add(Verdict::ok, "statistics", folder);
        return;
    }
    findings.add(Verdict::warning, "statistics",
                 format("%s: %s", folder.c_str(),
                        errno == EPERM ? "it is not ours alone" : std::strerror(errno)),
                 format("chmod 700 %s, or XSOCK_STAT=FOLDER", folder.c_str()));
}

}  // namespace xsock::tools
