// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The options of a command: one declaration for each makes both the parser and --help.
//
//   Options options("ping", "[options] HOST [PORT]", "Measures round trips.");
//   options.number('c', "count", "N", count, 1, 1000000, "stop after N round trips");
//   if (const auto status = options.parse(argc, argv)) return *status;
//
// Long options may be given as --name VALUE or --name=VALUE and are not abbreviated; letters may be
// joined (-ab, -c5). "--" ends the options.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace xsock::tools {

class Options {
  public:
    /// All three have static storage.
    Options(const char* command, const char* synopsis, const char* purpose)
        : command_(command), synopsis_(synopsis), purpose_(purpose) {}

    /// `letter` 0: none. `help` has static storage; a '\n' in it begins a new line.
    Options& flag(char letter, const char* name, bool& value, const char* help);
    Options& text(char letter, const char* name, const char* what, std::string& value,
                  const char* help);
    /// A whole number from `low` to `high`.
    Options& number(char letter, const char* name, const char* what, std::uint64_t& value,
                    std::uint64_t low, std::uint64_t high, const char* help);
    /// A number with a fraction, such as seconds.
    Options& real(char letter, const char* name, const char* what, double& value, double low,
                  double high, const char* help);
    /// `take` answers with what is wrong with its argument; empty if all is well.
    Options& other(char letter, const char* name, const char* what,
                   std::function<std::string(std::string_view)> take, const char* help);
    /// A line in --help in front of the options that follow.
    Options& heading(const char* words);
    /// The first argument that is no option ends the options: what follows is somebody else's.
    Options& stop_at_argument() {
        stop_at_argument_ = true;
        return *this;
    }
    /// Text at the end of --help. Static storage.
    Options& epilogue(const char* words) {
        epilogue_ = words;
        return *this;
    }

    /// Takes the options. A value means: return it as the exit status, all was said (--help, or a
    /// complaint on standard error).
    [[nodiscard]] std::optional<int> parse(int argc, char** argv);
    /// What was left over, in order.
    [[nodiscard]] const std::vector<char*>& arguments() const { return arguments_; }
    /// Complains about the command line; answers with the exit status.
    [[nodiscard]] int wrong(const char* format, ...) const __attribute__((format(printf, 2, 3)));

  private:
    struct Option {
        char letter = 0;
        const char* name = nullptr;  // null: a heading
        const char* what = nullptr;  // null: takes no value
        const char* help = nullptr;
        std::function<std::string(std::string_view)> take;
    };
    [[nodiscard]] const Option* find(std::string_view name) const;
    [[nodiscard]] const Option* find(char letter) const;
    [[nodiscard]] std::optional<int> apply(const Option& option, const std::string& said,
                                           std::string_view value) const;
    void help() const;

    const char* command_;
    const char* synopsis_;
    const char* purpose_;
    const char* epilogue_ = nullptr;
    bool stop_at_argument_ = false;
    std::vector<Option> options_;
    std::vector<char*> arguments_;
};

/// A size in octets: "4096", "64K", "1M", "2G" (powers of 1024). Nothing when it is none, or larger
/// than `high`.
[[nodiscard]] std::optional<std::uint64_t> parse_size(std::string_view text, std::uint64_t high);
/// "64,4K,1M". Empty when malformed.
[[nodiscard]] std::vector<std::uint64_t> parse_sizes(std::string_view text, std::uint64_t high);
/// "host", "host:port", "[::1]:port", "::1". The port stays as it is when none is given.
/// False when malformed.
[[nodiscard]] bool parse_host(std::string_view text, std::string& host, std::string& port);

}  // namespace xsock::tools
