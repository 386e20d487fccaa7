// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "tools/roce.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "tools/command.hpp"
#include "tools/paths.hpp"
#include "tools/text.hpp"
#include "verbs/files/tree.hpp"

namespace xsock::tools {
namespace {

// Above the descriptors that programs count on, as far as the usual limit allows.
constexpr int kTreeFd = 500;

bool set_tree() {
    const verbs::GidList table = roce_gids();
    if (table.empty()) {
        print_error(
            "run", "--roce: no interface that is up has an address{}",
            std::getenv("XSOCK_VERBS_INTERFACES") != nullptr ? " (XSOCK_VERBS_INTERFACES)" : "");
        return false;
    }
    std::string why;
    for (const std::string& parent : roce_tree_parents()) {
        auto made = verbs::prepare_tree(parent, table);
        if (made) {
            const verbs::Tree& tree = *made;
            setenv("XSOCK_VERBS_TREE", tree.path.c_str(), 1);
            // The program has it, and those that it starts: the tree stays as long as they do.
            const int moved = fcntl(tree.fd, F_DUPFD, kTreeFd);
            if (moved >= 0) close(tree.fd);
            return true;
        }
        why = fmt::format("{}: {}", parent, std::strerror(made.error().code));
    }
    print_error("run", "no folder for the device's files ({}); going on without them", why);
    unsetenv("XSOCK_VERBS_TREE");
    return true;
}

}  // namespace

const char* const kRoceTruth =
    "It only looks like RoCE. The wire is TCP: no RoCE card can be the other end, and its timing "
    "is not\nRoCE's. Through rdma_cm, with the standard's operations, it reaches iWARP cards, the "
    "kernel's siw and\nxsock's iWARP device; what goes by GID reaches xsocks only.";

verbs::GidList roce_gids() {
    const char* const value = std::getenv("XSOCK_VERBS_INTERFACES");
    return verbs::local_gids(value != nullptr ? verbs::parse_interfaces(value)
                                              : std::vector<std::string>());
}

std::vector<std::string> roce_tree_parents() {
    std::vector<std::string> folders;
    const char* const wanted[] = {"/dev/shm", std::getenv("XDG_RUNTIME_DIR"), std::getenv("TMPDIR"),
                                  "/tmp"};
    for (const char* const folder : wanted) {
        // (What names the tree is a list with colons.)
        if (folder == nullptr || *folder != '/' || std::strchr(folder, ':') != nullptr) continue;
        folders.emplace_back(folder);
    }
    return folders;
}

std::string roce_preload() { return part_path("libxsock-rdma-files.so"); }

bool set_roce() {
    setenv("XSOCK_VERBS", "roce", 1);
    if (!set_tree()) return false;
    const std::string path = roce_preload();
    if (path.empty()) return true;
    if (const std::string why = preload_refusal(path); !why.empty()) {
        print_error("run", "{}", why);
        return false;
    }
    setenv("LD_PRELOAD", in_front_of("LD_PRELOAD", path).c_str(), 1);
    return true;
}

int write_roce_tree(const std::string& path) {
    const verbs::GidList table = roce_gids();
    if (table.empty()) {
        print_error("info", "no interface that is up has an address");
        return kFailed;
    }
    if (mkdir(path.c_str(), 0755) != 0 && errno != EEXIST) {
        print_error("info", "{}: {}", path, std::strerror(errno));
        return kFailed;
    }
    if (const auto written = verbs::write_tree(path, table); !written) {
        print_error("info", "{}: {}: {}", path, written.error().what,
                    std::strerror(written.error().code));
        return kFailed;
    }
    return kOk;
}

}  // namespace xsock::tools
