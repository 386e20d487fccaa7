// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Policy files of any contents: an error names a line of the file in printable words, what was
// taken is written and taken again as it was, and the rule that decides is the first that matches.
//
// Input: the file.
#include <algorithm>
#include <string>

#include "base/policy.hpp"
#include "tests/fuzz/input.hpp"

namespace {

using namespace xsock;

constexpr const char* kPrograms[] = {"redis-server", "ssh", "a*[b", ""};
constexpr const char* kEndpoints[] = {"10.0.0.5:80", "0.0.0.0:0", "[2001:db8::1]:65535",
                                      "[::]:443"};

void check_words(const std::string& text) {
    FUZZ_CHECK(!text.empty() && text.size() < 200);
    FUZZ_CHECK(std::none_of(text.begin(), text.end(), [](char c) {
        return static_cast<unsigned char>(c) < 0x20 || c == 0x7f;
    }));
}

bool same(const PolicyRule& a, const PolicyRule& b) {
    return a.mode == b.mode && a.role == b.role && a.program == b.program &&
           a.network == b.network && a.first_port == b.first_port && a.last_port == b.last_port;
}

void check_rule(const PolicyRule& rule) {
    Policy again;
    FUZZ_CHECK(!parse_policy(text_of(rule), again));
    FUZZ_CHECK(again.rules.size() == 1 && same(again.rules[0], rule));
    FUZZ_CHECK(rule.first_port <= rule.last_port);
    if (!rule.network) return;
    FUZZ_CHECK(rule.network->length <= 128);
    FUZZ_CHECK(rule.network->contains(rule.network->address));
}

void check_decision(const Policy& policy, PolicyRole role, const std::string& program,
                    const IpEndpoint& endpoint) {
    const PolicyDecision decision = decide(policy, PolicyMode::sdp, role, program, endpoint);
    FUZZ_CHECK((decision.rule != nullptr) == (decision.source == PolicySource::file));
    for (const PolicyRule& rule : policy.rules) {
        const bool decides = &rule == decision.rule;
        FUZZ_CHECK(rule.matches(role, program, endpoint) == decides);
        if (!decides) continue;
        FUZZ_CHECK(rule.mode == decision.mode && rule.role == role);
        return;
    }
    FUZZ_CHECK(decision.rule == nullptr);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    const std::string text(reinterpret_cast<const char*>(data), size);
    Policy policy;
    if (const auto error = parse_policy(text, policy)) {
        FUZZ_CHECK(policy.rules.empty() && policy.notes.empty());
        FUZZ_CHECK(error->line <= std::count(text.begin(), text.end(), '\n') + 1);
        check_words(error->reason);
        return 0;
    }
    unsigned line = 0;
    for (const PolicyRule& rule : policy.rules) {
        FUZZ_CHECK(rule.line > line);  // in the file's order, one a line
        line = rule.line;
        check_rule(rule);
    }
    for (const PolicyNote& note : policy.notes) check_words(note.text);
    const std::string log = log_setting(policy.log);
    FUZZ_CHECK(log.find('\n') == log.npos && log.empty() == (policy.log.line == 0));

    for (const char* program : kPrograms) {
        for (const char* where : kEndpoints) {
            check_decision(policy, PolicyRole::server, program, *parse_endpoint(where));
            check_decision(policy, PolicyRole::client, program, *parse_endpoint(where));
        }
    }
    // A program of the name that a pattern is. Once: fnmatch() is slowest where much of a long name
    // matches and brackets are not closed, up to 25 ms.
    if (!policy.rules.empty()) {
        check_decision(policy, PolicyRole::client, policy.rules.back().program, {});
    }
    return 0;
}
