// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// xsock stat: every DDP connection of every process of the user, from shared memory; with --all
// also those that are not carried.
#include <unistd.h>

#include <ctime>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "base/kernel_reason.hpp"
#include "base/shm_reason.hpp"
#include "base/stream_error.hpp"
#include "tools/command.hpp"
#include "tools/endpoint.hpp"
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
    bool all = false;
    double watch = 0;  // seconds; 0: once
    std::uint64_t rounds = 0;
};

/// Bytes of each connection at the last report, for rates.
using Seen =
    std::map<std::pair<std::uint64_t, std::uint32_t>, std::pair<std::uint64_t, std::uint64_t>>;

bool is_stream(const StatsDescription& d) {
    return d.api == static_cast<std::uint8_t>(Api::stream);
}

std::string options_text(const StatsDescription& d) {
    if (d.revision == 0) return "-";
    std::string text =
        fmt::format("{} v{}", d.initiator != 0 ? "initiator" : "responder", d.revision);
    if (is_stream(d)) text += " sdp";
    text += d.crc != 0 ? " crc" : " no-crc";
    if (d.markers_tx != 0 || d.markers_rx != 0) text += " markers";
    text += d.peer_is_xsock != 0 ? " xsock" : "";
    text += d.kernel == 1 ? " kernel" : "";
    return text;
}

const char* stream_error_name(std::uint8_t stream_error) {
    if (stream_error == 0 || stream_error >= static_cast<std::uint8_t>(StreamError::kCount))
        return "";
    return stream_error_info(static_cast<StreamError>(stream_error)).name;
}

const char* shm_reason_name(const StatsDescription& d) {
    return shm::name_of(static_cast<shm::Reason>(d.shm_reason));
}

/// Why the kernel module does not place; empty: it does, or was not asked.
const char* kernel_reason_name(const StatsDescription& d) {
    return d.kernel == 2 ? kernel::name_of(static_cast<kernel::Reason>(d.kernel_reason)) : "";
}

struct Operation {
    const char* key;
    const char* name;
    std::uint64_t Operations::*count;
};
constexpr Operation kOperations[] = {
    {"sends", "Sends", &Operations::sends},
    {"writes", "Writes", &Operations::writes},
    {"reads", "Read Requests", &Operations::reads},
    {"read_responses", "Read Responses", &Operations::read_responses},
    {"atomics", "Atomics", &Operations::atomics},
    {"immediates", "Immediate Data", &Operations::immediates},
    {"terminates", "Terminates", &Operations::terminates},
};

Json operations_json(const std::uint64_t (&messages)[16]) {
    const Operations sum = operations(messages);
    Json json;
    for (const Operation& operation : kOperations) json[operation.key] = sum.*operation.count;
    return json;
}

Json connection_json(const ConnectionStats& c) {
    const StatsDescription& d = c.description;
    Json negotiated;
    if (d.revision != 0) {
        negotiated = object({{"initiator", d.initiator != 0},
                             {"revision", d.revision},
                             {"crc", d.crc != 0},
                             {"markers_sent", d.markers_tx != 0},
                             {"markers_received", d.markers_rx != 0},
                             {"peer_is_xsock", d.peer_is_xsock != 0},
                             {"peer_name", std::string(d.peer_name)},
                             {"peer_version", std::string(d.peer_version)},
                             {"peer_features", d.peer_features},
                             {"peer_delayed_ack_ms", d.peer_delayed_ack_ms},
                             {"ird", d.ird},
                             {"ord", d.ord},
                             {"mulpdu", d.mulpdu}});
    }
    Json stream;
    if (is_stream(d)) {
        stream = object({{"sent_bytes", c.stream.tx_bytes},
                         {"received_bytes", c.stream.rx_bytes},
                         {"sends_gathered", c.stream.sends_gathered},
                         {"credit_waits", c.stream.credit_waits}});
    }
    return object({{"id", d.qp_num},
                   {"mode", api_name(d.api)},
                   {"wire", wire_name(d.api)},
                   {"stream", stream},
                   {"state", state_name(d.state)},
                   {"local", std::string(d.local)},
                   {"peer", std::string(d.peer)},
                   {"congestion", std::string(d.congestion)},
                   {"path", path_name(d.path)},
                   {"shm_reason", shm_reason_name(d)},
                   {"stack", d.kernel == 1 ? "kernel" : "user"},
                   {"kernel_reason", kernel_reason_name(d)},
                   {"placed_early", c.placed_early},
                   {"opened", static_cast<double>(d.opened_ns) / 1e9},
                   {"negotiated", negotiated},
                   {"sent_bytes", c.tx_bytes},
                   {"received_bytes", c.rx_bytes},
                   {"sent_payload", c.counters.tx_payload_bytes},
                   {"received_payload", c.counters.rx_payload_bytes},
                   {"sent_segments", c.counters.tx_segments},
                   {"received_segments", c.counters.rx_segments},
                   {"sent", operations_json(c.counters.tx_messages)},
                   {"received", operations_json(c.counters.rx_messages)},
                   {"error", d.error},
                   {"error_code", stream_error_name(d.stream_error)},
                   {"error_text", std::string(d.error_text)}});
}

const char* role_name(PlainRole role) { return role == PlainRole::client ? "client" : "server"; }

Json plain_json(const PlainConnection& c) {
    Json since;
    if (c.since != 0) since = c.since;
    return object({{"role", role_name(c.role)},
                   {"why", plain_reason_code(c.reason)},
                   {"state", c.state},
                   {"local", c.local},
                   {"peer", c.peer},
                   {"since", since}});
}

/// Memory regions that could not be pinned for the kernel module, by why not.
Json unpinned_json(const ProcessStats& process) {
    Json json = Json::object();
    for (std::size_t i = 0; i < kernel::kUnpinnedReasons; ++i) {
        json[kernel::name_of(static_cast<kernel::Unpinned>(i))] = process.unpinned[i];
    }
    return json;
}

Json report_json(const std::vector<ProcessStats>& processes, bool all) {
    Json list = Json::array();
    for (const ProcessStats& process : processes) {
        Json connections = Json::array();
        for (const ConnectionStats& c : process.connections) {
            connections.push_back(connection_json(c));
        }
        list.push_back(object({{"pid", process.pid},
                               {"program", process.program},
                               {"library", process.library},
                               {"other_pid_namespace", process.foreign},
                               {"connections_ever", process.connections_ever},
                               {"unlisted", process.unlisted},
                               {"startups_dropped", process.startups_dropped},
                               {"unpinned", unpinned_json(process)},
                               {"connections", connections}}));
        if (!all) continue;
        Json plain = Json::array();
        for (const PlainConnection& c : process.plain) plain.push_back(plain_json(c));
        add(list.back(), {{"plain", plain}, {"plain_unlisted", process.plain_unlisted}});
    }
    return object({{"processes", list}});
}

std::string moment_text(std::time_t moment) {
    std::tm local{};
    char when[32] = "?";
    if (localtime_r(&moment, &local) != nullptr) std::strftime(when, sizeof when, "%F %T", &local);
    return when;
}

void print_details(const ProcessStats& process, const ConnectionStats& c) {
    const StatsDescription& d = c.description;
    const auto both = [](const char* name, std::uint64_t tx, std::uint64_t rx) {
        if (tx == 0 && rx == 0) return;
        fmt::print("    {:18}{:16} sent{:16} received\n", name, tx, rx);
    };
    fmt::print("{}[{}{}] connection {}, {}, {}, since {}\n", process.program, process.pid,
               process.foreign ? " elsewhere" : "", d.qp_num, api_name(d.api), state_name(d.state),
               moment_text(static_cast<std::time_t>(d.opened_ns / 1'000'000'000u)));
    fmt::print("    {} -> {}\n", printable(d.local), printable(d.peer));
    if (d.revision != 0) {
        fmt::print("    {}; IRD {}, ORD {}, ULPDUs of up to {} bytes\n", options_text(d), d.ird,
                   d.ord, d.mulpdu);
    }
    if (d.congestion[0] != '\0') fmt::print("    TCP under {}\n", printable(d.congestion));
    if (d.path != 0) {
        fmt::print("    data go by {}\n", path_name(d.path));
    } else if (d.shm_reason != 0) {
        fmt::print("    data go by tcp; shared memory: {}\n", shm_reason_name(d));
    }
    if (d.kernel == 1) {
        fmt::print(
            "    the kernel module places what the peer writes; {} bytes before what was lost\n",
            c.placed_early);
    }
    if (d.kernel == 2) fmt::print("    at user level; kernel module: {}\n", kernel_reason_name(d));
    if (d.peer_name[0] != '\0') {
        fmt::print("    the peer is {} {}, features {:#x}", printable(d.peer_name),
                   printable(d.peer_version), d.peer_features);
        if (d.peer_delayed_ack_ms != 0) {
            fmt::print(", delays ACKs by {} ms at most", d.peer_delayed_ack_ms);
        }
        fmt::print("\n");
    }
    const Operations tx = operations(c.counters.tx_messages);
    const Operations rx = operations(c.counters.rx_messages);
    both("bytes", c.tx_bytes, c.rx_bytes);
    both("payload", c.counters.tx_payload_bytes, c.counters.rx_payload_bytes);
    if (is_stream(d)) {
        both("program's bytes", c.stream.tx_bytes, c.stream.rx_bytes);
        fmt::print("    {} sends were gathered with others, {} waits for credit\n",
                   c.stream.sends_gathered, c.stream.credit_waits);
    }
    both("segments", c.counters.tx_segments, c.counters.rx_segments);
    for (const Operation& operation : kOperations) {
        both(operation.name, tx.*operation.count, rx.*operation.count);
    }
    if (d.error_text[0] != '\0') fmt::print("    {}\n", printable(d.error_text));
}

void print_line(const ProcessStats& process, const ConnectionStats& c, const Seen& seen,
                double seconds) {
    const StatsDescription& d = c.description;
    const Operations tx = operations(c.counters.tx_messages);
    const Operations rx = operations(c.counters.rx_messages);
    fmt::print("{:7}{} {:12.12} {:8} {:11} {:22} {:4} {:>9} {:>9}", process.pid,
               process.foreign ? "?" : " ", process.program, api_name(d.api), state_name(d.state),
               printable(d.peer), path_name(d.path), bytes_text(c.tx_bytes),
               bytes_text(c.rx_bytes));
    if (seconds > 0) {
        const auto before = seen.find({process.pid, d.qp_num});
        const auto rate = [&](std::uint64_t now, std::uint64_t then) {
            const double grown = now > then ? static_cast<double>(now - then) : 0;
            return bytes_text(static_cast<std::uint64_t>(grown / seconds)) + "/s";
        };
        const bool known = before != seen.end();
        fmt::print(" {:>11} {:>11}", known ? rate(c.tx_bytes, before->second.first) : "-",
                   known ? rate(c.rx_bytes, before->second.second) : "-");
    }
    fmt::print(" {:>7}/{:7} {:>7} {:>7}  {}\n", count_text(tx.sends), count_text(rx.sends),
               count_text(tx.writes), count_text(tx.reads), options_text(d));
    if (d.error_text[0] != '\0') fmt::print("{:>8} {}\n", "", printable(d.error_text));
}

void print_plain_details(const ProcessStats& process, const PlainConnection& c) {
    fmt::print("{}[{}] plain connection, {}", process.program, process.pid, c.state);
    if (c.since != 0) fmt::print(", since {}", moment_text(static_cast<std::time_t>(c.since)));
    fmt::print("\n    {} -> {}\n    {}: {}: {}\n", c.local, c.peer, role_name(c.role),
               plain_reason_code(c.reason), plain_reason_text(c.reason));
}

void print_plain_line(const ProcessStats& process, const PlainConnection& c, double seconds) {
    fmt::print("{:7}  {:12.12} {:8} {:11} {:22} {:4} {:>9} {:>9}", process.pid, process.program,
               "plain", c.state, c.peer, "tcp", "-", "-");
    if (seconds > 0) fmt::print(" {:>11} {:>11}", "-", "-");
    fmt::print(" {:>7}/{:7} {:>7} {:>7}  {} {}\n", "-", "-", "-", "-", role_name(c.role),
               plain_reason_code(c.reason));
}

void print_heading(double seconds) {
    fmt::print("{:>7}  {:12} {:8} {:11} {:22} {:4} {:>9} {:>9}", "PID", "PROGRAM", "MODE", "STATE",
               "PEER", "PATH", "SENT", "RECEIVED");
    if (seconds > 0) fmt::print(" {:>11} {:>11}", "SENDING", "RECEIVING");
    fmt::print(" {:>15} {:>7} {:>7}  {}\n", "SENDS OUT/IN   ", "WRITES", "READS", "OPTIONS");
}

void print_unpinned(const std::uint64_t (&unpinned)[kernel::kUnpinnedReasons]) {
    for (std::size_t i = 0; i < kernel::kUnpinnedReasons; ++i) {
        if (unpinned[i] == 0) continue;
        fmt::print("{} memory regions are not pinned for the kernel module: {}.\n", unpinned[i],
                   kernel::text_of(static_cast<kernel::Unpinned>(i)));
    }
}

void print_text(const std::vector<ProcessStats>& processes, const Choice& choice, Seen& seen,
                double seconds) {
    std::size_t shown = 0;
    std::uint64_t unlisted = 0, startups_dropped = 0, plain_unlisted = 0;
    std::uint64_t unpinned[kernel::kUnpinnedReasons]{};
    for (const ProcessStats& process : processes) {
        for (std::size_t i = 0; i < kernel::kUnpinnedReasons; ++i) {
            unpinned[i] += process.unpinned[i];
        }
        unlisted += process.unlisted;
        startups_dropped += process.startups_dropped;
        for (const ConnectionStats& c : process.connections) {
            if (choice.details) {
                print_details(process, c);
            } else {
                if (shown == 0) print_heading(seconds);
                print_line(process, c, seen, seconds);
            }
            ++shown;
        }
        if (choice.all) plain_unlisted += process.plain_unlisted;
        for (const PlainConnection& c : process.plain) {
            if (choice.details) {
                print_plain_details(process, c);
            } else {
                if (shown == 0) print_heading(seconds);
                print_plain_line(process, c, seconds);
            }
            ++shown;
        }
    }
    if (shown == 0) fmt::print("No {}connections.\n", choice.all ? "" : "DDP ");
    if (unlisted != 0) {
        fmt::print("{} connections found no slot and are not shown.\n", unlisted);
    }
    if (plain_unlisted != 0) {
        fmt::print("The reasons of {} plain connections found no place.\n", plain_unlisted);
    }
    if (startups_dropped != 0) {
        fmt::print("{} connections had not ended their start-up and were closed to make room.\n",
                   startups_dropped);
    }
    print_unpinned(unpinned);
    seen.clear();
    for (const ProcessStats& process : processes) {
        for (const ConnectionStats& c : process.connections) {
            seen[{process.pid, c.description.qp_num}] = {c.tx_bytes, c.rx_bytes};
        }
    }
}

}  // namespace

int stat_command(int argc, char** argv) {
    Choice choice;
    bool watch = false;
    Options options("stat", "[options]",
                    "Shows every DDP connection of every process of this user, from shared memory: "
                    "the processes\nare not disturbed.");
    options.number('p', "pid", "PID", choice.pid, 1, 0x7fffffff, "only this process")
        .flag('a', "all", choice.all, "also connections that are not carried, and why")
        .flag('l', "long", choice.details, "everything about each connection")
        .flag('w', "watch", watch, "again every second, with rates, until interrupted")
        .real('i', "interval", "S", choice.watch, 0.05, 86400, "the same every S seconds")
        .number('n', "rounds", "N", choice.rounds, 1, 1'000'000'000,
                "stop watching after N reports")
        .flag('j', "json", choice.json, "as JSON; watching, one document for each report")
        .epilogue(
            "Modes: endpoint (xsock.h), message and stream (sockets in DDPMODE), verbs, plain "
            "(--all).\nPATH is tcp or shm (shared memory, between processes of one host); -l says "
            "why not shm.\n"
            "SENDS counts both directions, WRITES and READS what this end asked for. A pid with "
            "'?' "
            "belongs\nto another pid namespace. XSOCK_STAT=off keeps a process out of the list.");
    if (const auto status = options.parse(argc, argv)) return *status;
    if (const auto status = options.at_most(0)) return *status;
    if (watch && choice.watch == 0) choice.watch = 1;
    if (choice.rounds != 0 && choice.watch == 0) choice.watch = 1;

    const std::vector<std::string> folders = stats_folders();
    const bool screen = choice.watch > 0 && !choice.json && isatty(STDOUT_FILENO) == 1;
    Seen seen;
    double last = 0;
    for (std::uint64_t round = 1;; ++round) {
        std::vector<std::string> errors;
        std::vector<ProcessStats> processes = read_stats(folders, errors);
        if (choice.all) find_plain_connections(folders, processes);
        if (choice.pid != 0) {
            std::erase_if(processes,
                          [&](const ProcessStats& process) { return process.pid != choice.pid; });
        }
        const auto now = static_cast<double>(now_ns()) / 1e9;
        if (screen) std::fputs("\x1b[H\x1b[2J", stdout);
        if (choice.json) {
            print_json(report_json(processes, choice.all));
        } else {
            print_text(processes, choice, seen, choice.watch > 0 && last > 0 ? now - last : 0);
        }
        for (const std::string& error : errors) print_error("stat", "{}", error);
        if (std::fflush(stdout) != 0) return kFailed;
        if (choice.watch == 0 || round == choice.rounds) return kOk;
        last = now;
        if (!screen && !choice.json) fmt::print("\n");
        sleep_for(choice.watch);
    }
}

}  // namespace xsock::tools
