// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// doctor's checks of the verbs API: whether the drop-in libraries load, whether what the host's
// rdma-core brings loads on them, and whether a program finds all that it was linked against. The
// dynamic linker is asked for the answers, as ldd -r asks it: nothing of the program runs.
#include <dlfcn.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <sstream>

#include "tools/doctor/checks.hpp"
#include "tools/doctor/child.hpp"
#include "tools/executable.hpp"
#include "tools/paths.hpp"
#include "tools/text.hpp"

namespace xsock::tools {
namespace {

constexpr const char* kLibrary = "verbs/libibverbs.so.1";
constexpr std::size_t kMaxNamed = 6;  // missing symbols that a finding names
// What rsockets are forwarded to (verbs/rsocket.c).
constexpr int kFirstKnown = 33;
constexpr int kLastKnown = 65;

/// What loading an object on the drop-in libraries comes to.
struct Loading {
    bool asked = false;                ///< the dynamic linker has answered
    std::string ibverbs;               ///< the libibverbs that is found; "" if none is wanted
    std::string rdmacm;                ///< the same of librdmacm
    std::vector<std::string> missing;  ///< libraries, versions and symbols that are not found
    std::string refusal;               ///< what it says of an object that it cannot load at all
};

/// This process's dynamic linker, which is that of the programs it can preload into; "" if unknown.
std::string dynamic_linker() {
    char path[4096];
    std::string found;
    std::FILE* const maps = std::fopen("/proc/self/maps", "re");
    if (maps == nullptr) return found;
    while (found.empty() && std::fgets(path, sizeof path, maps) != nullptr) {
        const char* const name = std::strchr(path, '/');
        if (name != nullptr && std::strstr(name, "/ld-linux") != nullptr) {
            found = std::string(trimmed(name));
        }
    }
    std::fclose(maps);
    return found;
}

/// `text` after `before` and up to one of `ends`; "" when it is not there.
std::string_view between(std::string_view text, std::string_view before, std::string_view ends) {
    const std::size_t at = text.find(before);
    if (at == text.npos) return {};
    text.remove_prefix(at + before.size());
    return text.substr(0, text.find_first_of(ends));
}

/// Reads what the dynamic linker says in its tracing mode.
Loading parse_trace(const std::string& said) {
    Loading loading;
    std::istringstream lines(said);
    const auto miss = [&](std::string what) {
        if (std::find(loading.missing.begin(), loading.missing.end(), what) ==
            loading.missing.end()) {
            loading.missing.push_back(std::move(what));
        }
    };
    for (std::string line; std::getline(lines, line);) {
        const std::string_view view = trimmed(line);
        if (view.find(" (0x") != view.npos || view.find("=>") != view.npos) loading.asked = true;
        if (loading.refusal.empty()) loading.refusal = between(view, "shared libraries: ", "");
        if (view.find("=> not found") != view.npos) {
            miss(std::string(view.substr(0, view.find(' '))));
        } else if (view.rfind("libibverbs.so.1 => ", 0) == 0) {
            loading.ibverbs = between(view, "=> ", " ");
        } else if (view.rfind("librdmacm.so.1 => ", 0) == 0) {
            loading.rdmacm = between(view, "=> ", " ");
        } else if (view.find("undefined symbol: ") != view.npos) {
            miss(std::string(between(view, "undefined symbol: ", " ,\t")));
        } else if (const auto version = between(view, "version `", "'"); !version.empty()) {
            miss("version " + std::string(version));
        }
    }
    return loading;
}

/// Lets the dynamic linker bind all of `object`, a program or a library, on the drop-in libraries.
Loading trace(const std::string& object, const std::string& folder) {
    const std::string linker = dynamic_linker();
    if (linker.empty()) return {};
    const ChildEnd end =
        run_child({linker, object}, {{"LD_TRACE_LOADED_OBJECTS", "1"},
                                     {"LD_WARN", "yes"},
                                     {"LD_BIND_NOW", "yes"},
                                     {"LD_PRELOAD", ""},
                                     {"LD_LIBRARY_PATH", in_front_of("LD_LIBRARY_PATH", folder)}});
    return parse_trace(end.said);
}

std::string some_of(const std::vector<std::string>& names) {
    const auto last =
        names.begin() + static_cast<std::ptrdiff_t>(std::min(names.size(), kMaxNamed));
    std::string text = fmt::format("{}", fmt::join(names.begin(), last, ", "));
    if (names.size() > kMaxNamed) text += fmt::format(" and {} more", names.size() - kMaxNamed);
    return text;
}

/// The folder of the host's libraries: where its C library lies.
std::string host_folder() {
    Dl_info info{};
    if (dladdr(reinterpret_cast<void*>(&std::fopen), &info) == 0 || info.dli_fname == nullptr) {
        return {};
    }
    const std::string path = info.dli_fname;
    return path.substr(0, path.rfind('/'));
}

/// The host's rdma-core by the file that librdmacm.so.1 points to (librdmacm.so.1.3.44.0); 0 if
/// there is none.
int host_version(const std::string& folder) {
    char target[256];
    const ssize_t n = readlink((folder + "/librdmacm.so.1").c_str(), target, sizeof target - 1);
    if (n <= 0) return 0;
    target[n] = '\0';
    const char* const slash = std::strrchr(target, '/');
    int abi = 0;
    int minor = 0;
    int version = 0;
    return std::sscanf(slash != nullptr ? slash + 1 : target, "librdmacm.so.%d.%d.%d", &abi, &minor,
                       &version) == 3
               ? version
               : 0;
}

void check_host(Findings& findings, const std::string& folder) {
    const std::string host = host_folder();
    const int version = host_version(host);
    if (version == 0) {
        findings.note("rdma-core",
                      "none on this machine: its programs have to be brought along, and rsockets "
                      "are not to be had");
        return;
    }
    if (version < kFirstKnown || version > kLastKnown) {
        findings.warning(
            "rdma-core",
            fmt::format("version {} is none that xsock knows ({} to {}): rsockets are off", version,
                        kFirstKnown, kLastKnown),
            "other verbs programs are not concerned; a newer xsock may know it");
    } else {
        findings.ok("rdma-core", fmt::format("version {}, known", version));
    }
    // Libraries of rdma-core's that programs bring along and that want its private symbols.
    for (const char* name : {"libmlx5.so.1", "libefa.so.1", "libmlx4.so.1"}) {
        const std::string library = host + "/" + name;
        if (access(library.c_str(), R_OK) != 0) continue;
        const Loading loading = trace(library, folder);
        if (!loading.asked) continue;
        if (loading.missing.empty()) {
            findings.ok(name, "loads on the drop-in libibverbs.so.1");
        } else {
            findings.failure(name,
                             fmt::format("does not load on the drop-in libibverbs.so.1, nor do "
                                         "programs that need it: {}",
                                         some_of(loading.missing)),
                             "rebuild xsock on this machine: private symbols are those of the "
                             "rdma-core it was built beside");
        }
    }
}

std::string drop_in_folder() {
    std::string path = part_path(kLibrary);
    if (!path.empty()) path.resize(path.rfind('/'));
    return path;
}

}  // namespace

void check_verbs(Findings& findings) {
    const std::string folder = drop_in_folder();
    if (folder.empty()) {
        findings.note("verbs", "this xsock was built without the verbs API");
        return;
    }
    for (const char* name : {"libibverbs.so.1", "librdmacm.so.1"}) {
        const std::string path = folder + "/" + name;
        const Loading loading = trace(path, folder);
        if (access(path.c_str(), R_OK) != 0) {
            findings.failure("verbs", fmt::format("{} is not there", path), "reinstall xsock");
        } else if (!loading.missing.empty() || !loading.refusal.empty()) {
            const std::string why =
                loading.missing.empty() ? loading.refusal : some_of(loading.missing);
            findings.failure("verbs", fmt::format("{} does not load: {}", path, why),
                             "reinstall xsock");
        } else if (!loading.asked) {
            findings.note("verbs",
                          fmt::format("{} is there; the dynamic linker says nothing of it", path));
        } else {
            findings.ok("verbs", path);
        }
    }
    check_host(findings, folder);
}

void check_program(Findings& findings, const std::string& name) {
    const std::string folder = drop_in_folder();
    const Executable program = find_executable(name);
    const char* const subject = "program";
    if (program.path.empty()) {
        findings.failure(subject, fmt::format("{}: {}", name, std::strerror(program.error)));
        return;
    }
    if (!program.refusal.empty()) {
        findings.failure(subject, program.refusal);
        return;
    }
    if (folder.empty()) {
        findings.failure("verbs", "this xsock was built without the verbs API",
                         "build it where libibverbs-dev and librdmacm-dev are");
        return;
    }
    const Loading loading = trace(program.path, folder);
    if (!loading.asked) {
        findings.note(
            subject,
            fmt::format("{}: the dynamic linker says nothing of it (a script?)", program.path),
            "name the program that it runs");
        return;
    }
    if (loading.missing.empty()) {
        findings.ok(subject, fmt::format("{} finds all that it was linked against", program.path));
    } else {
        findings.failure(
            subject, fmt::format("{} does not find: {}", program.path, some_of(loading.missing)),
            "a library of the program's is not installed, or wants an rdma-core that this "
            "xsock was not built for");
    }
    bool wanted = false;
    for (const std::string& library : {loading.ibverbs, loading.rdmacm}) {
        if (library.empty()) continue;
        wanted = true;
        if (library.rfind(folder + "/", 0) == 0) {
            findings.ok(subject, fmt::format("takes {}", library));
        } else {
            findings.failure(
                subject,
                fmt::format("takes {} instead of xsock's: it has an RPATH of its own", library),
                "chrpath -d, or patchelf --remove-rpath, on a copy of the program");
        }
    }
    if (!wanted) {
        findings.note(
            subject,
            "is linked against neither libibverbs nor librdmacm; one that opens them later "
            "(dlopen) gets xsock's all the same");
    }
}

}  // namespace xsock::tools
