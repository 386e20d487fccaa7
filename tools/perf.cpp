// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// xsock perf: the command lines of server and client.
#include "tools/perf.hpp"

#include <cstring>

#include "tools/command.hpp"
#include "tools/endpoint.hpp"
#include "tools/options.hpp"
#include "tools/text.hpp"

namespace xsock::tools {
namespace {

using perf::Measure;
using perf::Op;

/// "a,b" of names; what is wrong, or empty.
template <typename T>
std::string parse_names(std::string_view text, std::vector<T>& into,
                        std::initializer_list<std::pair<const char*, T>> names) {
    into.clear();
    for (;;) {
        const std::size_t comma = text.find(',');
        const std::string_view word = text.substr(0, comma);
        const std::size_t before = into.size();
        std::string known;
        for (const auto& [name, value] : names) {
            if (word == name) into.push_back(value);
            known += known.empty() ? "" : ", ";
            known += name;
        }
        if (into.size() == before) return "a list of " + known + " is wanted";
        if (comma == text.npos) return {};
        text.remove_prefix(comma + 1);
    }
}

int server(int argc, char** argv) {
    perf::ServerOptions server;
    Options options("perf", "server [options] [[ADDRESS:]PORT]",
                    "Serves 'xsock perf client', one client after another, until interrupted.");
    options.flag('1', "once", server.once, "end when the first client has left")
        .flag('q', "quiet", server.quiet, "say nothing about clients")
        .epilogue("The default port is 7473; 0 takes a free one. IPv6 addresses: [ADDRESS]:PORT.");
    if (const auto status = options.parse(argc, argv)) return *status;
    const auto& arguments = options.arguments();
    if (arguments.size() > 1) return options.wrong("'%s' is too much", arguments.back());
    if (arguments.size() == 1) {
        const std::string_view word = arguments[0];
        if (word.find_first_not_of("0123456789") == word.npos) {
            server.port = word;
        } else if (!parse_host(word, server.host, server.port)) {
            return options.wrong("'%s' is no address", arguments[0]);
        }
    }
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
            [&](std::string_view text) {
                return parse_names<Measure>(text, client.measures,
                                            {{"latency", Measure::latency},
                                             {"bandwidth", Measure::bandwidth},
                                             {"rate", Measure::rate}});
            },
            "of latency, bandwidth, rate; default all")
        .other(
            'o', "ops", "LIST",
            [&](std::string_view text) {
                return parse_names<Op>(
                    text, client.ops,
                    {{"send", Op::send}, {"write", Op::write}, {"read", Op::read}});
            },
            "of send, write, read; default all")
        .other(
            's', "sizes", "LIST",
            [&](std::string_view text) -> std::string {
                client.sizes = parse_sizes(text, perf::Limits::size);
                for (const std::uint64_t size : client.sizes) {
                    if (size == 0) client.sizes.clear();
                }
                if (!client.sizes.empty()) return {};
                return "sizes from 1 to 16M are wanted, such as 64,4K,1M";
            },
            "octets of a message, such as 64,4K,1M; default: what\nsuits each test")
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
    const auto& arguments = options.arguments();
    if (arguments.empty()) return options.wrong("which host?");
    if (arguments.size() > 2) return options.wrong("'%s' is too much", arguments.back());
    if (!parse_host(arguments[0], client.host, client.port)) {
        return options.wrong("'%s' is no host", arguments[0]);
    }
    if (arguments.size() == 2) client.port = arguments[1];
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
        complain("perf", "%s", failure.what());
        return kFailed;
    }
    Options options(
        "perf", "server [options] [[ADDRESS:]PORT]  |  client [options] HOST [PORT]",
        "Measures latency, bandwidth and message rate beside plain TCP. See 'xsock perf "
        "server --help' and\n'xsock perf client --help'.");
    if (const auto status = options.parse(argc, argv)) return *status;
    return options.wrong(argc > 1 ? "'%s' is neither server nor client" : "server or client?%s",
                         side);
}

}  // namespace xsock::tools
