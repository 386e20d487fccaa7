// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// doctor's check of a program for the overlay, by what lies on disk: what cannot be preloaded into,
// and what makes its system calls without libc.
#include <cstring>
#include <sstream>
#include <string>

#include "tools/doctor/checks.hpp"
#include "tools/executable.hpp"
#include "tools/text.hpp"

namespace xsock::tools {
namespace {

constexpr int kMaxFiles = 6;  // scripts run by scripts, and by env
constexpr const char* kSubject = "program";

/// What `env` runs by a script's first line, "/usr/bin/env [-S] [NAME=VALUE] PROGRAM ..."; "" when
/// the line is not for env, or has options whose arguments are not known here.
std::string program_behind_env(const std::string& shebang) {
    std::istringstream words(shebang);
    std::string word;
    words >> word;
    if (word.substr(word.rfind('/') + 1) != "env") return {};
    while (words >> word) {
        if (word == "-S" || word == "-i" || word == "-") continue;
        if (word[0] == '-') return {};
        if (word.find('=') == word.npos) return word;
    }
    return {};
}

void check_elf_file(Findings& findings, const std::string& path, const ElfInfo& elf) {
    if (elf.go) {
        findings.failure(kSubject,
                         fmt::format("{} has the Go runtime in it, which makes its system calls "
                                     "without libc: the overlay sees none of its sockets",
                                     path),
                         "no build option of Go changes that");
        return;
    }
    findings.ok(kSubject,
                fmt::format("{} is linked dynamically: the overlay sees its calls of libc", path));
    findings.note("own system calls",
                  "cannot be seen beforehand: a program may make system calls without libc, or use "
                  "io_uring, and such sockets stay plain",
                  "'xsock run --summary' counts the sockets that were seen");
}

/// The next file that exec starts for this one; "" when it is the last.
std::string check_script(Findings& findings, const std::string& path, const ProgramFile& file) {
    std::string next = interpreter_of(file);
    if (const std::string behind = program_behind_env(file.shebang); !behind.empty()) {
        const Executable found = find_executable(behind);
        if (found.path.empty()) {
            findings.failure(
                kSubject, fmt::format("{} wants {}: {}", path, behind, std::strerror(found.error)));
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
