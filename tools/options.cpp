// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "tools/options.hpp"

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <cstdlib>

#include "base/parse_size.hpp"
#include "tools/command.hpp"

namespace xsock::tools {
namespace {

/// Lays --help out as CLI11 does, below a usage and a purpose of our own.
class HelpLayout final : public CLI::Formatter {
  public:
    explicit HelpLayout(std::string head) : head_(std::move(head)) { column_width(28); }
    std::string make_description(const CLI::App* /*app*/) const override { return {}; }
    std::string make_usage(const CLI::App* /*app*/, std::string /*name*/) const override {
        return head_;
    }
    std::string make_option_name(const CLI::Option* option, bool /*positional*/) const override {
        const auto& letters = option->get_snames();
        const std::string letter = letters.empty() ? "    " : "-" + letters.front() + ", ";
        return letter + "--" + option->get_lnames().front();
    }
    std::string make_option_opts(const CLI::Option* option) const override {
        const std::string what = Formatter::make_option_opts(option);
        return what.rfind(" [=", 0) == 0 ? what.substr(1) : what;
    }

  private:
    const std::string head_;
};

std::string names(char letter, const char* name) {
    return letter != 0 ? fmt::format("-{},--{}", letter, name) : fmt::format("--{}", name);
}

}  // namespace

Options::Options(const char* command, const char* synopsis, const char* purpose)
    : command_(command), synopsis_(synopsis), app_(std::make_unique<CLI::App>("", command)) {
    app_->formatter(std::make_shared<HelpLayout>(
        fmt::format("usage: xsock {} {}\n\n{}\n", command, synopsis, purpose)));
    app_->set_help_flag("-h,--help", "this text");
    app_->allow_extras();  // parse() tells arguments from options that there are not
}

Options::~Options() = default;

Options& Options::flag(char letter, const char* name, bool& value, const char* help) {
    app_->add_flag(names(letter, name), value, help)->disable_flag_override()->group(heading_);
    return *this;
}

Options& Options::other(char letter, const char* name, const char* what,
                        std::function<std::string(const std::string&)> take, const char* help) {
    const auto checked = [name, take = std::move(take)](const CLI::results_t& given) {
        const std::string wrong = take(given.back());
        if (wrong.empty()) return true;
        throw CLI::ValidationError(fmt::format("--{} {}", name, given.back()), wrong);
    };
    app_->add_option(names(letter, name), checked, help)
        ->type_name(what)
        ->take_last()
        ->group(heading_);
    return *this;
}

Options& Options::text(char letter, const char* name, const char* what, std::string& value,
                       const char* help) {
    const auto take = [&value](const std::string& given) {
        value = given;
        return std::string();
    };
    return other(letter, name, what, take, help);
}

Options& Options::flag_text(const char* name, const char* what, const char* plain,
                            std::string& value, const char* help) {
    app_->add_flag(fmt::format("--{}{{{}}}", name, plain), value, help)
        ->type_name(fmt::format("[={}]", what))
        ->take_last()
        ->group(heading_);
    return *this;
}

Options& Options::number(char letter, const char* name, const char* what, std::uint64_t& value,
                         std::uint64_t low, std::uint64_t high, const char* help) {
    const auto take = [&value, low, high](const std::string& given) {
        const auto n = parse_number(given, low, high);
        value = n.value_or(value);
        return n ? "" : fmt::format("a whole number from {} to {} is wanted", low, high);
    };
    return other(letter, name, what, take, help);
}

Options& Options::real(char letter, const char* name, const char* what, double& value, double low,
                       double high, const char* help) {
    const auto take = [&value, low, high](const std::string& given) {
        char* end = nullptr;
        const double n = std::strtod(given.c_str(), &end);
        const bool good = !given.empty() && *end == '\0' && n >= low && n <= high;
        if (good) value = n;
        return good ? "" : fmt::format("a number from {:g} to {:g} is wanted", low, high);
    };
    return other(letter, name, what, take, help);
}

Options& Options::heading(const char* words) {
    heading_ = words;
    return *this;
}

Options& Options::stop_at_argument() {
    app_->prefix_command();
    stop_at_argument_ = true;
    return *this;
}

Options& Options::epilogue(const char* words) {
    app_->footer(words);
    return *this;
}

int Options::wrong_text(std::string_view text) const {
    print_error(command_.c_str(), "{}\nusage: xsock {} {}\nTry 'xsock {} --help'.", text, command_,
                synopsis_, command_);
    return kUsage;
}

// CLI11 takes the next word for the value of `--name=`, and `--flag=true` for `--flag`.
std::optional<int> Options::check_values(int argc, char** argv) const {
    const auto wants_value = [this](const std::string& name) {
        const CLI::Option* const option = app_->get_option_no_throw(name);
        return option != nullptr && option->get_items_expected_max() > 0;
    };
    for (int i = 1; i < argc; ++i) {
        const std::string_view word = argv[i];
        const bool is_option = word.size() > 1 && word[0] == '-';
        if (word == "--" || (!is_option && stop_at_argument_)) break;
        if (!is_option) continue;
        if (word[1] == '-') {
            const std::size_t equals = word.find('=');
            const std::string name(word.substr(0, equals));
            if (app_->get_option_no_throw(name) == nullptr) continue;
            const bool wanted = wants_value(name);
            const bool may_have = wanted || !app_->get_option(name)->get_type_name().empty();
            if (equals == word.npos) {
                i += wanted ? 1 : 0;
            } else if (!may_have) {
                return wrong("{} takes no value", name);
            } else if (equals + 1 == word.size()) {
                const std::string what = app_->get_option(name)->get_type_name();
                return wrong("{} wants a value ({})", name,
                             wanted ? what : what.substr(2, what.size() - 3));
            }
            continue;
        }
        for (std::size_t at = 1; at < word.size(); ++at) {
            if (!wants_value({'-', word[at]})) continue;
            i += at + 1 == word.size() ? 1 : 0;
            break;
        }
    }
    return {};
}

std::optional<int> Options::parse(int argc, char** argv) {
    if (const auto status = check_values(argc, argv)) return status;
    try {
        app_->parse(argc, argv);
    } catch (const CLI::CallForHelp&) {
        // CLI11 leaves two empty lines between groups, and one behind the last without a footer.
        const std::string help = CLI::detail::find_and_replace(app_->help(), "\n\n\n", "\n\n");
        print_now("{}\n", trimmed(help));
        return kOk;
    } catch (const CLI::ArgumentMismatch& mismatch) {
        // "--pid: 1 required PID missing", or "json was given a disallowed flag override".
        const std::string_view said = mismatch.what();
        const std::string name(said.substr(0, said.find_first_of(": ")));
        if (name[0] != '-') return wrong("--{} takes no value", name);
        return wrong("{} wants a value ({})", name, app_->get_option(name)->get_type_name());
    } catch (const CLI::ParseError& error) {
        return wrong("{}", error.what());
    }
    bool options_over = false;
    for (std::string& word : app_->remaining()) {
        if (!options_over && word == "--") {
            options_over = true;
            continue;
        }
        if (!options_over && word.size() > 1 && word[0] == '-') {
            return wrong("there is no option {}", word.substr(0, word.find('=')));
        }
        options_over = options_over || stop_at_argument_;
        arguments_.push_back(std::move(word));
    }
    return {};
}

std::optional<int> Options::at_most(std::size_t arguments) const {
    if (arguments_.size() <= arguments) return {};
    return wrong("'{}' is too much", arguments_[arguments]);
}

std::optional<int> Options::take_host(std::string& host, std::string& port) const {
    if (const auto status = at_most(2)) return status;
    if (arguments_.empty()) return wrong("which host?");
    if (!parse_host(arguments_[0], host, port)) return wrong("'{}' is no host", arguments_[0]);
    if (arguments_.size() == 2) port = arguments_[1];
    return {};
}

std::optional<int> Options::take_address(std::string& host, std::string& port) const {
    if (const auto status = at_most(1)) return status;
    if (arguments_.empty()) return {};
    const std::string& word = arguments_[0];
    if (word.find_first_not_of("0123456789") == word.npos) {
        port = word;
    } else if (!parse_host(word, host, port)) {
        return wrong("'{}' is no address", word);
    }
    return {};
}

std::vector<std::uint64_t> parse_sizes(std::string_view text, std::uint64_t high) {
    std::vector<std::uint64_t> sizes;
    for (const std::string_view part : split(text, ',')) {
        const auto size = parse_size(part, high);
        if (!size) return {};
        sizes.push_back(*size);
    }
    return sizes;
}

bool parse_host(std::string_view text, std::string& host, std::string& port) {
    std::string_view name = text;
    std::string_view number;
    bool has_number = false;
    if (!text.empty() && text[0] == '[') {
        const std::size_t end = text.find(']');
        if (end == text.npos) return false;
        name = text.substr(1, end - 1);
        if (end + 1 < text.size()) {
            if (text[end + 1] != ':') return false;
            number = text.substr(end + 2);
            has_number = true;
        }
    } else if (const std::size_t colon = text.find(':');
               colon != text.npos && text.find(':', colon + 1) == text.npos) {
        name = text.substr(0, colon);
        number = text.substr(colon + 1);
        has_number = true;
    }
    if (name.empty() || (has_number && number.empty())) return false;
    host = name;
    if (has_number) port = number;
    return true;
}

}  // namespace xsock::tools
