// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// filecopy: copies files and directory trees by Send, or by one-sided Write into the receiver's
// mapped files, or by one-sided Read from the sender's. See peer.hpp for what goes over the wire.
#include <cstdio>
#include <filesystem>
#include <vector>

#include "peer.hpp"

namespace fs = std::filesystem;

constexpr char kUsage[] =
    "usage: filecopy server PORT DIRECTORY   receives into DIRECTORY (PORT 0: any free port)\n"
    "       filecopy client MODE [--quiet] HOST PORT PATH...\n"
    "MODE: --send   the data goes by Send\n"
    "      --write  by one-sided Write into the receiver's mapped files\n"
    "      --read   by one-sided Read from the sender's mapped files\n"
    "Directories are copied with what is below them; links and special files are left out.\n"
    "Exit status: 0 all copied and verified, 1 something failed, 2 wrong usage.\n";

/// Regular files at and below `path`, by the name they get at the receiver.
static void find(const fs::path& path, Files& files) {
    const fs::path top = fs::canonical(path);
    if (fs::is_regular_file(top)) files[top.filename()] = top;
    if (!fs::is_directory(top)) return;
    const auto options = fs::directory_options::skip_permission_denied;
    for (const auto& entry : fs::recursive_directory_iterator(top, options))
        if (entry.is_regular_file() && !entry.is_symlink())
            files[entry.path().lexically_relative(top.parent_path())] = entry.path();
}

int main(int argc, char** argv) try {
    const std::vector<std::string> arguments(argv + 1, argv + argc);
    const auto is = [&](std::size_t i, const char* word) {
        return i < arguments.size() && arguments[i] == word;
    };
    if (is(0, "server") && argc == 4) return serve_files(argv[2], argv[3]), 1;
    const bool mode = is(1, "--send") || is(1, "--write") || is(1, "--read");
    const int at = is(2, "--quiet") ? 4 : 3;
    if (is(0, "client") && mode && argc > at + 2) {
        Files files;
        for (int i = at + 2; i < argc; ++i) find(argv[i], files);
        return send_files(argv[2][2], argv[at], argv[at + 1], files, at == 4) ? 0 : 1;
    }
    std::fputs(kUsage, is(0, "--help") ? stdout : stderr);
    return is(0, "--help") ? 0 : 2;
} catch (const std::exception& error) {
    std::fprintf(stderr, "filecopy: %s\n", error.what());
    return 1;
}
