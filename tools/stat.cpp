// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// xsock stat: every DDP connection of every process of the user, from shared memory.
#include <unistd.h>

#include <cstdio>
#include <ctime>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "base/violation.hpp"
#include "tools/command.hpp"
#include "tools/json.hpp"
#include "tools/options.hpp"
#include "tools/stats_reader.hpp"
#include "tools/text.hpp"

namespace xsock::tools {
namespace {

struct Choice {
    std::uint64_t pid = 0;  // 0: all
    bool json = false;
    bool details = false;
    double watch = 0;  // seconds; 0: once
    std::uint64_t rounds = 0;
};

/// Octets of each connection at the last look, for rates.
using Seen =
    std::map<std::pair<std::uint64_t, std::uint32_t>, std::pair<std::uint64_t, std::uint64_t>>;

std::string options_text(const StatsDescription& d) {
    if (d.revision == 0) return "-";
    std::string text = format("%s v%u", d.initiator != 0 ? "initiator" : "responder", d.revision);
    text += d.crc != 0 ? " crc" : " no-crc";
    if (d.markers_tx != 0 || d.markers_rx != 0) text += " markers";
    text += d.peer_is_xsock != 0 ? " xsock" : "";
    return text;
}

const char* violation_name(std::uint8_t violation) {
    if (violation == 0 || violation >= static_cast<std::uint8_t>(Violation::kCount)) return "";
    return violation_info(static_cast<Violation>(violation)).name;
}

void add_operations(Json& json, const char* name, const std::uint64_t (&messages)[16]) {
    const Operations sum = operations(messages);
    json.key(name).object();
    json("sends", sum.sends)("writes", sum.writes)("reads", sum.reads);
    json("read_responses", sum.read_responses)("atomics", sum.atomics);
    json("immediates", sum.immediates)("terminates", sum.terminates);
    json.end();
}

void print_json(const std::vector<ProcessStats>& processes) {
    Json json;
    json.object().key("processes").array();
    for (const ProcessStats& process : processes) {
        json.object();
        json("pid", process.pid)("program", process.program)("library", process.library);
        json("other_pid_namespace", process.foreign);
        json("connections_ever", process.connections_ever)("unlisted", process.unlisted);
        json.key("connections").array();
        for (const ConnectionStats& c : process.connections) {
            const StatsDescription& d = c.description;
            json.object();
            json("id", d.qp_num)("mode", face_name(d.face))("state", state_name(d.state));
            json("local", d.local)("peer", d.peer);
            json("opened", static_cast<double>(d.opened_ns) / 1e9);
            json.key("negotiated");
            if (d.revision == 0) {
                json.null();
            } else {
                json.object();
                json("initiator", d.initiator != 0)("revision", d.revision)("crc", d.crc != 0);
                json("markers_sent", d.markers_tx != 0)("markers_received", d.markers_rx != 0);
                json("peer_is_xsock", d.peer_is_xsock != 0)("ird", d.ird)("ord", d.ord);
                json("mulpdu", d.mulpdu);
                json.end();
            }
            json("sent_octets", c.tx_octets)("received_octets", c.rx_octets);
            json("sent_payload", c.counters.tx_payload_octets);
            json("received_payload", c.counters.rx_payload_octets);
            json("sent_segments", c.counters.tx_segments);
            json("received_segments", c.counters.rx_segments);
            add_operations(json, "sent", c.counters.tx_messages);
            add_operations(json, "received", c.counters.rx_messages);
            json("error", d.error)("error_code", violation_name(d.violation));
            json("error_text", d.error_text);
            json.end();
        }
        json.end().end();
    }
    json.end().end();
    json.print();
}

void print_details(const ProcessStats& process, const ConnectionStats& c) {
    const StatsDescription& d = c.description;
    const auto both = [](const char* name, std::uint64_t tx, std::uint64_t rx) {
        if (tx == 0 && rx == 0) return;
        std::printf("    %-18s%16llu sent%16llu received\n", name,
                    static_cast<unsigned long long>(tx), static_cast<unsigned long long>(rx));
    };
    const auto opened = static_cast<std::time_t>(d.opened_ns / 1'000'000'000u);
    std::tm local{};
    char when[32] = "?";
    if (localtime_r(&opened, &local) != nullptr) {
        std::strftime(when, sizeof when, "%F %T", &local);
    }
    std::printf("%s[%u%s] connection %u, %s, %s, since %s\n", process.program.c_str(), process.pid,
                process.foreign ? " elsewhere" : "", d.qp_num, face_name(d.face),
                state_name(d.state), when);
    std::printf("    %s -> %s\n", printable(d.local).c_str(), printable(d.peer).c_str());
    if (d.revision != 0) {
        std::printf("    %s; IRD %u, ORD %u, ULPDUs of up to %u octets\n", options_text(d).c_str(),
                    d.ird, d.ord, d.mulpdu);
    }
    const Operations tx = operations(c.counters.tx_messages);
    const Operations rx = operations(c.counters.rx_messages);
    both("octets", c.tx_octets, c.rx_octets);
    both("payload", c.counters.tx_payload_octets, c.counters.rx_payload_octets);
    both("segments", c.counters.tx_segments, c.counters.rx_segments);
    both("Sends", tx.sends, rx.sends);
    both("Writes", tx.writes, rx.writes);
    both("Read Requests", tx.reads, rx.reads);
    both("Read Responses", tx.read_responses, rx.read_responses);
    both("Atomics", tx.atomics, rx.atomics);
    both("Immediate Data", tx.immediates, rx.immediates);
    both("Terminates", tx.terminates, rx.terminates);
    if (d.error_text[0] != '\0') std::printf("    %s\n", printable(d.error_text).c_str());
}

void print_line(const ProcessStats& process, const ConnectionStats& c, const Seen& seen,
                double seconds) {
    const StatsDescription& d = c.description;
    const Operations tx = operations(c.counters.tx_messages);
    const Operations rx = operations(c.counters.rx_messages);
    std::printf("%7u%s %-12.12s %-8s %-11s %-22s %9s %9s", process.pid, process.foreign ? "?" : " ",
                process.program.c_str(), face_name(d.face), state_name(d.state),
                printable(d.peer).c_str(), octets_text(c.tx_octets).c_str(),
                octets_text(c.rx_octets).c_str());
    if (seconds > 0) {
        const auto before = seen.find({process.pid, d.qp_num});
        const auto rate = [&](std::uint64_t now, std::uint64_t then) {
            const double grown = now > then ? static_cast<double>(now - then) : 0;
            return octets_text(static_cast<std::uint64_t>(grown / seconds)) + "/s";
        };
        const bool known = before != seen.end();
        std::printf(" %11s %11s", known ? rate(c.tx_octets, before->second.first).c_str() : "-",
                    known ? rate(c.rx_octets, before->second.second).c_str() : "-");
    }
    std::printf(" %7s/%-7s %7s %7s  %s\n", count_text(tx.sends).c_str(),
                count_text(rx.sends).c_str(), count_text(tx.writes).c_str(),
                count_text(tx.reads).c_str(), options_text(d).c_str());
    if (d.error_text[0] != '\0') std::printf("%8s %s\n", "", printable(d.error_text).c_str());
}

void print_text(const std::vector<ProcessStats>& processes, const Choice& choice, Seen& seen,
                double seconds) {
    std::size_t shown = 0;
    std::uint64_t unlisted = 0;
    for (const ProcessStats& process : processes) {
        unlisted += process.unlisted;
        for (const ConnectionStats& c : process.connections) {
            if (choice.details) {
                print_details(process, c);
            } else {
                if (shown == 0) {
                    std::printf("%7s  %-12s %-8s %-11s %-22s %9s %9s", "PID", "PROGRAM", "MODE",
                                "STATE", "PEER", "SENT", "RECEIVED");
                    if (seconds > 0) std::printf(" %11s %11s", "SENDING", "RECEIVING");
                    std::printf(" %15s %7s %7s  %s\n", "SENDS OUT/IN   ", "WRITES", "READS",
                                "OPTIONS");
                }
                print_line(process, c, seen, seconds);
            }
            ++shown;
        }
    }
    if (shown == 0) std::printf("No DDP connections.\n");
    if (unlisted != 0) {
        std::printf("%llu connections found no slot and are not shown.\n",
                    static_cast<unsigned long long>(unlisted));
    }
    seen.clear();
    for (const ProcessStats& process : processes) {
        for (const ConnectionStats& c : process.connections) {
            seen[{process.pid, c.description.qp_num}] = {c.tx_octets, c.rx_octets};
        }
    }
}

void pause_for(double seconds) {
    timespec time{};
    time.tv_sec = static_cast<std::time_t>(seconds);
    time.tv_nsec = static_cast<long>((seconds - static_cast<double>(time.tv_sec)) * 1e9);
    nanosleep(&time, nullptr);
}

double seconds_now() {
    timespec now{};
    clock_gettime(CLOCK_MONOTONIC, &now);
    return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) / 1e9;
}

}  // namespace

int stat_command(int argc, char** argv) {
    Choice choice;
    bool watch = false;
    Options options("stat", "[options]",
                    "Shows every DDP connection of every process of this user, from shared memory: "
                    "the processes\nare not disturbed.");
    options.number('p', "pid", "PID", choice.pid, 1, 0x7fffffff, "only this process")
        .flag('l', "long", choice.details, "everything about each connection")
        .flag('w', "watch", watch, "again every second, with rates, until interrupted")
        .real('i', "interval", "S", choice.watch, 0.05, 86400, "the same every S seconds")
        .number('n', "rounds", "N", choice.rounds, 1, 1'000'000'000, "stop watching after N looks")
        .flag('j', "json", choice.json, "as JSON; watching, one document for each look")
        .epilogue(
            "Modes: endpoint (xsock.h), message and stream (sockets in DDPMODE), verbs.\n"
            "SENDS counts both directions, WRITES and READS what this end asked for. A pid with "
            "'?' "
            "belongs\nto another pid namespace. XSOCK_STAT=off keeps a process out of the list.");
    if (const auto status = options.parse(argc, argv)) return *status;
    if (!options.arguments().empty()) {
        return options.wrong("'%s' is too much", options.arguments()[0]);
    }
    if (watch && choice.watch == 0) choice.watch = 1;
    if (choice.rounds != 0 && choice.watch == 0) choice.watch = 1;

    const std::vector<std::string> folders = stats_folders();
    const bool screen = choice.watch > 0 && !choice.json && isatty(STDOUT_FILENO) == 1;
    Seen seen;
    double last = 0;
    for (std::uint64_t round = 1;; ++round) {
        std::vector<std::string> complaints;
        std::vector<ProcessStats> processes = read_stats(folders, complaints);
        if (choice.pid != 0) {
            std::erase_if(processes,
                          [&](const ProcessStats& process) { return process.pid != choice.pid; });
        }
        const double now = seconds_now();
        if (screen) std::fputs("\x1b[H\x1b[2J", stdout);
        if (choice.json) {
            print_json(processes);
        } else {
            print_text(processes, choice, seen, choice.watch > 0 && last > 0 ? now - last : 0);
        }
        for (const std::string& complaint : complaints) complain("stat", "%s", complaint.c_str());
        if (std::fflush(stdout) != 0) return kFailed;
        if (choice.watch == 0 || round == choice.rounds) return kOk;
        last = now;
        if (!screen && !choice.json) std::printf("\n");
        pause_for(choice.watch);
    }
}

}  // namespace xsock::tools
