// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// doctor's checks of the verbs face: whether the drop-in libraries load, whether what the host's
// rdma-core brings loads on them, and whether a program finds all that it was linked against. The
// dynamic linker is asked for the answers, as ldd -r asks it: nothing of the program runs.
#include <dlfcn.h>
#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <sstream>

#include "tools/checks.hpp"
#include "tools/executable.hpp"
#include "tools/paths.hpp"
#include "tools/text.hpp"

namespace xsock::tools {
namespace {

constexpr const char* kLibrary = "verbs/libibverbs.so.1";
constexpr std::size_t kMaxSaid = 1024 * 1024;
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

/// Runs `arguments` with `environment` added; both of its outputs, or "" when it cannot be run.
std::string said_by(const std::vector<std::string>& arguments,
                    const std::vector<std::pair<const char*, std::string>>& environment) {
    int pipes[2];
    if (pipe2(pipes, O_CLOEXEC) != 0) return {};
    std::vector<char*> argv;
    for (const std::string& argument : arguments) {
        argv.push_back(const_cast<char*>(argument.c_str()));
    }
    argv.push_back(nullptr);
    const pid_t child = fork();
    if (child == 0) {
        dup2(pipes[1], STDOUT_FILENO);
        dup2(pipes[1], STDERR_FILENO);
        for (const auto& [name, value] : environment) setenv(name, value.c_str(), 1);
        unsetenv("LD_PRELOAD");
        execv(argv[0], argv.data());
        _exit(127);
    }
    close(pipes[1]);
    std::string said;
    char piece[4096];
    for (ssize_t n = 0;
         (n = read(pipes[0], piece, sizeof piece)) > 0 || (n < 0 && errno == EINTR);) {
        if (n > 0 && said.size() < kMaxSaid) said.append(piece, static_cast<std::size_t>(n));
    }
    close(pipes[0]);
    while (child > 0 && waitpid(child, nullptr, 0) < 0 && errno == EINTR) continue;
    return child > 0 ? said : std::string();
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
        } else if (view.rfind("undefined symbol: ", 0) == 0) {
            miss(std::string(between(view, "undefined symbol: ", " ,\t")));
        } else if (const auto version = between(view, "version `", "'"); !version.empty()) {
            miss("version " + std::string(version));
        } else if (view.find("undefined symbol: ") != view.npos) {
            miss(std::string(between(view, "undefined symbol: ", " ,\t")));
        }
    }
    return loading;
}

/// Lets the dynamic linker bind all of `object`, a program or a library, on the drop-in libraries.
Loading trace(const std::string& object, const std::string& folder) {
    const std::string linker = dynamic_linker();
    if (linker.empty()) return {};
    std::string path = folder;
    if (const char* before = std::getenv("LD_LIBRARY_PATH"); before != nullptr && *before != '\0') {
        path += std::string(":") + before;
    }
    return parse_trace(said_by({linker, object}, {{"LD_TRACE_LOADED_OBJECTS", "1"},
                                                  {"LD_WARN", "yes"},
                                                  {"LD_BIND_NOW", "yes"},
                                                  {"LD_LIBRARY_PATH", path}}));
}

std::string some_of(const std::vector<std::string>& names) {
    std::string text;
    for (std::size_t i = 0; i < names.size() && i < kMaxNamed; ++i) {
        text += (i != 0 ? ", " : "") + names[i];
    }
    if (names.size() > kMaxNamed) text += format(" and %zu more", names.size() - kMaxNamed);
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
        findings.add(Verdict::note, "rdma-core",
                     "none on this machine: its programs have to be brought along, and rsockets "
                     "are not to be had");
        return;
    }
    if (version < kFirstKnown || version > kLastKnown) {
        findings.add(Verdict::warning, "rdma-core",
                     format("version %d is none that xsock knows (%d to %d): rsockets are off",
                            version, kFirstKnown, kLastKnown),
                     "other verbs programs are not concerned; a newer xsock may know it");
    } else {
        findings.add(Verdict::ok, "rdma-core", format("version %d, known", version));
    }
    // Libraries of rdma-core's that programs bring along and that want its private symbols.
    for (const char* name : {"libmlx5.so.1", "libefa.so.1", "libmlx4.so.1"}) {
        const std::string library = host + "/" + name;
        if (access(library.c_str(), R_OK) != 0) continue;
        const Loading loading = trace(library, folder);
        if (!loading.asked) continue;
        if (loading.missing.empty()) {
            findings.add(Verdict::ok, name, "loads on the drop-in libibverbs.so.1");
        } else {
            findings.add(Verdict::failure, name,
                         format("does not load on the drop-in libibverbs.so.1, nor do programs "
                                "that need it: %s",
                                some_of(loading.missing).c_str()),
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
        findings.add(Verdict::note, "verbs", "this xsock was built without the verbs face");
        return;
    }
    for (const char* name : {"libibverbs.so.1", "librdmacm.so.1"}) {
        const std::string path = folder + "/" + name;
        const Loading loading = trace(path, folder);
        if (access(path.c_str(), R_OK) != 0) {
            findings.add(Verdict::failure, "verbs", format("%s is not there", path.c_str()),
                         "reinstall xsock");
        } else if (!loading.missing.empty() || !loading.refusal.empty()) {
            const std::string why =
                loading.missing.empty() ? loading.refusal : some_of(loading.missing);
            findings.add(Verdict::failure, "verbs",
                         format("%s does not load: %s", path.c_str(), why.c_str()),
                         "reinstall xsock");
        } else if (!loading.asked) {
            findings.add(
                Verdict::note, "verbs",
                format("%s is there; the dynamic linker says nothing of it", path.c_str()));
        } else {
            findings.add(Verdict::ok, "verbs", path);
        }
    }
    check_host(findings, folder);
}

void check_program(Findings& findings, const std::string& name) {
    const std::string folder = drop_in_folder();
    const Executable program = find_executable(name);
    const char* const subject = "program";
    if (program.path.empty()) {
        findings.add(Verdict::failure, subject,
                     format("%s: %s", name.c_str(), std::strerror(program.error)));
        return;
    }
    if (!program.refusal.empty()) {
        findings.add(Verdict::failure, subject, program.refusal);
        return;
    }
    if (folder.empty()) {
        findings.add(Verdict::failure, "verbs", "this xsock was built without the verbs face",
                     "build it where libibverbs-dev and librdmacm-dev are");
        return;
    }
    const Loading loading = trace(program.path, folder);
    if (!loading.asked) {
        findings.add(
            Verdict::note, subject,
            format("%s: the dynamic linker says nothing of it (a script?)", program.path.c_str()),
            "name the program that it runs");
        return;
    }
    if (loading.missing.empty()) {
        findings.add(Verdict::ok, subject,
                     format("%s finds all that it was linked against", program.path.c_str()));
    } else {
        findings.add(
            Verdict::failure, subject,
            format("%s does not find: %s", program.path.c_str(), some_of(loading.missing).c_str()),
            "a library of the program's is not installed, or wants an rdma-core that this "
            "xsock was not built for");
    }
    bool wanted = false;
    for (const std::string& library : {loading.ibverbs, loading.rdmacm}) {
        if (library.empty()) continue;
        wanted = true;
        if (library.rfind(folder + "/", 0) == 0) {
            findings.add(Verdict::ok, subject, format("takes %s", library.c_str()));
        } else {
            findings.add(
                Verdict::failure, subject,
                format("takes %s instead of xsock's: it has an RPATH of its own", library.c_str()),
                "chrpath -d, or patchelf --remove-rpath, on a copy of the program");
        }
    }
    if (!wanted) {
        findings.add(
            Verdict::note, subject,
            "is linked against neither libibverbs nor librdmacm; one that opens them later "
            "(dlopen) gets xsock's all the same");
    }
}

}  // namespace xsock::tools
