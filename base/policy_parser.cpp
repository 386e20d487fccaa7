// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The grammar of policy.hpp's files, line by line. What is refused is refused with the words that
// would have been right there.
#include <algorithm>

#include "base/policy.hpp"

namespace xsock {
namespace {

constexpr std::string_view kBlanks = " \t";
constexpr std::size_t kMaxNotes = 16;
constexpr std::size_t kMaxQuoted = 40;
constexpr unsigned kMaxLevel = 65535;

/// A word of the file in a reason: short, and safe on a terminal.
std::string quoted(std::string_view word) {
    std::string text = "'";
    for (const char c : word.substr(0, kMaxQuoted)) {
        text += static_cast<unsigned char>(c) < 0x20 || c == 0x7f ? '?' : c;
    }
    return text + (word.size() > kMaxQuoted ? "...'" : "'");
}

bool is_blank(char c) { return kBlanks.find(c) != kBlanks.npos; }

std::string_view trimmed(std::string_view text) {
    const std::size_t first = text.find_first_not_of(kBlanks);
    if (first == text.npos) return {};
    return text.substr(first, text.find_last_not_of(kBlanks) + 1 - first);
}

/// Without the blanks around ':', '/' and '-', of which the grammar needs none.
std::string joined(std::string_view text) {
    constexpr std::string_view kMarks = ":/-";
    std::string result;
    for (std::size_t at = 0; at < text.size(); ++at) {
        if (!is_blank(text[at])) {
            result += text[at];
            continue;
        }
        const std::size_t next = text.find_first_not_of(kBlanks, at);
        const bool behind = !result.empty() && kMarks.find(result.back()) != kMarks.npos;
        const bool before = next != text.npos && kMarks.find(text[next]) != kMarks.npos;
        if (!behind && !before) result += ' ';
        at = (next == text.npos ? text.size() : next) - 1;
    }
    return result;
}

/// "[2001:db8::1]" without its brackets; other text as it is.
std::string_view without_brackets(std::string_view text) {
    const bool has = text.size() >= 2 && text.front() == '[' && text.back() == ']' &&
                     text.find(':') != text.npos;
    return has ? text.substr(1, text.size() - 2) : text;
}

/// ADDRESS and PORT at the last colon; nothing when there is none outside of brackets.
struct Halves {
    std::string_view address, port;
};
std::optional<Halves> halves_of(std::string_view text) {
    const std::size_t colon = text.rfind(':');
    if (colon == text.npos || colon < text.rfind(']') + 1) return {};
    return Halves{text.substr(0, colon), text.substr(colon + 1)};
}

class Parser {
  public:
    explicit Parser(Policy& policy) : policy_(policy) {}

    std::optional<PolicyError> parse(std::string_view text) {
        if (text.size() > kMaxPolicyBytes) {
            return PolicyError{0, "longer than " + std::to_string(kMaxPolicyBytes) + " bytes"};
        }
        while (!text.empty()) {
            ++line_;
            const std::size_t end = std::min(text.find('\n'), text.size());
            if (!take_line(text.substr(0, end))) return PolicyError{line_, reason_};
            text.remove_prefix(std::min(end + 1, text.size()));
        }
        add_notes();
        return {};
    }

  private:
    bool fail(std::string reason) {
        reason_ = std::move(reason);
        return false;
    }
    /// `what` has to follow `before`; `found` is there, or nothing.
    bool expected(const char* what, const char* before, std::string_view found) {
        if (found.empty()) return fail(std::string(what) + " is missing behind " + before);
        return fail(std::string(what) + " must follow " + before + ", not " + quoted(found));
    }
    void note(unsigned line, std::string text) { policy_.notes.push_back({line, std::move(text)}); }

    std::string_view next_word() {
        rest_ = trimmed(rest_);
        const std::string_view word = rest_.substr(0, rest_.find_first_of(kBlanks));
        rest_.remove_prefix(word.size());
        return word;
    }

    bool take_line(std::string_view line) {
        if (line.size() > kMaxPolicyLine) {
            return fail("longer than " + std::to_string(kMaxPolicyLine) + " bytes");
        }
        if (line.find('\0') != line.npos) return fail("a NUL byte: this is no text");
        if (!line.empty() && line.back() == '\r') line.remove_suffix(1);
        rest_ = line.substr(0, line.find('#'));
        const std::string_view word = next_word();
        if (word.empty()) return true;
        if (word == "use") return use_statement();
        if (word == "log") return log_statement();
        return fail("a line begins with 'use' or 'log', not with " + quoted(word));
    }

    bool use_statement() {
        if (policy_.rules.size() == kMaxPolicyRules) {
            return fail("more than " + std::to_string(kMaxPolicyRules) + " rules");
        }
        PolicyRule rule;
        rule.line = line_;
        if (!take_mode(rule) || !take_role(rule) || !take_program(rule)) return false;
        const std::string place = joined(trimmed(rest_));
        const auto halves = halves_of(place);
        if (!halves) return expected("ADDRESS:PORT", "the program", place);
        if (!take_address(halves->address, rule) || !take_ports(halves->port, rule)) return false;
        policy_.rules.push_back(std::move(rule));
        return true;
    }

    bool take_mode(PolicyRule& rule) {
        const std::string_view word = next_word();
        if (word == "rsockets") {
            return fail("the wire of rsockets is not carried yet; use tcp for these peers");
        }
        const auto mode = parse_policy_mode(word);
        if (!mode) return expected("tcp, both or sdp", "'use'", word);
        rule.mode = *mode;
        return true;
    }

    bool take_role(PolicyRule& rule) {
        const std::string_view word = next_word();
        if (word == "server" || word == "listen") {
            rule.role = PolicyRole::server;
        } else if (word == "client" || word == "connect") {
            rule.role = PolicyRole::client;
        } else {
            return expected("server, listen, client or connect", "the mode", word);
        }
        return true;
    }

    bool take_program(PolicyRule& rule) {
        const std::string_view word = next_word();
        if (word.empty()) return expected("a program", "the role", word);
        if (word.size() > kMaxPolicyProgram) {
            return fail("the name of the program is longer than " +
                        std::to_string(kMaxPolicyProgram) + " bytes");
        }
        if (word.find('/') != word.npos && policy_.notes.size() < kMaxNotes) {
            note(line_, quoted(word) + " matches no program: their names have no folders");
        }
        rule.program = word;
        return true;
    }

    bool take_address(std::string_view text, PolicyRule& rule) {
        if (text == "*") return true;
        const std::size_t slash = text.find('/');
        const auto address = parse_ip_address(without_brackets(text.substr(0, slash)));
        if (!address) return fail(quoted(text) + " is no address: *, IPv4 or [IPv6]");
        // An IPv4 address as IPv6 writes it has an IPv6 length.
        const unsigned most = text.find(':') == text.npos ? 32 : 128;
        unsigned length = most;
        if (slash != text.npos) {
            const auto number = parse_decimal(text.substr(slash + 1), most);
            if (!number) {
                return fail(quoted(text.substr(slash)) + " is no length of a network: 0 to " +
                            std::to_string(most));
            }
            length = *number;
        }
        rule.network = make_network(*address, length + (128 - most));
        return true;
    }

    bool take_ports(std::string_view text, PolicyRule& rule) {
        if (text == "*") return true;
        const std::size_t blank = text.find(' ');
        if (blank != text.npos && blank != 0) {
            return fail(quoted(text.substr(blank + 1)) + " is too much behind the port");
        }
        const std::size_t dash = text.find('-');
        const auto first = parse_decimal(text.substr(0, dash), 65535);
        const auto last = dash == text.npos ? first : parse_decimal(text.substr(dash + 1), 65535);
        if (!first || !last) {
            return fail(quoted(text) + " is no port: *, 0 to 65535, or a range of them");
        }
        if (*first > *last) return fail(quoted(text) + " is a range that ends before it begins");
        rule.first_port = static_cast<std::uint16_t>(*first);
        rule.last_port = static_cast<std::uint16_t>(*last);
        return true;
    }

    bool log_statement() {
        policy_.log.line = line_;
        for (std::string_view word = next_word(); !word.empty(); word = next_word()) {
            if (word == "destination") {
                if (!take_destination()) return false;
            } else if (word == "min-level") {
                const std::string_view number = next_word();
                const auto level = parse_decimal(number, kMaxLevel);
                if (!level) return expected("a number, 1 to 9,", "'min-level'", number);
                policy_.log.min_level = *level;
            } else {
                return expected("destination or min-level", "'log'", word);
            }
        }
        return true;
    }

    bool take_destination() {
        const std::string_view word = next_word();
        PolicyLog& log = policy_.log;
        if (word == "stderr") {
            log.destination = PolicyLog::Destination::standard_error;
        } else if (word == "syslog") {
            log.destination = PolicyLog::Destination::syslog;
        } else if (word == "file") {
            const std::string_view name = next_word();
            if (name.empty()) return expected("a name", "'file'", name);
            log.destination = PolicyLog::Destination::file;
            log.file = name;
        } else {
            return expected("stderr, syslog or file", "'destination'", word);
        }
        return true;
    }

    void add_notes() {
        const PolicyLog& log = policy_.log;
        if (log.destination == PolicyLog::Destination::syslog) {
            note(log.line, "xsock does not write to syslog: log lines go to standard error");
        } else if (log.destination == PolicyLog::Destination::file && log.file[0] != '/') {
            note(log.line,
                 quoted(log.file) + " is no absolute path: log lines go to standard error");
        }
        if (policy_.rules.empty()) {
            note(0, "has no 'use' line: the defaults hold (libsdp took sdp for everything)");
        }
    }

    Policy& policy_;
    std::string_view rest_;  // of the line
    unsigned line_ = 0;
    std::string reason_;
};

}  // namespace

std::optional<PolicyMode> parse_policy_mode(std::string_view word) {
    if (word == "tcp") return PolicyMode::tcp;
    if (word == "both") return PolicyMode::both;
    if (word == "sdp" || word == "ddp") return PolicyMode::sdp;
    return {};
}

std::optional<IpEndpoint> parse_endpoint(std::string_view text) {
    const auto halves = halves_of(text);
    if (!halves) return {};
    const auto address = parse_ip_address(without_brackets(halves->address));
    const auto port = parse_decimal(halves->port, 65535);
    if (!address || !port) return {};
    return IpEndpoint{*address, static_cast<std::uint16_t>(*port)};
}

std::optional<PolicyError> parse_policy(std::string_view text, Policy& policy) {
    policy = {};
    auto error = Parser(policy).parse(text);
    if (error) policy = {};
    return error;
}

}  // namespace xsock
