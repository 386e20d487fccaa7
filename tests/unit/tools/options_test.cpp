// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "tools/options.hpp"

#include <gtest/gtest.h>

#include <initializer_list>

#include "tools/command.hpp"

namespace xsock::tools {
namespace {

/// A command line that may be changed, as main() gets it.
class Words {
  public:
    Words(std::initializer_list<const char*> words) {
        texts_.emplace_back("command");
        for (const char* word : words) texts_.emplace_back(word);
        for (std::string& text : texts_) pointers_.push_back(text.data());
        pointers_.push_back(nullptr);
    }
    int count() const { return static_cast<int>(texts_.size()); }
    char** words() { return pointers_.data(); }

  private:
    std::vector<std::string> texts_;
    std::vector<char*> pointers_;
};

struct Parsed {
    bool flag = false;
    std::uint64_t number = 0;
    std::string text;
    std::string mode;
    double real = 0;
    std::optional<int> status;
    std::vector<std::string> arguments;
};

Parsed parse(std::initializer_list<const char*> list, bool stop = false) {
    Words words(list);
    Parsed p;
    Options options("command", "", "");
    options.flag('f', "flag", p.flag, "")
        .number('n', "number", "N", p.number, 1, 10, "")
        .text('t', "text", "T", p.text, "")
        .flag_text("mode", "a|b", "a", p.mode, "")
        .real('r', "real", "R", p.real, 0, 1, "");
    if (stop) options.stop_at_argument();
    p.status = options.parse(words.count(), words.words());
    p.arguments = options.arguments();
    return p;
}

TEST(Options, takes_a_flag_with_a_value_or_without) {
    EXPECT_EQ(parse({"x"}).mode, "");
    Parsed p = parse({"--mode", "b"});
    EXPECT_EQ(p.mode, "a");
    EXPECT_EQ(p.arguments, (std::vector<std::string>{"b"})) << "the next word is no value";
    EXPECT_EQ(parse({"--mode=b"}).mode, "b");
    EXPECT_EQ(parse({"--mode=b=c"}).mode, "b=c");
    EXPECT_EQ(parse({"--mode", "--mode=b"}).mode, "b") << "the last one counts";
    p = parse({"--mode", "program", "--mode=b"}, true);
    EXPECT_EQ(p.mode, "a");
    EXPECT_EQ(p.arguments, (std::vector<std::string>{"program", "--mode=b"}));
    EXPECT_EQ(parse({"--mode="}).status, kUsage);
    EXPECT_EQ(parse({"--flag=b"}).status, kUsage) << "one that takes none";
}

TEST(Options, takes_every_form) {
    const Parsed p = parse({"a", "-fn3", "--text", "x", "--real=0.5", "b"});
    EXPECT_FALSE(p.status);
    EXPECT_TRUE(p.flag);
    EXPECT_EQ(p.number, 3u);
    EXPECT_EQ(p.text, "x");
    EXPECT_EQ(p.real, 0.5);
    EXPECT_EQ(p.arguments, (std::vector<std::string>{"a", "b"}));
}

TEST(Options, stops_where_it_shall) {
    EXPECT_EQ(parse({"--", "-f"}).arguments, std::vector<std::string>{"-f"});
    EXPECT_EQ(parse({"-f", "program", "-f"}, true).arguments,
              (std::vector<std::string>{"program", "-f"}));
    EXPECT_EQ(parse({"-"}).arguments, std::vector<std::string>{"-"});
}

TEST(Options, refuses_what_makes_no_sense) {
    for (const auto& list :
         std::initializer_list<std::initializer_list<const char*>>{{"-x"},
                                                                   {"--flagged"},
                                                                   {"--flag=1"},
                                                                   {"-n"},
                                                                   {"--number"},
                                                                   {"-n0"},
                                                                   {"-n11"},
                                                                   {"-n", "1x"},
                                                                   {"-n", ""},
                                                                   {"-n", "18446744073709551617"},
                                                                   {"-r", "nan"},
                                                                   {"-r", "2"},
                                                                   {"-r", ""},
                                                                   {"--flg"}}) {
        EXPECT_EQ(parse(list).status, kUsage);
    }
}

TEST(ParseSizes, takes_a_list) {
    EXPECT_EQ(parse_sizes("1,2K", 1 << 20), (std::vector<std::uint64_t>{1, 2048}));
    EXPECT_TRUE(parse_sizes("1,,2", 1 << 20).empty());
}

TEST(ParseHost, tells_ports_from_colons_of_ipv6) {
    const auto parsed = [](const char* text) {
        std::string host;
        std::string port = "-";
        return parse_host(text, host, port) ? host + "|" + port : "wrong";
    };
    EXPECT_EQ(parsed("host"), "host|-");
    EXPECT_EQ(parsed("host:1"), "host|1");
    EXPECT_EQ(parsed("::1"), "::1|-");
    EXPECT_EQ(parsed("[::1]"), "::1|-");
    EXPECT_EQ(parsed("[::1]:7"), "::1|7");
    for (const char* wrong : {"", ":1", "host:", "[::1", "[::1]7", "[]"}) {
        EXPECT_EQ(parsed(wrong), "wrong") << wrong;
    }
}

}  // namespace
}  // namespace xsock::tools
