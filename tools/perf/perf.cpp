// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// xsock perf: the command lines of server and client.
#include "tools/perf/perf.hpp"

#include <algorithm>
#include <cstring>

#include "tools/command.hpp"
#include "tools/endpoint.hpp"
#include "tools/options.hpp"
#include "tools/text.hpp"

namespace xsock::tools {
namespace {

using perf::Measure;
using perf::Op;

/// "a,b" of `names`, in the order of their enumeration; what is wrong, or empty.
template <typename T>
std::string parse_names(std::string_view text, std::vector<T>& into,
                        std::initializer_list<std::string_view> names) {
    into.clear();
    for (const std::string_view word : split(text, ',')) {
        const auto* found = std::find(names.begin(), names.end(), word);
        if (found == names.end()) {
            return fmt::format("a list of {} is wanted", fmt::join(names, ", "));
        }
        into.push_back(static_cast<T>(found - names.begin()));
    }
    return {};
}

int server(int argc, char** argv) {
    perf::ServerOptions server;
    Options options("perf", "server [options] [[ADDRESS:]PORT]",
                    "Serves 'xsock perf client', one client after another, until interrupted.");
    options.flag('1', "once", server.once, "end when the first client has left")
        .flag('q', "quiet", server.quiet, "say nothing about clients")
        .epilogue("The default port is 7473; 0 takes a free one. IPv6 addresses: [ADDRESS]:PORT.");
    if (const auto status = options.parse(argc, argv)) return *status;
    if (const auto status = options.take_address(server.host, server.port)) return *status;
    return perf::serve(server);
}

int client(int argc, char** argv) {
    perf::ClientOptions client;
    client.measures = {Measure::latency, Measure::bandwidth, Measure::rate};
    client.ops = {Op::send, Op::write, Op::read};
    Options options(
        "perf", "client [options] HOST [PORT]",
        "Measures latency, bandwidth and message rate of Sends, Writes and Reads, and of "
        "plain TCP on the\nsame path in the same run, in turn.");
    options
        .other(
            't', "tests", "LIST",
            [&](const std::string& text) {
                return parse_names(text, client.measures, {"latency", "bandwidth", "rate"});
            },
            "of latency, bandwidth, rate; default all")
        .other(
            'o', "ops", "LIST",
            [&](const std::string& text) {
                return parse_names(text, client.ops, {"send", "write", "read"});
            },
            "of send, write, read; default all")
        .other(
            's', "sizes", "LIST",
            [&](const std::string& text) {
                client.sizes = parse_sizes(text, perf::Limits::size);
                const auto& sizes = client.sizes;
                const bool good =
                    !sizes.empty() && std::find(sizes.begin(), sizes.end(), 0u) == sizes.end();
                return good ? "" : "sizes from 1 to 16M are wanted, such as 64,4K,1M";
            },
            "bytes of a message, such as 64,4K,1M; default: what\nsuits each test")
        .number('d', "depth", "N", client.depth, 1, perf::Limits::depth,
                "messages under way; default 32")
        .number('c', "connections", "N", client.connections, 1, perf::Limits::connections,
                "connections at once (bandwidth, rate); default 1")
        .number('r', "rounds", "N", client.rounds, 1, 1000, "rounds of each line; default 5")
        .number('n', "count", "N", client.count, 1, perf::Limits::count,
                "messages of a sample, instead of a time")
        .real('T', "time", "S", client.seconds, 0.001, 3600,
              "seconds of a sample, about; default 0.25")
        .flag('b', "both-ways", client.both_ways, "bandwidth and rate: both ends send at once")
        .flag('p', "poll", client.polling, "spin instead of sleeping, both ends and TCP too")
        .flag(0, "no-crc", client.no_crc, "ask for no CRCs")
        .flag(0, "no-tcp", client.no_tcp, "leave plain TCP out")
        .flag('j', "json", client.json, "as JSON")
        .text(0, "svg", "FILE", client.svg, "also draw a picture")
        .flag('q', "quiet", client.quiet, "no progress on the terminal")
        .epilogue(
            "The default port is 7473. Figures of shared or virtual machines vary: look at "
            "the ratios and their\nspread.");
    if (const auto status = options.parse(argc, argv)) return *status;
    if (const auto status = options.take_host(client.host, client.port)) return *status;
    return perf::measure(client);
}

}  // namespace

int perf_command(int argc, char** argv) {
    const char* side = argc > 1 ? argv[1] : "";
    catch_interrupts();
    try {
        if (std::strcmp(side, "server") == 0) return server(argc - 1, argv + 1);
        if (std::strcmp(side, "client") == 0) return client(argc - 1, argv + 1);
    } catch (const Failure& failure) {
        print_error("perf", "{}", failure.what());
        return kFailed;
    }
    Options options(
        "perf", "server [options] [[ADDRESS:]PORT]  |  client [options] HOST [PORT]",
        "Measures latency, bandwidth and message rate beside plain TCP. See 'xsock perf "
        "server --help' and\n'xsock perf client --help'.");
    if (const auto status = options.parse(argc, argv)) return *status;
    if (argc == 1) return options.wrong("server or client?");
    return options.wrong("'{}' is neither server nor client", side);
}

}  // namespace xsock::tools
