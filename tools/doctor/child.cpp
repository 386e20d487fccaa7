// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "tools/doctor/child.hpp"

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>

#include "tools/executable.hpp"

namespace xsock::tools {

ChildEnd run_child(const std::vector<std::string>& arguments,
                   const std::vector<std::pair<const char*, std::string>>& environment) {
    constexpr std::size_t kMaxSaid = 1024 * 1024;
    ChildEnd end;
    int pipes[2];
    if (pipe2(pipes, O_CLOEXEC) != 0) return end;
    const std::vector<char*> argv = exec_arguments(arguments);
    const pid_t child = fork();
    if (child == 0) {
        dup2(pipes[1], STDOUT_FILENO);
        dup2(pipes[1], STDERR_FILENO);
        for (const auto& [name, value] : environment) setenv(name, value.c_str(), 1);
        execv(argv[0], argv.data());
        _exit(127);
    }
    close(pipes[1]);
    char piece[4096];
    for (ssize_t n = 0;
         (n = read(pipes[0], piece, sizeof piece)) > 0 || (n < 0 && errno == EINTR);) {
        if (n > 0 && end.said.size() < kMaxSaid)
            end.said.append(piece, static_cast<std::size_t>(n));
    }
    close(pipes[0]);
    while (child > 0 && waitpid(child, &end.status, 0) < 0 && errno == EINTR) continue;
    return end;
}

}  // namespace xsock::tools
