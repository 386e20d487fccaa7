// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Where the parts of this xsock lie: everything is found from the libxsock.so that this program
// runs with, in the build tree as after installation.
#pragma once

#include <string>

namespace xsock::tools {

/// This program; "" when /proc is not mounted.
[[nodiscard]] std::string program_path();
/// The libxsock.so in use, absolute and without links.
[[nodiscard]] std::string library_path();
/// `name` beside libxsock.so or in the folder xsock/ there, as the library itself looks for its
/// engine; "" when it is in neither.
[[nodiscard]] std::string part_path(const char* name);
/// `path`, then what the environment variable, a list of paths, holds already.
[[nodiscard]] std::string in_front_of(const char* variable, const std::string& path);
/// Why LD_PRELOAD cannot name `path`; "" where it can.
[[nodiscard]] std::string preload_refusal(const std::string& path);

}  // namespace xsock::tools
