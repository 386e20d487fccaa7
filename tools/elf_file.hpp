// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// What the beginning of a program's file says of how it will run. Files are anybody's: every part
// of one may be missing or wrong.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace xsock::tools {

struct ElfInfo {
    enum class Form : unsigned char {
        good,
        cut_short,        ///< not even the ELF header is there
        other_machine,    ///< for another machine, word size or byte order than this program
        unknown_headers,  ///< its program headers have a form that is not known
    };
    Form form = Form::good;
    std::string interpreter;          ///< its dynamic linker; "" when it is statically linked
    bool go = false;                  ///< the Go runtime is in it
    std::vector<std::string> needed;  ///< libraries that it names; theirs are not followed
};

/// What a file is to exec: an ELF file, a script, or neither.
struct ProgramFile {
    bool readable = false;
    std::optional<ElfInfo> elf;
    std::string shebang;  ///< of a script: what is behind "#!", without blanks at both ends
};
[[nodiscard]] ProgramFile read_program_file(const std::string& path);

/// The first of `texts` that is somewhere in the file, of which 256 MiB are read; "" if none is.
[[nodiscard]] std::string find_in_file(const std::string& path,
                                       const std::vector<std::string>& texts);

}  // namespace xsock::tools
