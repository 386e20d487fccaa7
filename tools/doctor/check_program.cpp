// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// doctor's check of a program for the overlay, by what lies on disk: what cannot be preloaded into,
// and what makes its system calls without libc.
#include <unistd.h>

#include <cstring>
#include <sstream>
#include <string>
#include <vector>

#include "tools/doctor/checks.hpp"
#include "tools/executable.hpp"
#include "tools/text.hpp"

namespace xsock::tools {
namespace {

constexpr int kMaxFiles = 6;  // scripts run by scripts, and by env
constexpr const char* kSubject = "program";

/// What `env` runs by a script's first line, "/usr/bin/env [-S] [NAME=VALUE] PROGRAM ...".
struct BehindEnv {
    std::string program;   ///< "" when the line is not for env, or has options not known here
    bool cleared = false;  ///< without the environment, in which the overlay is named
};
BehindEnv behind_env(const std::string& shebang) {
    BehindEnv behind;
    std::istringstream words(shebang);
    std::string word;
    words >> word;
    if (word.substr(word.rfind('/') + 1) != "env") return {};
    while (words >> word) {
        if (word == "-i" || word == "-" || word == "--ignore-environment" || word == "-Si" ||
            word == "-iS" || word.compare(0, 11, "LD_PRELOAD=") == 0) {
            behind.cleared = true;
        } else if (word[0] == '-' && word != "-S") {
            return {};
        } else if (word.find('=') == word.npos && word != "-S") {
            behind.program = word;
            return behind;
        }
    }
    return {};
}

struct Marker {
    const char* text;
    const char* name;
};
/// What a build leaves in a program, be it in the texts of its errors: where it lay.
constexpr Marker kMarkers[] = {
    {"/backend/linux_raw/", "the crate rustix, which can make"},
    {"/io-uring-0.", "the crate io-uring, which makes"},
};

/// A sentence that says by what a program may make its system calls without libc; "" if nothing of
/// that kind is known in it.
std::string own_calls(const std::string& path, const ElfInfo& elf) {
    for (const std::string& library : elf.needed) {
        if (library.compare(0, 8, "liburing") == 0) {
            return fmt::format(
                "{} is linked against {}: sockets that it uses by io_uring are not "
                "seen by the overlay",
                path, printable(library));
        }
    }
    std::vector<std::string> texts;
    for (const Marker& marker : kMarkers) texts.emplace_back(marker.text);
    const std::string found = find_in_file(path, texts);
    for (const Marker& marker : kMarkers) {
        if (found != marker.text) continue;
        return fmt::format(
            "{} has {} system calls without libc: sockets that it uses so are not "
            "seen by the overlay",
            path, marker.name);
    }
    return {};
}

void check_elf_file(Findings& findings, const std::string& path, const ElfInfo& elf) {
    if (elf.go) {
        findings.failure(kSubject,
                         fmt::format("{} has the Go runtime in it, which makes its system calls "
                                     "without libc: the overlay sees none of its sockets",
                                     path),
                         "it runs, as plain TCP; its peers' policy must not say sdp for it");
        return;
    }
    findings.ok(kSubject,
                fmt::format("{} is linked dynamically: the overlay sees its calls of libc", path));
    if (const std::string why = own_calls(path, elf); !why.empty()) {
        findings.note("own system calls", why,
                      "if 'xsock run --summary' counts fewer sockets than it uses, have it use "
                      "epoll, or say 'use tcp' for it in the policy");
        return;
    }
    findings.note("own system calls",
                  "cannot be seen beforehand: a program may make system calls without libc, or use "
                  "io_uring, and such sockets stay plain",
                  "'xsock run --summary' counts the sockets that were seen");
}

/// The next file that exec starts for this one; "" when it is the last.
std::string check_script(Findings& findings, const std::string& path, const ProgramFile& file) {
    std::string next = interpreter_of(file);
    if (const BehindEnv behind = behind_env(file.shebang); !behind.program.empty()) {
        const Executable found = find_executable(behind.program);
        if (found.path.empty()) {
            findings.failure(kSubject, fmt::format("{} wants {}: {}", path, behind.program,
                                                   std::strerror(found.error)));
            return {};
        }
        if (behind.cleared) {
            findings.failure(kSubject,
                             fmt::format("{} starts {} without LD_PRELOAD, by which the overlay is "
                                         "loaded",
                                         path, found.path),
                             "run the program itself, or a script that keeps its environment");
            return {};
        }
        next = found.path;
    }
    findings.note(
        kSubject,
        fmt::format("{} is a script of {}: what that starts besides is not checked", path, next));
    return next;
}

std::string mend_of(const ProgramFile& file) {
    if (!file.elf) return {};
    if (file.elf->form == ElfInfo::Form::other_machine)
        return "run it with an xsock of its machine";
    if (file.elf->form != ElfInfo::Form::good) return {};
    if (file.elf->interpreter.empty()) return "a dynamically linked build of it can be carried";
    if (file.elf->interpreter.find("musl") != std::string::npos) {
        return "a build of it for glibc can be carried";
    }
    if (access(file.elf->interpreter.c_str(), F_OK) != 0) return "install its C library";
    return "a copy of it without that bit, or those capabilities, can be carried";
}

}  // namespace

void check_program_file(Findings& findings, const std::string& name) {
    const Executable program = find_executable(name);
    if (program.path.empty()) {
        findings.failure(kSubject, fmt::format("{}: {}", name, std::strerror(program.error)));
        return;
    }
    std::string path = program.path;
    for (int i = 0; i < kMaxFiles; ++i) {
        const ProgramFile file = read_program_file(path);
        if (!file.shebang.empty()) {
            path = check_script(findings, path, file);
            if (path.empty()) return;
            continue;
        }
        if (const std::string why = why_not_preloadable(path); !why.empty()) {
            findings.failure(kSubject, why, mend_of(file));
            // A static Go program has two reasons, and linking it otherwise mends one.
            if (file.elf && file.elf->go) check_elf_file(findings, path, *file.elf);
            return;
        }
        if (!file.readable) {
            findings.note(kSubject,
                          fmt::format("{} cannot be read: what it is, is not known", path));
            return;
        }
        if (file.elf) {
            check_elf_file(findings, path, *file.elf);
            return;
        }
        findings.failure(kSubject,
                         fmt::format("{} is neither an ELF program nor a script with #!", path),
                         "name the program that runs it");
        return;
    }
    findings.failure(kSubject, fmt::format("{} goes from script to script without an end", name));
}

}  // namespace xsock::tools
