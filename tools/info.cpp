// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// xsock info: what this xsock is, what it can on this machine, and what it was told.
#include <sys/resource.h>
#include <sys/utsname.h>
#include <unistd.h>
#include <xsock/xsock.h>

#include <cstdlib>
#include <cstring>
#include <string>
#include <utility>

#include "base/crc32c.hpp"
#include "base/policy.hpp"
#include "tools/command.hpp"
#include "tools/json.hpp"
#include "tools/kernel_module.hpp"
#include "tools/options.hpp"
#include "tools/paths.hpp"
#include "tools/policy_info.hpp"
#include "tools/roce.hpp"
#include "tools/settings.hpp"
#include "tools/text.hpp"
#include "tools/verbs_info.hpp"

namespace xsock::tools {
namespace {

std::string limit_text(int resource) {
    rlimit limit{};
    if (getrlimit(static_cast<__rlimit_resource>(resource), &limit) != 0) return "unknown";
    if (limit.rlim_cur == RLIM_INFINITY) return "unlimited";
    return std::to_string(limit.rlim_cur);
}

std::string found(const char* part) {
    const std::string path = part_path(part);
    return path.empty() ? std::string("not found") : path;
}

Json version() {
    std::string build = *XSOCK_BUILD_TYPE != '\0' ? XSOCK_BUILD_TYPE : "unknown";
    if (*XSOCK_BUILD_SANITIZE != '\0') build += ", sanitizers: " XSOCK_BUILD_SANITIZE;
    return object({{"program", fmt::format("{}.{}.{}", XSOCK_VERSION_MAJOR, XSOCK_VERSION_MINOR,
                                           XSOCK_VERSION_PATCH)},
                   {"library", xsock_version()},
                   {"build", build},
                   {"compiler", __VERSION__}});
}

Json machine() {
    utsname kernel{};
    uname(&kernel);
    std::string methods;
    for (const auto& method : crc32c_detail::usable_methods()) {
        methods += methods.empty() ? "" : " ";
        methods += method.name;
    }
    return object(
        {{"kernel", fmt::format("{} {} {}", kernel.sysname, kernel.release, kernel.machine)},
         {"processors", std::to_string(sysconf(_SC_NPROCESSORS_ONLN))},
         {"crc32c", crc32c_method()},
         {"crc32c_usable", methods},
         {"tcp_congestion_control",
          trimmed(file_text("/proc/sys/net/ipv4/tcp_congestion_control"))},
         {"descriptors", limit_text(RLIMIT_NOFILE)},
         {"locked_memory", limit_text(RLIMIT_MEMLOCK)}});
}

Json limits() {
    return object({{"max_sge", std::to_string(XSOCK_MAX_SGE)},
                   {"max_inline", std::to_string(XSOCK_MAX_INLINE)},
                   {"max_message_bytes", "4294967295"},
                   {"queue_depth", std::to_string(1u << 20)},
                   {"max_ird", "16382"},
                   {"max_private_data_bytes", "508"}});
}

Json paths() {
    const bool one_library = *XSOCK_BUILD_SANITIZE != '\0';
    return object({{"program", program_path()},
                   {"library", library_path()},
                   {"engine", one_library ? "part of the library" : found("libxsock-engine.so")},
                   {"overlay", found("libxsock-preload.so")},
                   {"verbs", found("verbs/libibverbs.so.1")}});
}

Json kernel_module() {
    const KernelModule module = probe_kernel_module();
    const bool ready = module.why_not == kernel::Reason::none;
    Json report = object({{"device", DDP_DEVICE},
                          {"state", ready ? "ready" : kernel::text_of(module.why_not)}});
    if (module.error != 0) report["error"] = std::strerror(module.error);
    if (module.hello.abi == 0) return report;
    add(report, {{"abi", std::to_string(module.hello.abi)},
                 {"features", feature_names(module.hello.features)},
                 {"max_region_bytes", std::to_string(module.hello.max_region_bytes)},
                 {"max_regions", std::to_string(module.hello.max_regions)},
                 {"max_sockets", std::to_string(module.hello.max_sockets)}});
    return report;
}

/// What holds of each setting, and where it comes from.
Json settings_in_force() {
    Json rows = Json::array();
    for (const Setting& setting : settings()) {
        Json row = object({{"variable", setting.variable},
                           {"value", setting.default_text},
                           {"source", "built in"},
                           {"default", setting.default_text}});
        const char* value = std::getenv(setting.variable);
        if (value != nullptr && *value != '\0') {
            const std::string wrong = setting.check(value);
            if (wrong.empty()) {
                row["value"] = value;
                row["source"] = "environment";
            } else {
                row["error"] = fmt::format("environment says {}: {}; ignored", value, wrong);
            }
        }
        rows.push_back(std::move(row));
    }
    return rows;
}

void print_text(const Json& report) {
    static constexpr std::pair<const char*, const char*> kSections[] = {{"version", "Version"},
                                                                        {"machine", "This machine"},
                                                                        {"limits", "Limits"},
                                                                        {"paths", "Paths"},
                                                                        {"kernel_module",
                                                                         "Kernel module"}};
    for (const auto& [key, title] : kSections) {
        print_table(title, report[key]);
        fmt::print("\n");
    }
    fmt::print("Settings (see xsock(7))\n");
    for (const Json& row : report["settings"]) {
        const std::string wrong = row.value("error", "");
        fmt::print("  {:28}{:26}{}{}{}\n", row["variable"].get<std::string>(),
                   printable(row["value"].get<std::string>()), row["source"].get<std::string>(),
                   wrong.empty() ? "" : "; ", printable(wrong));
    }
}

}  // namespace

int info_command(int argc, char** argv) {
    bool json = false, verbs = false, roce = false, policy = false;
    std::string tree;
    Options options(
        "info", "[options] [--policy PROGRAM ADDRESS:PORT]",
        "Says what this xsock is, what it can on this machine, where its parts lie, and "
        "what the\nenvironment tells it.");
    options.flag('j', "json", json, "as JSON");
    options.flag('v', "verbs", verbs, "what a program under 'xsock run --verbs' would see");
    options.flag(0, "roce", roce,
                 "what a program under 'xsock run --roce' would see, and what it\nis in truth");
    options.text(0, "tree", "FOLDER", tree,
                 "with --roce: write the device's files into FOLDER, for programs\nthat a preload "
                 "does not reach");
    options.flag(
        'p', "policy", policy,
        "which line of the byte-stream mode's policy decides for\nPROGRAM where it listens "
        "at ADDRESS:PORT, and where it connects to it");
    if (const auto status = options.parse(argc, argv)) return *status;
    if (policy) {
        if (verbs || roce) return options.wrong("--policy or --verbs, not both");
        if (const auto status = options.at_most(2)) return *status;
        if (options.arguments().size() < 2) return options.wrong("--policy PROGRAM ADDRESS:PORT");
        const std::string& where = options.arguments()[1];
        const auto endpoint = parse_endpoint(where);
        if (!endpoint) {
            return options.wrong("'{}' is no ADDRESS:PORT; an address is IPv4 or [IPv6], no name",
                                 printable(where));
        }
        return policy_info(options.arguments()[0], *endpoint, json);
    }
    if (const auto status = options.at_most(0)) return *status;
    if (!tree.empty() && !roce) return options.wrong("--tree goes with --roce");
    if (!tree.empty()) return write_roce_tree(tree);
    if (roce) setenv("XSOCK_VERBS", "roce", 1);
    if (verbs || roce) return verbs_info(json);
    const Json report = object({{"version", version()},
                                {"machine", machine()},
                                {"limits", limits()},
                                {"paths", paths()},
                                {"kernel_module", kernel_module()},
                                {"settings", settings_in_force()}});
    if (json) {
        print_json(report);
    } else {
        print_text(report);
    }
    return kOk;
}

}  // namespace xsock::tools
