// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// What `xsock doctor` checks. Each check adds findings: what was found, how bad it is, and how to
// mend it.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace xsock::tools {

struct KernelModulePlaces;

enum class Verdict : std::uint8_t {
    ok,
    note,     ///< worth knowing; nothing is wrong
    warning,  ///< works, but badly
    failure,  ///< does not work
};

struct Finding {
    Verdict verdict = Verdict::ok;
    std::string subject;  ///< "descriptors"
    std::string text;     ///< a sentence
    std::string mend;     ///< what to do; empty if nothing
};

class Findings {
  public:
    void add(Verdict verdict, std::string subject, std::string text, std::string mend = {}) {
        list_.push_back({verdict, std::move(subject), std::move(text), std::move(mend)});
    }
    void ok(std::string subject, std::string text) {
        add(Verdict::ok, std::move(subject), std::move(text));
    }
    void note(std::string subject, std::string text, std::string mend = {}) {
        add(Verdict::note, std::move(subject), std::move(text), std::move(mend));
    }
    void warning(std::string subject, std::string text, std::string mend) {
        add(Verdict::warning, std::move(subject), std::move(text), std::move(mend));
    }
    void failure(std::string subject, std::string text, std::string mend = {}) {
        add(Verdict::failure, std::move(subject), std::move(text), std::move(mend));
    }
    [[nodiscard]] const std::vector<Finding>& list() const { return list_; }
    [[nodiscard]] bool failed() const;

  private:
    std::vector<Finding> list_;
};

[[nodiscard]] const char* verdict_name(Verdict verdict);

/// This machine and this process's surroundings.
void check_kernel(Findings& findings);
void check_limits(Findings& findings);
void check_processors(Findings& findings);
void check_crc(Findings& findings);
void check_loss_recovery(Findings& findings);
void check_shm(Findings& findings);
void check_kernel_module(Findings& findings);
void check_devices(Findings& findings);
void check_tcp_settings(Findings& findings);
void check_congestion(Findings& findings);
void check_firewall(Findings& findings);

/// This installation.
void check_settings(Findings& findings);
void check_engine(Findings& findings);
void check_loopback(Findings& findings);
void check_overlay(Findings& findings);
void check_statistics(Findings& findings);
/// The drop-in verbs libraries, and what the host's rdma-core needs of them.
void check_verbs(Findings& findings);
/// Whether the program `name` finds all that it was linked against under `xsock run --verbs`. Asks
/// the dynamic linker; the program does not run.
void check_program(Findings& findings, const std::string& name);

/// The same under `xsock run --roce`, and whether it gets the device's files, GIDs and ports.
void check_roce(Findings& findings, const std::string& name);

/// Whether the overlay can see the sockets of the program `name`, by what its file, and those of a
/// script's interpreters, say. Nothing of it runs.
void check_program_file(Findings& findings, const std::string& name);

/// A peer: name, TCP, MPA. `timeout_s` for each step.
void check_peer(Findings& findings, const std::string& host, const std::string& port,
                double timeout_s);

/// As without arguments, where XSOCK_KERNEL is `mode`, and other files are looked at.
void check_kernel_module(Findings& findings, std::string_view mode,
                         const KernelModulePlaces& places);

/// Names the protocol that a peer's first bytes belong to; "" when it is none we know.
[[nodiscard]] std::string guess_protocol(std::string_view bytes);

}  // namespace xsock::tools
