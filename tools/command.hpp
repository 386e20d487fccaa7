// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The sub-commands of the program `xsock`. Each is one function that gets its own name as argv[0],
// parses its options with Options and answers with an exit status. A new one: declare it here and
// give it a row in main.cpp.
#pragma once

namespace xsock::tools {

/// Exit statuses of every command; `run` has more, as env(1) does.
inline constexpr int kOk = 0;
inline constexpr int kFailed = 1;  ///< what was asked for did not work, or a check failed
inline constexpr int kUsage = 2;   ///< the command line makes no sense
// Of `run`, as env(1), nice(1) and others have them.
inline constexpr int kRunFailed = 125;  ///< xsock itself, not the program
inline constexpr int kCannotExec = 126;
inline constexpr int kNotFound = 127;

struct Command {
    const char* name;
    const char* summary;  ///< half a line for the list
    int (*run)(int argc, char** argv);
};

int run_command(int argc, char** argv);
int info_command(int argc, char** argv);
int doctor_command(int argc, char** argv);
int stat_command(int argc, char** argv);
int perf_command(int argc, char** argv);
int decode_command(int argc, char** argv);
int ping_command(int argc, char** argv);

}  // namespace xsock::tools
