// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "tools/policy_info.hpp"

#include <sys/socket.h>

#include "base/learned_peers.hpp"
#include "base/listener_registry.hpp"
#include "base/policy_file.hpp"
#include "base/wall_clock.hpp"
#include "tools/command.hpp"
#include "tools/fd.hpp"
#include "tools/json.hpp"
#include "tools/text.hpp"

namespace xsock::tools {
namespace {

constexpr PolicyRole kRoles[] = {PolicyRole::server, PolicyRole::client};

/// What a client under `both` would find.
std::string peer_text(const IpEndpoint& endpoint) {
    switch (look_up_listener(endpoint, 0).known) {
        case PeerKnown::unlisted:
            return "no listener on this machine has said that it takes byte streams at that port";
        case PeerKnown::elsewhere:
            return "listeners have said that they take byte streams at that port; a connection "
                   "from "
                   "here to that address reaches none of them";
        case PeerKnown::gone:
            return "the processes that said it takes byte streams are gone";
        case PeerKnown::sdp:
            return "takes byte streams by SDP";
    }
    return "";
}

const char* peer_name(PeerKnown known) {
    switch (known) {
        case PeerKnown::unlisted:
            return "unlisted";
        case PeerKnown::elsewhere:
            return "elsewhere";
        case PeerKnown::gone:
            return "gone";
        case PeerKnown::sdp:
            return "sdp";
    }
    return "";
}

/// Nothing: nothing is learned here.
std::optional<Learned> learned(const IpEndpoint& endpoint) {
    if (!learn_setting().value_or(false)) return std::nullopt;
    const Fd socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    return look_up_learned(learned_place(socket.get(), endpoint, 0), wall_clock_now());
}

const char* state_name(Learned::State state) {
    switch (state) {
        case Learned::State::unknown:
            return "unknown";
        case Learned::State::answered:
            return "answered";
        case Learned::State::failed:
            return "failed";
    }
    return "";
}

std::string learned_text(const Learned& of) {
    const Time seconds = of.age / kSecond;
    switch (of.state) {
        case Learned::State::unknown:
            return "nothing: no connection of this user has asked it in the last 10 minutes";
        case Learned::State::answered:
            return fmt::format("took a byte stream {} s ago", seconds);
        case Learned::State::failed:
            return fmt::format("was asked for a byte stream {} s ago and did not take it", seconds);
    }
    return "";
}

Json learned_json(const IpEndpoint& endpoint) {
    const auto of = learned(endpoint);
    if (!of) return Json();
    const bool known = of->state != Learned::State::unknown;
    return object(
        {{"state", state_name(of->state)}, {"age_s", known ? Json(of->age / kSecond) : Json()}});
}

std::string place_text(const std::string& path, unsigned line) {
    return line != 0 ? fmt::format("{}:{}", path, line) : path;
}

const char* source_name(PolicySource source) {
    switch (source) {
        case PolicySource::file:
            return "file";
        case PolicySource::known_program:
            return "known program";
        case PolicySource::environment:
            return "environment";
        case PolicySource::built_in:
            return "built in";
    }
    return "";
}

std::string reason_text(const LoadedPolicy& loaded, const PolicyDecision& decision) {
    switch (decision.source) {
        case PolicySource::file:
            return place_text(loaded.path, decision.rule->line) + ": " + text_of(*decision.rule);
        case PolicySource::known_program:
            return "built in: a program that hands its connections to other processes";
        case PolicySource::environment:
            return "XSOCK_STREAM";
        case PolicySource::built_in:
            return "built in: both for all";
    }
    return "";
}

Json decision_json(const LoadedPolicy& loaded, const PolicyDecision& decision) {
    Json json = object({{"mode", text_of(decision.mode)},
                        {"source", source_name(decision.source)},
                        {"file", Json()},
                        {"line", Json()},
                        {"rule", Json()}});
    if (decision.rule != nullptr) {
        add(json, {{"file", loaded.path},
                   {"line", decision.rule->line},
                   {"rule", text_of(*decision.rule)}});
    }
    return json;
}

Json report_json(const LoadedPolicy& loaded, const std::string& program,
                 const IpEndpoint& endpoint) {
    Json report = object({{"program", program}, {"address", text_of(endpoint)}});
    for (const PolicyRole role : kRoles) {
        report[text_of(role)] = decision_json(loaded, loaded.decide(role, program, endpoint));
    }
    report["peer"] = peer_name(look_up_listener(endpoint, 0).known);
    report["learned"] = learned_json(endpoint);
    report["file"] = loaded.path.empty() ? Json() : Json(loaded.path);
    report["error"] = Json();
    if (loaded.error) {
        report["error"] = object({{"line", loaded.error->line}, {"reason", loaded.error->reason}});
    }
    report["stream"] = loaded.stream ? Json(text_of(*loaded.stream)) : Json();
    report["log"] = log_setting(loaded.policy.log);
    report["notes"] = Json::array();
    for (const PolicyNote& note : loaded.policy.notes) {
        report["notes"].push_back(object({{"line", note.line}, {"text", note.text}}));
    }
    report["places"] = Json::array();
    for (const PolicyPlace& place : loaded.places) {
        report["places"].push_back(object({{"path", place.path}, {"state", place.state}}));
    }
    return report;
}

void print_text(const LoadedPolicy& loaded, const std::string& program,
                const IpEndpoint& endpoint) {
    fmt::print("{} at {}\n", printable(program), text_of(endpoint));
    for (const PolicyRole role : kRoles) {
        const PolicyDecision decision = loaded.decide(role, program, endpoint);
        fmt::print("  {:8}{:6}{}\n", text_of(role), text_of(decision.mode),
                   printable(reason_text(loaded, decision)));
    }
    fmt::print("  {:8}{}\n", "peer", peer_text(endpoint));
    if (const auto of = learned(endpoint)) {
        fmt::print("  {:8}{}\n", "learned", learned_text(*of));
    }
    fmt::print("\nFiles\n");
    for (const PolicyPlace& place : loaded.places) {
        fmt::print("  {}: {}\n", printable(place.path), printable(place.state));
    }
    for (const PolicyNote& note : loaded.policy.notes) {
        fmt::print("  {}: {}\n", printable(place_text(loaded.path, note.line)),
                   printable(note.text));
    }
    if (const std::string log = log_setting(loaded.policy.log); !log.empty()) {
        fmt::print("  its log lines mean XSOCK_LOG={}\n", printable(log));
    }
}

}  // namespace

std::string policy_error_text(const std::string& path, const PolicyError& error) {
    return printable(place_text(path, error.line) + ": " + error.reason);
}

int policy_info(const std::string& program, const IpEndpoint& endpoint, bool json) {
    const LoadedPolicy loaded = load_policy();
    const std::string name = program.substr(program.rfind('/') + 1);
    if (json) {
        print_json(report_json(loaded, name, endpoint));
    } else {
        print_text(loaded, name, endpoint);
    }
    if (!loaded.stream_error.empty()) {
        print_error("info", "XSOCK_STREAM: {}", loaded.stream_error);
    }
    if (loaded.error) {
        print_error("info", "{}; the file does not hold",
                    policy_error_text(loaded.path, *loaded.error));
    }
    const bool learn_error = !learn_setting();
    if (learn_error) print_error("info", "XSOCK_POLICY_LEARN: neither 0 nor 1; ignored");
    return loaded.error || !loaded.stream_error.empty() || learn_error ? kFailed : kOk;
}

}  // namespace xsock::tools
