// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Finds a program as execvp() would and says whether a library can be preloaded into it.
#pragma once

#include <string>
#include <vector>

#include "tools/elf_file.hpp"

namespace xsock::tools {

struct Executable {
    std::string path;     ///< "" when not found
    std::string refusal;  ///< why nothing can be preloaded, a sentence; "" if it can
    int error = 0;        ///< errno when not found or not executable
};

/// `name` with a '/' is a path; otherwise PATH is searched. Scripts are followed to their
/// interpreter.
[[nodiscard]] Executable find_executable(const std::string& name);

/// `words` as execv() wants them: valid as long as they are.
[[nodiscard]] std::vector<char*> exec_arguments(const std::vector<std::string>& words);

/// What ELF file, setuid bit or capability makes preloading into `path` impossible; "" if nothing.
[[nodiscard]] std::string why_not_preloadable(const std::string& path);

/// The path that a script's first line names.
[[nodiscard]] std::string interpreter_of(const ProgramFile& script);

}  // namespace xsock::tools
