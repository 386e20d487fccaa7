// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The options of a command, over CLI11: one declaration for each makes both the parser and --help.
//
//   Options options("ping", "[options] HOST [PORT]", "Measures round trips.");
//   options.number('c', "count", "N", count, 1, 1000000, "stop after N round trips");
//   if (const auto status = options.parse(argc, argv)) return *status;
//
// Long options may be given as --name VALUE or --name=VALUE and are not abbreviated; letters may be
// joined (-ab, -c5); the last one given counts. "--" ends the options.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tools/text.hpp"

namespace CLI {
class App;
}

namespace xsock::tools {

class Options {
  public:
    Options(const char* command, const char* synopsis, const char* purpose);
    ~Options();
    Options(const Options&) = delete;
    Options& operator=(const Options&) = delete;

    /// `letter` 0: none. A '\n' in `help` begins a new line.
    Options& flag(char letter, const char* name, bool& value, const char* help);
    Options& text(char letter, const char* name, const char* what, std::string& value,
                  const char* help);
    /// A flag that may have a value: --name means `plain`, --name=VALUE the value. The next word is
    /// no value of it.
    Options& flag_text(const char* name, const char* what, const char* plain, std::string& value,
                       const char* help);
    /// A whole number from `low` to `high`.
    Options& number(char letter, const char* name, const char* what, std::uint64_t& value,
                    std::uint64_t low, std::uint64_t high, const char* help);
    /// A number with a fraction, such as seconds.
    Options& real(char letter, const char* name, const char* what, double& value, double low,
                  double high, const char* help);
    /// `take` answers with what is wrong with its argument; empty if all is well.
    Options& other(char letter, const char* name, const char* what,
                   std::function<std::string(const std::string&)> take, const char* help);
    /// A line in --help in front of the options that follow.
    Options& heading(const char* words);
    /// The first argument that is no option ends the options: what follows is another program's.
    Options& stop_at_argument();
    /// Text at the end of --help.
    Options& epilogue(const char* words);

    /// Takes the options. A value means: return it as the exit status, all was said (--help, or an
    /// error on standard error). The same holds for the functions below.
    [[nodiscard]] std::optional<int> parse(int argc, char** argv);
    /// What was left over, in order.
    [[nodiscard]] const std::vector<std::string>& arguments() const { return arguments_; }
    /// No more arguments than that.
    [[nodiscard]] std::optional<int> at_most(std::size_t arguments) const;
    /// The arguments are HOST [PORT]; the port stays as it is when none is given.
    [[nodiscard]] std::optional<int> take_host(std::string& host, std::string& port) const;
    /// The arguments are [[ADDRESS:]PORT].
    [[nodiscard]] std::optional<int> take_address(std::string& host, std::string& port) const;
    /// Says what is wrong with the command line; answers with the exit status.
    template <typename... T>
    [[nodiscard]] int wrong(fmt::format_string<T...> format, T&&... values) const {
        return wrong_text(fmt::format(format, std::forward<T>(values)...));
    }

  private:
    [[nodiscard]] int wrong_text(std::string_view text) const;
    [[nodiscard]] std::optional<int> check_values(int argc, char** argv) const;

    const std::string command_, synopsis_;
    std::string heading_ = "Options";
    bool stop_at_argument_ = false;
    std::unique_ptr<CLI::App> app_;
    std::vector<std::string> arguments_;
};

/// "64,4K,1M", each as parse_size(). Empty when malformed.
[[nodiscard]] std::vector<std::uint64_t> parse_sizes(std::string_view text, std::uint64_t high);
/// "host", "host:port", "[::1]:port", "::1". The port stays as it is when none is given.
/// False when malformed.
[[nodiscard]] bool parse_host(std::string_view text, std::string& host, std::string& port);

}  // namespace xsock::tools
