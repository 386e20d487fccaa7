// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "base/policy.hpp"

#include <gtest/gtest.h>

namespace xsock {
namespace {

// As libsdp was shipped, comments shortened.
constexpr const char* kShipped =
    "# libsdp.conf\n"
    "# log min-level 1 destination file libsdp.log\n"
    "\n"
    "log min-level 9 destination file libsdp.log\n"
    "\n"
    "# use both server * *:*\n"
    "use both server * *:*\n"
    "use both client * *:*\n";

Policy parsed(std::string_view text) {
    Policy policy;
    const auto error = parse_policy(text, policy);
    EXPECT_FALSE(error) << text << ": line " << error->line << ": " << error->reason;
    return policy;
}

IpEndpoint endpoint(const char* text) {
    const auto parsed_text = parse_endpoint(text);
    EXPECT_TRUE(parsed_text) << text;
    return parsed_text.value_or(IpEndpoint{});
}

/// The line of the rule that decides; 0: none does.
unsigned line_for(const Policy& policy, PolicyRole role, const char* program, const char* where) {
    const PolicyDecision decision = decide(policy, {}, role, program, endpoint(where));
    return decision.rule != nullptr ? decision.rule->line : 0;
}

bool matches(const std::string& rule, const char* program, const char* where) {
    return line_for(parsed("use sdp client " + rule), PolicyRole::client, program, where) == 1;
}

TEST(ParsePolicy, takes_each_form_of_a_rule) {
    struct Row {
        const char* line;
        const char* rule;  // as text_of() writes it
    };
    const Row rows[] = {
        {"use both server * *:*", "use both server * *:*"},
        {"use tcp listen sshd *:22", "use tcp server sshd *:22"},
        {"use sdp connect ttcp* 192.168.1.0/24:5000-6000",
         "use sdp client ttcp* 192.168.1.0/24:5000-6000"},
        {"use ddp client * *:*", "use sdp client * *:*"},
        {"\tuse  sdp\t client *  10.0.0.5 : 80 ", "use sdp client * 10.0.0.5:80"},
        {"use sdp client * 10.0.0.5 / 8 : 80 - 90", "use sdp client * 10.0.0.0/8:80-90"},
        {"use sdp client * 10.0.0.5/24:80", "use sdp client * 10.0.0.0/24:80"},
        {"use sdp client * 010.000.0.05/032:0080", "use sdp client * 10.0.0.5:80"},
        {"use sdp client * *:0-65535", "use sdp client * *:*"},
        {"use sdp client * *:0", "use sdp client * *:0"},
        {"use sdp client * *:80-80", "use sdp client * *:80"},
        {"use sdp client * [2001:db8::]/32:443", "use sdp client * [2001:db8::]/32:443"},
        {"use sdp client * 2001:db8::/32:443", "use sdp client * [2001:db8::]/32:443"},
        {"use sdp client * [ 2001:db8::1 ]:443", nullptr},
        {"use sdp client * 2001:db8::1:443", "use sdp client * [2001:db8::1]:443"},
        {"use sdp client * ::1:443", "use sdp client * [::1]:443"},
        {"use sdp client * :::443", "use sdp client * [::]:443"},
        {"use sdp client * [::ffff:10.0.0.0]/104:*", "use sdp client * 10.0.0.0/8:*"},
        {"use sdp client a[bc]?\\* *:*", "use sdp client a[bc]?\\* *:*"},
        {"use sdp client * *:* # all", "use sdp client * *:*"},
        {"use sdp client * *:*#all", "use sdp client * *:*"},
        {"use sdp client * *:*\r", "use sdp client * *:*"},
    };
    for (const Row& row : rows) {
        Policy policy;
        const auto error = parse_policy(row.line, policy);
        if (row.rule == nullptr) {
            EXPECT_TRUE(error) << row.line;
            continue;
        }
        ASSERT_FALSE(error) << row.line << ": " << error->reason;
        ASSERT_EQ(policy.rules.size(), 1u) << row.line;
        EXPECT_EQ(text_of(policy.rules[0]), row.rule) << row.line;
        EXPECT_EQ(policy.rules[0].line, 1u);
        EXPECT_EQ(text_of(parsed(row.rule).rules.at(0)), row.rule);
    }
}

TEST(ParsePolicy, says_what_is_wrong_with_a_line) {
    struct Row {
        const char* line;
        const char* reason;
    };
    const Row rows[] = {
        {"allow all", "a line begins with 'use' or 'log', not with 'allow'"},
        {"USE both server * *:*", "a line begins with 'use' or 'log', not with 'USE'"},
        {"use", "tcp, both or sdp is missing behind 'use'"},
        {"use Sdp server * *:*", "tcp, both or sdp must follow 'use', not 'Sdp'"},
        {"use rsockets server * *:*",
         "the wire of rsockets is not carried yet; use tcp for these peers"},
        {"use sdp", "server, listen, client or connect is missing behind the mode"},
        {"use sdp both * *:*",
         "server, listen, client or connect must follow the mode, not 'both'"},
        {"use sdp server", "a program is missing behind the role"},
        {"use sdp server # *", "a program is missing behind the role"},
        {"use sdp server *", "ADDRESS:PORT is missing behind the program"},
        {"use sdp server *:*", "ADDRESS:PORT is missing behind the program"},
        {"use sdp server * *", "ADDRESS:PORT must follow the program, not '*'"},
        {"use sdp server * [::1]", "ADDRESS:PORT must follow the program, not '[::1]'"},
        {"use sdp server * 10.0.0.1 80", "ADDRESS:PORT must follow the program, not '10.0.0.1 80'"},
        {"use sdp server * *:80 81", "'81' is too much behind the port"},
        {"use sdp server * a b *:80", "'a b *' is no address: *, IPv4 or [IPv6]"},
        {"use sdp server * host:80", "'host' is no address: *, IPv4 or [IPv6]"},
        {"use sdp server * 10.0.0.256:80", "'10.0.0.256' is no address: *, IPv4 or [IPv6]"},
        {"use sdp server * */8:80", "'*/8' is no address: *, IPv4 or [IPv6]"},
        {"use sdp server * [*]:80", "'[*]' is no address: *, IPv4 or [IPv6]"},
        {"use sdp server * [10.0.0.1]:80", "'[10.0.0.1]' is no address: *, IPv4 or [IPv6]"},
        {"use sdp server * [::1:80", "'[::1' is no address: *, IPv4 or [IPv6]"},
        {"use sdp server * :80", "'' is no address: *, IPv4 or [IPv6]"},
        {"use sdp server * 10.0.0.0/33:80", "'/33' is no length of a network: 0 to 32"},
        {"use sdp server * 10.0.0.0/:80", "'/' is no length of a network: 0 to 32"},
        {"use sdp server * [::]/129:80", "'/129' is no length of a network: 0 to 128"},
        {"use sdp server * [::]/-1:80", "'/-1' is no length of a network: 0 to 128"},
        {"use sdp server * *:", "'' is no port: *, 0 to 65535, or a range of them"},
        {"use sdp server * *:65536", "'65536' is no port: *, 0 to 65535, or a range of them"},
        {"use sdp server * *:99999999999999999999",
         "'99999999999999999999' is no port: *, 0 to 65535, or a range of them"},
        {"use sdp server * *:80-", "'80-' is no port: *, 0 to 65535, or a range of them"},
        {"use sdp server * *:-80", "'-80' is no port: *, 0 to 65535, or a range of them"},
        {"use sdp server * *:1-2-3", "'1-2-3' is no port: *, 0 to 65535, or a range of them"},
        {"use sdp server * *:http", "'http' is no port: *, 0 to 65535, or a range of them"},
        {"use sdp server * *:90-80", "'90-80' is a range that ends before it begins"},
        {"log file x", "destination or min-level must follow 'log', not 'file'"},
        {"log destination", "stderr, syslog or file is missing behind 'destination'"},
        {"log destination stdout",
         "stderr, syslog or file must follow 'destination', not 'stdout'"},
        {"log destination file", "a name is missing behind 'file'"},
        {"log min-level", "a number, 1 to 9, is missing behind 'min-level'"},
        {"log min-level high", "a number, 1 to 9, must follow 'min-level', not 'high'"},
        {"log min-level -1", "a number, 1 to 9, must follow 'min-level', not '-1'"},
        {"\x1b[31muse", "a line begins with 'use' or 'log', not with '?[31muse'"},
    };
    for (const Row& row : rows) {
        Policy policy;
        // Of a rule that is right, nothing is left either.
        const std::string text = std::string("use tcp server * *:*\n\n") + row.line + "\nuse\n";
        const auto error = parse_policy(text, policy);
        ASSERT_TRUE(error) << row.line;
        EXPECT_EQ(error->line, 3u) << row.line;
        EXPECT_EQ(error->reason, row.reason) << row.line;
        EXPECT_TRUE(policy.rules.empty()) << row.line;
    }
}

TEST(ParsePolicy, has_limits) {
    Policy policy;
    const std::string rule = "use tcp server * *:*\n";
    std::string text;
    for (std::size_t i = 0; i < kMaxPolicyRules; ++i) text += rule;
    EXPECT_FALSE(parse_policy(text, policy));
    EXPECT_EQ(policy.rules.size(), kMaxPolicyRules);
    auto error = parse_policy(text + "\n" + rule, policy);
    ASSERT_TRUE(error);
    EXPECT_EQ(error->line, kMaxPolicyRules + 2);
    EXPECT_EQ(error->reason, "more than 4096 rules");

    EXPECT_FALSE(parse_policy("#" + std::string(kMaxPolicyLine - 1, 'x'), policy));
    error = parse_policy("\n#" + std::string(kMaxPolicyLine, 'x'), policy);
    ASSERT_TRUE(error);
    EXPECT_EQ(error->line, 2u);
    EXPECT_EQ(error->reason, "longer than 4096 bytes");

    const std::string name(kMaxPolicyProgram, 'x');
    EXPECT_FALSE(parse_policy("use tcp server " + name + " *:*", policy));
    error = parse_policy("use tcp server " + name + "x *:*", policy);
    ASSERT_TRUE(error);
    EXPECT_EQ(error->reason, "the name of the program is longer than 255 bytes");

    EXPECT_FALSE(parse_policy(std::string(kMaxPolicyBytes, '\n'), policy));
    error = parse_policy(std::string(kMaxPolicyBytes + 1, '\n'), policy);
    ASSERT_TRUE(error);
    EXPECT_EQ(error->line, 0u);
    EXPECT_EQ(error->reason, "longer than 1048576 bytes");

    error = parse_policy(std::string_view("#\n# \0\n", 6), policy);
    ASSERT_TRUE(error);
    EXPECT_EQ(error->line, 2u);
    EXPECT_EQ(error->reason, "a NUL byte: this is no text");

    error = parse_policy("use " + std::string(1000, 'x'), policy);
    ASSERT_TRUE(error);
    EXPECT_LT(error->reason.size(), 100u);
}

TEST(ParsePolicy, takes_the_file_that_libsdp_shipped) {
    const Policy policy = parsed(kShipped);
    ASSERT_EQ(policy.rules.size(), 2u);
    EXPECT_EQ(line_for(policy, PolicyRole::server, "redis-server", "0.0.0.0:6379"), 7u);
    EXPECT_EQ(line_for(policy, PolicyRole::client, "redis-cli", "[::1]:6379"), 8u);
    EXPECT_EQ(log_setting(policy.log), "error");
    ASSERT_EQ(policy.notes.size(), 1u);
    EXPECT_EQ(policy.notes[0].line, 4u);
    EXPECT_EQ(policy.notes[0].text,
              "'libsdp.log' is no absolute path: log lines go to standard error");
}

TEST(ParsePolicy, says_that_a_file_without_rules_means_the_defaults) {
    for (const char* text : {"", "\n\n", "# use sdp server * *:*", "log"}) {
        const Policy policy = parsed(text);
        EXPECT_TRUE(policy.rules.empty());
        ASSERT_EQ(policy.notes.size(), 1u) << text;
        EXPECT_EQ(policy.notes[0].line, 0u);
        EXPECT_EQ(policy.notes[0].text,
                  "has no 'use' line: the defaults hold (libsdp took sdp for everything)");
    }
}

TEST(ParsePolicy, notes_what_cannot_match) {
    const Policy policy = parsed("use tcp server /usr/bin/ssh *:*\nuse tcp server * *:*");
    ASSERT_EQ(policy.notes.size(), 1u);
    EXPECT_EQ(policy.notes[0].line, 1u);
    EXPECT_EQ(policy.notes[0].text,
              "'/usr/bin/ssh' matches no program: their names have no folders");
    std::string many;
    for (int i = 0; i < 1000; ++i) many += "use tcp server /x *:*\n";
    EXPECT_LE(parsed(many).notes.size(), 18u);
}

TEST(ParsePolicy, ends_at_the_end_with_or_without_a_newline) {
    EXPECT_EQ(parsed("use tcp server * *:*").rules.size(), 1u);
    EXPECT_EQ(parsed("use tcp server * *:*\n").rules.size(), 1u);
    EXPECT_EQ(parsed("use tcp server * *:*\nuse tcp client * *:*").rules.size(), 2u);
}

TEST(PolicyRule, matches_addresses_ports_and_names) {
    struct Row {
        const char* rule;
        const char* program;
        const char* where;
        bool matches;
    };
    const Row rows[] = {
        {"* *:*", "redis-cli", "10.0.0.5:1", true},
        {"* *:*", "", "[::]:0", true},
        {"* *:80", "p", "10.0.0.5:80", true},
        {"* *:80", "p", "10.0.0.5:81", false},
        {"* *:80-90", "p", "10.0.0.5:80", true},
        {"* *:80-90", "p", "10.0.0.5:90", true},
        {"* *:80-90", "p", "10.0.0.5:79", false},
        {"* *:80-90", "p", "10.0.0.5:91", false},
        {"* 10.0.0.5/24:*", "p", "10.0.0.77:1", true},
        {"* 10.0.0.5/24:*", "p", "10.0.1.5:1", false},
        {"* 10.0.0.0/8:*", "p", "[::ffff:10.9.9.9]:1", true},
        {"* [::ffff:10.0.0.0]/104:*", "p", "10.9.9.9:1", true},
        {"* 0.0.0.0/0:*", "p", "[::1]:1", false},
        {"* [::]/0:*", "p", "10.0.0.1:1", false},
        {"* [::]/0:*", "p", "[::1]:1", true},
        {"* [2001:db8::]/32:443", "p", "[2001:db8:1::9]:443", true},
        {"* [2001:db8::]/32:443", "p", "2001:db9::9:443", false},
        {"redis-cli *:*", "redis-cli", "10.0.0.5:1", true},
        {"redis-cli *:*", "redis-cli2", "10.0.0.5:1", false},
        {"redis-* *:*", "redis-cli", "10.0.0.5:1", true},
        {"redis-* *:*", "redis", "10.0.0.5:1", false},
        {"*cli *:*", "redis-cli", "10.0.0.5:1", true},
        {"redis-[cs]* *:*", "redis-server", "10.0.0.5:1", true},
        {"redis-[!cs]* *:*", "redis-server", "10.0.0.5:1", false},
        {"redis-??? *:*", "redis-cli", "10.0.0.5:1", true},
        {"a\\*b *:*", "a*b", "10.0.0.5:1", true},
        {"a\\*b *:*", "axb", "10.0.0.5:1", false},
        {"Redis *:*", "redis", "10.0.0.5:1", false},
        {"* *:*", ".hidden", "10.0.0.5:1", true},
    };
    for (const Row& row : rows) {
        EXPECT_EQ(matches(row.rule, row.program, row.where), row.matches)
            << row.rule << " " << row.program << " " << row.where;
    }
}

TEST(Decide, takes_the_first_match_of_each_role) {
    const Policy policy = parsed(
        "use tcp server redis* *:6379\n"
        "use sdp client * 10.0.0.0/8:*\n"
        "use sdp server * *:*\n"
        "use tcp client * 10.0.0.5:*\n");
    EXPECT_EQ(line_for(policy, PolicyRole::server, "redis-server", "0.0.0.0:6379"), 1u);
    EXPECT_EQ(line_for(policy, PolicyRole::server, "redis-server", "0.0.0.0:6380"), 3u);
    EXPECT_EQ(line_for(policy, PolicyRole::client, "redis-cli", "10.0.0.5:6379"), 2u);
    EXPECT_EQ(line_for(policy, PolicyRole::client, "redis-cli", "192.0.2.1:6379"), 0u);
}

TEST(Decide, goes_from_the_file_to_known_programs_to_the_environment) {
    const Policy file = parsed("use sdp client ssh 10.0.0.5:22\nuse tcp client psql *:*");
    const auto client = [&](const char* program, const char* where,
                            std::optional<PolicyMode> stream) {
        return decide(file, stream, PolicyRole::client, program, endpoint(where));
    };
    PolicyDecision decision = client("psql", "10.0.0.5:5432", PolicyMode::sdp);
    EXPECT_EQ(decision.mode, PolicyMode::tcp) << "XSOCK_STREAM is below the file";
    EXPECT_EQ(decision.source, PolicySource::file);
    decision = client("ssh", "10.0.0.5:22", {});
    EXPECT_EQ(decision.mode, PolicyMode::sdp) << "known programs are below the file";
    EXPECT_EQ(decision.source, PolicySource::file);
    decision = client("ssh", "10.0.0.6:22", PolicyMode::sdp);
    EXPECT_EQ(decision.mode, PolicyMode::tcp) << "XSOCK_STREAM replaces 'both for all' only";
    EXPECT_EQ(decision.source, PolicySource::known_program);
    decision = client("redis-cli", "10.0.0.6:22", PolicyMode::sdp);
    EXPECT_EQ(decision.mode, PolicyMode::sdp);
    EXPECT_EQ(decision.source, PolicySource::environment);
    decision = client("redis-cli", "10.0.0.6:22", {});
    EXPECT_EQ(decision.mode, PolicyMode::both);
    EXPECT_EQ(decision.source, PolicySource::built_in);
    EXPECT_EQ(decision.rule, nullptr);
}

TEST(Decide, leaves_programs_plain_that_hand_connections_over) {
    for (const char* program :
         {"sshd", "sshd-session", "ssh", "rsync", "inetd", "xinetd", "s6-tcpserver4d", "postscreen",
          "pg_basebackup", "imap-login", "vsftpd"}) {
        for (const PolicyRole role : {PolicyRole::server, PolicyRole::client}) {
            EXPECT_EQ(decide({}, {}, role, program, endpoint("10.0.0.1:1")).mode, PolicyMode::tcp)
                << program;
        }
    }
    for (const char* program : {"sshd2", "redis-server", "nginx", "scp", ""}) {
        EXPECT_EQ(decide({}, {}, PolicyRole::server, program, endpoint("10.0.0.1:1")).mode,
                  PolicyMode::both)
            << program;
    }
}

TEST(LogSetting, says_it_in_the_words_of_xsock_log) {
    struct Row {
        const char* lines;
        const char* setting;
    };
    const Row rows[] = {
        {"", ""},
        {"log", "error"},
        {"log min-level 10", "off"},
        {"log min-level 9", "error"},
        {"log min-level 8", "warn"},
        {"log min-level 7", "info"},
        {"log min-level 5", "info"},
        {"log min-level 4", "debug"},
        {"log min-level 0", "debug"},
        {"log destination stderr", "error"},
        {"log destination syslog min-level 8", "warn"},
        {"log destination file /var/log/x min-level 7", "info:/var/log/x"},
        {"log destination file /var/log/x\nlog destination stderr", "error"},
        {"log min-level 1\nlog destination file /x", "debug:/x"},
        {"log destination file libsdp.log", "error"},
    };
    for (const Row& row : rows) {
        EXPECT_EQ(log_setting(parsed(row.lines).log), row.setting) << row.lines;
    }
    EXPECT_EQ(parsed("log destination syslog\nuse tcp server * *:*").notes.at(0).text,
              "xsock does not write to syslog: log lines go to standard error");
}

TEST(ParseEndpoint, takes_one_address_and_port) {
    EXPECT_EQ(text_of(endpoint("10.0.0.5:80")), "10.0.0.5:80");
    EXPECT_EQ(text_of(endpoint("[2001:db8::1]:80")), "[2001:db8::1]:80");
    EXPECT_EQ(text_of(endpoint("2001:db8::1:80")), "[2001:db8::1]:80");
    EXPECT_EQ(text_of(endpoint("[::ffff:10.0.0.5]:80")), "10.0.0.5:80");
    for (const char* wrong :
         {"", "10.0.0.5", ":80", "*:80", "10.0.0.5:*", "10.0.0.5:80-90", "10.0.0.0/8:80", "[::1]",
          "host:80", "10.0.0.5:65536", "[10.0.0.5]:80", " 10.0.0.5:80"}) {
        EXPECT_FALSE(parse_endpoint(wrong)) << wrong;
    }
}

}  // namespace
}  // namespace xsock
