// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// xsock info: what this xsock is, what it can on this machine, and what it was told.
#include <sys/resource.h>
#include <sys/utsname.h>
#include <unistd.h>
#include <xsock/xsock.h>

#include <cstdio>
#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

#include "base/crc32c.hpp"
#include "tools/command.hpp"
#include "tools/json.hpp"
#include "tools/options.hpp"
#include "tools/paths.hpp"
#include "tools/settings.hpp"
#include "tools/text.hpp"
#include "tools/verbs_info.hpp"

namespace xsock::tools {
namespace {

using Rows = std::vector<std::pair<std::string, std::string>>;

struct Section {
    const char* key;  // of JSON
    const char* title;
    Rows rows;
};

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

Section version() {
    std::string build = *XSOCK_BUILD_TYPE != '\0' ? XSOCK_BUILD_TYPE : "unknown";
    if (*XSOCK_BUILD_SANITIZE != '\0') build += ", sanitizers: " XSOCK_BUILD_SANITIZE;
    return {"version",
            "Version",
            {{"program",
              format("%d.%d.%d", XSOCK_VERSION_MAJOR, XSOCK_VERSION_MINOR, XSOCK_VERSION_PATCH)},
             {"library", xsock_version()},
             {"build", build},
             {"compiler", __VERSION__}}};
}

Section machine() {
    utsname kernel{};
    uname(&kernel);
    std::string methods;
    for (const auto& method : crc32c_detail::usable_methods()) {
        methods += methods.empty() ? "" : " ";
        methods += method.name;
    }
    return {"machine",
            "This machine",
            {{"kernel", format("%s %s %s", kernel.sysname, kernel.release, kernel.machine)},
             {"processors", std::to_string(sysconf(_SC_NPROCESSORS_ONLN))},
             {"crc32c", crc32c_method()},
             {"crc32c_usable", methods},
             {"tcp_congestion_control",
              std::string(trimmed(file_text("/proc/sys/net/ipv4/tcp_congestion_control")))},
             {"descriptors", limit_text(RLIMIT_NOFILE)},
             {"locked_memory", limit_text(RLIMIT_MEMLOCK)}}};
}

Section limits() {
    return {"limits",
            "Limits",
            {{"pieces_in_a_list", std::to_string(XSOCK_MAX_SGE)},
             {"inline_octets", std::to_string(XSOCK_MAX_INLINE)},
             {"message_octets", "4294967295"},
             {"queue_depth", std::to_string(1u << 20)},
             {"reads_at_once", "16382"},
             {"private_data_octets", "508"}}};
}

Section paths() {
    return {"paths",
            "Paths",
            {{"program", program_path()},
             {"library", library_path()},
             {"engine",
              *XSOCK_BUILD_SANITIZE != '\0' ? "part of the library" : found("libxsock-engine.so")},
             {"overlay", found("libxsock-preload.so")},
             {"verbs", found("verbs/libibverbs.so.1")}}};
}

struct InForce {
    const Setting* setting;
    std::string value;
    std::string source;
    std::string complaint;
};

std::vector<InForce> environment() {
    std::vector<InForce> rows;
    for (const Setting& setting : settings()) {
        const char* value = std::getenv(setting.variable);
        InForce row{&setting, setting.default_text, "built in", {}};
        if (value != nullptr && *value != '\0') {
            row.complaint = setting.check(value);
            if (row.complaint.empty()) {
                row.value = value;
                row.source = "environment";
            } else {
                row.complaint =
                    format("environment says %s: %s; ignored", value, row.complaint.c_str());
            }
        }
        rows.push_back(std::move(row));
    }
    return rows;
}

void print_json(const std::vector<Section>& sections, const std::vector<InForce>& rows) {
    Json json;
    json.object();
    for (const Section& section : sections) {
        json.key(section.key).object();
        for (const auto& [name, value] : section.rows) json(name, value);
        json.end();
    }
    json.key("settings").array();
    for (const InForce& row : rows) {
        json.object();
        json("variable", row.setting->variable)("value", row.value)("source", row.source);
        json("default", row.setting->default_text);
        if (!row.complaint.empty()) json("complaint", row.complaint);
        json.end();
    }
    json.end().end();
    json.print();
}

void print_text(const std::vector<Section>& sections, const std::vector<InForce>& rows) {
    for (const Section& section : sections) {
        std::printf("%s\n", section.title);
        for (const auto& [name, value] : section.rows) {
            std::string words = name;
            for (char& c : words) c = c == '_' ? ' ' : c;
            std::printf("  %-24s%s\n", words.c_str(), printable(value).c_str());
        }
        std::printf("\n");
    }
    std::printf("Settings (see xsock(7))\n");
    for (const InForce& row : rows) {
        std::printf("  %-24s%-26s%s%s%s\n", row.setting->variable, printable(row.value).c_str(),
                    row.source.c_str(), row.complaint.empty() ? "" : "; ",
                    printable(row.complaint).c_str());
    }
}

}  // namespace

int info_command(int argc, char** argv) {
    bool json = false, verbs = false;
    Options options(
        "info", "[options]",
        "Says what this xsock is, what it can on this machine, where its parts lie, and "
        "what the\nenvironment tells it.");
    options.flag('j', "json", json, "as JSON");
    options.flag('v', "verbs", verbs, "what a program under 'xsock run --verbs' would see");
    if (const auto status = options.parse(argc, argv)) return *status;
    if (!options.arguments().empty()) {
        return options.wrong("'%s' is too much", options.arguments()[0]);
    }
    if (verbs) return verbs_info(json);
    const std::vector<Section> sections{version(), machine(), limits(), paths()};
    const std::vector<InForce> rows = environment();
    if (json) {
        print_json(sections, rows);
    } else {
        print_text(sections, rows);
    }
    return kOk;
}

}  // namespace xsock::tools
