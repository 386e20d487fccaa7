// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "tools/paths.hpp"

#include <dlfcn.h>
#include <unistd.h>
#include <xsock/xsock.h>

#include <climits>
#include <cstdlib>
#include <memory>

namespace xsock::tools {
namespace {

std::string real_path(const char* path) {
    const std::unique_ptr<char, decltype(&std::free)> real(realpath(path, nullptr), &std::free);
    return real ? std::string(real.get()) : std::string();
}

}  // namespace

std::string program_path() { return real_path("/proc/self/exe"); }

std::string library_path() {
    Dl_info found{};
    if (dladdr(reinterpret_cast<void*>(&xsock_version), &found) == 0 ||
        found.dli_fname == nullptr) {
        return {};
    }
    return real_path(found.dli_fname);
}

std::string part_path(const char* name) {
    const std::string library = library_path();
    const std::string folder = library.substr(0, library.rfind('/') + 1);
    for (const char* below : {"xsock/", ""}) {
        const std::string path = folder + below + name;
        if (access(path.c_str(), R_OK) == 0) return path;
    }
    return {};
}

std::string in_front_of(const char* variable, const std::string& path) {
    const char* before = std::getenv(variable);
    return before != nullptr && *before != '\0' ? path + ":" + before : path;
}

std::string preload_refusal(const std::string& path) {
    if (path.find_first_of(": \t") == path.npos) return {};
    return path + ": LD_PRELOAD cannot name a path with blanks or colons";
}

}  // namespace xsock::tools
