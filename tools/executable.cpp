// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "tools/executable.hpp"

#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <string_view>

#include "tools/text.hpp"

namespace xsock::tools {
namespace {

constexpr int kMaxInterpreters = 4;  // scripts run by scripts

std::string check_elf(const ElfInfo& elf, const std::string& path) {
    const char* name = path.c_str();
    switch (elf.form) {
        case ElfInfo::Form::good:
            break;
        case ElfInfo::Form::cut_short:
            return fmt::format("{} is cut short: no ELF header", name);
        case ElfInfo::Form::other_machine:
            return fmt::format("{} is for another machine or word size than the overlay", name);
        case ElfInfo::Form::unknown_headers:
            return fmt::format("{} has program headers of an unknown form", name);
    }
    if (elf.interpreter.empty()) {
        return fmt::format("{} is statically linked: there is no libc call to intercept", name);
    }
    if (elf.interpreter.find("ld-musl") != std::string::npos) {
        return fmt::format("{} uses another C library (musl) than the overlay", name);
    }
    if (access(elf.interpreter.c_str(), F_OK) != 0) {
        return fmt::format("{} wants the dynamic linker {}, which is not there", name,
                           printable(elf.interpreter));
    }
    return {};
}

/// exec gives no rights: by the mount, or because this process has given them up.
bool gains_nothing(const std::string& path) {
    struct statvfs mount {};
    if (prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) == 1) return true;
    return statvfs(path.c_str(), &mount) == 0 && (mount.f_flag & ST_NOSUID) != 0;
}

std::string check_rights(const std::string& path) {
    struct stat s {};
    if (stat(path.c_str(), &s) != 0 || gains_nothing(path)) return {};
    const char* name = path.c_str();
    if ((s.st_mode & S_ISUID) != 0 && s.st_uid != geteuid()) {
        return fmt::format("{} is setuid: the loader ignores preloaded libraries", name);
    }
    // (Without the right to execute, the bit means a way of locking.)
    if ((s.st_mode & S_ISGID) != 0 && (s.st_mode & S_IXGRP) != 0 && s.st_gid != getegid()) {
        return fmt::format("{} is setgid: the loader ignores preloaded libraries", name);
    }
    if (geteuid() != 0 && getxattr(name, "security.capability", nullptr, 0) > 0) {
        return fmt::format("{} has file capabilities: the loader ignores preloaded libraries",
                           name);
    }
    return {};
}

}  // namespace

std::string why_not_preloadable(const std::string& path) {
    std::string at = path;
    for (int i = 0; i < kMaxInterpreters; ++i) {
        const ProgramFile file = read_program_file(at);
        if (file.shebang.empty()) {
            // The kernel gives a script no rights, only what interprets it.
            if (std::string why = check_rights(at); !why.empty()) return why;
            if (file.elf) return check_elf(*file.elf, at);
            // Executable but not readable: only the kernel knows what it is, and it may well work.
            // Of what is no program exec says what it thinks.
            return {};
        }
        at = interpreter_of(file);
    }
    return {};
}

std::string interpreter_of(const ProgramFile& script) {
    return script.shebang.substr(0, script.shebang.find_first_of(" \t"));
}

std::vector<char*> exec_arguments(const std::vector<std::string>& words) {
    std::vector<char*> arguments;
    for (const std::string& word : words) arguments.push_back(const_cast<char*>(word.c_str()));
    arguments.push_back(nullptr);
    return arguments;
}

Executable find_executable(const std::string& name) {
    Executable found;
    const auto usable = [&](const std::string& path) {
        struct stat s {};
        if (stat(path.c_str(), &s) != 0) {
            if (found.error == 0) found.error = errno;
            return false;
        }
        if (S_ISDIR(s.st_mode)) {
            found.error = EISDIR;
            return false;
        }
        if (access(path.c_str(), X_OK) != 0) {
            found.error = errno;
            return false;
        }
        return true;
    };
    if (name.find('/') != name.npos) {
        if (usable(name)) found.path = name;
    } else {
        const char* variable = std::getenv("PATH");
        std::string_view rest = variable != nullptr ? variable : "/usr/local/bin:/usr/bin:/bin";
        int hidden = 0;  // found, but not executable
        while (!name.empty()) {
            const std::size_t colon = rest.find(':');
            const std::string_view folder = rest.substr(0, colon);
            const std::string path = (folder.empty() ? "." : std::string(folder)) + "/" + name;
            found.error = 0;
            if (usable(path)) {
                found.path = path;
                break;
            }
            if (found.error == EACCES) hidden = EACCES;
            if (colon == rest.npos) break;
            rest.remove_prefix(colon + 1);
        }
        if (found.path.empty()) found.error = hidden != 0 ? hidden : ENOENT;
    }
    if (!found.path.empty()) {
        found.error = 0;
        found.refusal = why_not_preloadable(found.path);
    }
    return found;
}

}  // namespace xsock::tools
