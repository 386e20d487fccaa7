// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "verbs/files/tree.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string_view>
#include <utility>

#include "include/xsock/xsock.h"

namespace xsock::verbs {
namespace {

constexpr const char* kNamePrefix = "xsock-roce-";
constexpr const char* kVerbsFolder = "/sys/devices/virtual/infiniband_verbs/uverbs0";
constexpr int kTries = 16;

#define XSOCK_TEXT_OF(x) #x
#define XSOCK_TEXT(x) XSOCK_TEXT_OF(x)
constexpr const char* kVersion = XSOCK_TEXT(XSOCK_VERSION_MAJOR) "." XSOCK_TEXT(
    XSOCK_VERSION_MINOR) "." XSOCK_TEXT(XSOCK_VERSION_PATCH);

/// Nodes in the order of their paths' depth: a folder is added with its parents.
class Nodes {
  public:
    void folder(const std::string& path) {
        if (path.empty() || has_folder(path)) return;
        folder(path.substr(0, path.rfind('/')));
        nodes_.push_back({TreeNode::Kind::folder, path, {}});
    }
    void file(const std::string& path, const std::string& line) {
        folder(path.substr(0, path.rfind('/')));
        nodes_.push_back({TreeNode::Kind::file, path, line + "\n"});
    }
    void link(const std::string& path, const std::string& to) {
        folder(path.substr(0, path.rfind('/')));
        nodes_.push_back({TreeNode::Kind::link, path, to});
    }
    std::vector<TreeNode> take() { return std::move(nodes_); }

  private:
    [[nodiscard]] bool has_folder(std::string_view path) const {
        for (const TreeNode& node : nodes_) {
            if (node.kind == TreeNode::Kind::folder && node.path == path) return true;
        }
        return false;
    }
    std::vector<TreeNode> nodes_;
};

std::uint64_t hash_of(const std::vector<TreeNode>& nodes) {
    std::uint64_t hash = 0xcbf29ce484222325;  // FNV-1a
    const auto add = [&](std::string_view text) {
        for (const char c : text) {
            hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
        }
        hash *= 0x100000001b3;  // as of a zero
    };
    for (const TreeNode& node : nodes) {
        add(node.path);
        add(node.text);
    }
    return hash;
}

std::string hex_of(std::uint64_t value) {
    char text[17];
    std::snprintf(text, sizeof text, "%016llx", static_cast<unsigned long long>(value));
    return text;
}

std::string random_ending() {
    std::uint64_t value = 0;
    const int fd = open("/dev/urandom", O_RDONLY | O_CLOEXEC);
    if (fd < 0 || read(fd, &value, sizeof value) != sizeof value) {
        value = static_cast<std::uint64_t>(getpid()) << 32 ^ reinterpret_cast<std::uintptr_t>(&fd);
    }
    if (fd >= 0) close(fd);
    return "." + hex_of(value);
}

Result<void> failed(const char* what) { return Error{errno, what}; }

// Also of what may not be written any more.
void remove_tree(const std::string& path) {
    std::error_code ignored;
    std::vector<std::string> folders{path};
    chmod(path.c_str(), 0700);
    for (std::filesystem::recursive_directory_iterator i(path, ignored), end; i != end && !ignored;
         i.increment(ignored)) {
        if (i->is_directory(ignored) && !i->is_symlink(ignored)) {
            chmod(i->path().c_str(), 0700);
        }
    }
    std::filesystem::remove_all(path, ignored);
}

// A folder of ours that is what its name says, open and held; -1: there is none.
int open_held(const std::string& path) {
    for (int i = 0; i < kTries; ++i) {
        // Inherited by the program: that holds it.
        const int fd = open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW);  // NOLINT
        if (fd < 0) return -1;
        struct stat opened {
        }, named{};
        if (fstat(fd, &opened) != 0 || opened.st_uid != geteuid() ||
            (opened.st_mode & 07777) != 0555 || flock(fd, LOCK_SH | LOCK_NB) != 0) {
            close(fd);
            return -1;
        }
        // It may have been taken away before it was held.
        if (lstat(path.c_str(), &named) == 0 && named.st_ino == opened.st_ino &&
            named.st_dev == opened.st_dev) {
            return fd;
        }
        close(fd);
    }
    return -1;
}

void remove_unheld(const std::string& parent, const std::string& but) {
    DIR* const folder = opendir(parent.c_str());
    if (folder == nullptr) return;
    const std::string ours = kNamePrefix + std::to_string(geteuid()) + "-";
    std::vector<std::string> names;
    while (const dirent* entry = readdir(folder)) names.emplace_back(entry->d_name);
    closedir(folder);
    for (const std::string& name : names) {
        const std::string path = parent + "/" + name;
        if (name.compare(0, ours.size(), ours) != 0 || path == but) continue;
        const int fd = open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (fd < 0) continue;
        struct stat opened {};
        if (fstat(fd, &opened) == 0 && opened.st_uid == geteuid() &&
            flock(fd, LOCK_EX | LOCK_NB) == 0) {
            const std::string doomed = path + random_ending();
            if (rename(path.c_str(), doomed.c_str()) == 0) remove_tree(doomed);
        }
        close(fd);
    }
}

}  // namespace

std::vector<TreeNode> tree_nodes(const GidList& gids) {
    const std::string device = kDeviceFolder, verbs = kVerbsFolder, port = device + "/ports/1";
    const char* const guid = "0258:736f:636b:0001";
    Nodes nodes;
    nodes.file(device + "/node_type", "1: CA");
    nodes.file(device + "/node_guid", guid);
    nodes.file(device + "/sys_image_guid", guid);
    nodes.file(device + "/node_desc", "xsock0");
    nodes.file(device + "/fw_ver", kVersion);
    nodes.file(device + "/hw_rev", "1");
    nodes.file(device + "/hca_type", "xsock: looks like RoCE, is TCP");
    nodes.file(device + "/board_id", "xsock");
    nodes.file(device + "/device/vendor", "0x0258");
    nodes.file(device + "/device/device", "0x0001");
    nodes.file(device + "/device/numa_node", "-1");
    nodes.file(port + "/state", "4: ACTIVE");
    nodes.file(port + "/phys_state", "5: LinkUp");
    nodes.file(port + "/rate", "100 Gb/sec (4X EDR)");
    nodes.file(port + "/lid", "0x0");
    nodes.file(port + "/lid_mask_count", "0");
    nodes.file(port + "/sm_lid", "0x0");
    nodes.file(port + "/sm_sl", "0");
    nodes.file(port + "/cap_mask", "0x04010000");
    nodes.file(port + "/link_layer", "Ethernet");
    nodes.file(port + "/pkeys/0", "0xffff");
    for (std::size_t i = 0; i < gids.size(); ++i) {
        const std::string number = std::to_string(i);
        nodes.file(port + "/gids/" + number, gid_text(gids[i].gid));
        nodes.file(port + "/gid_attrs/types/" + number, "RoCE v2");
        nodes.file(port + "/gid_attrs/ndevs/" + number, gids[i].interface);
        nodes.folder(device + "/device/net/" + gids[i].interface);
    }
    nodes.file(verbs + "/ibdev", "xsock0");
    nodes.file(verbs + "/dev", "231:192");
    nodes.file(verbs + "/abi_version", "1");
    nodes.file("/sys/class/infiniband_verbs/abi_version", "6");
    nodes.link("/sys/class/infiniband_verbs/uverbs0",
               "../../devices/virtual/infiniband_verbs/uverbs0");
    nodes.link("/sys/class/infiniband/xsock0", "../../devices/virtual/infiniband/xsock0");
    // A character device that anybody may read and write; opening it is refused by the preload.
    nodes.link("/dev/infiniband/uverbs0", "/dev/null");
    nodes.link("/dev/infiniband/rdma_cm", "/dev/null");
    return nodes.take();
}

Result<void> write_tree(const std::string& folder, const GidList& gids) {
    const std::vector<TreeNode> nodes = tree_nodes(gids);
    for (const TreeNode& node : nodes) {
        const std::string path = folder + node.path;
        switch (node.kind) {
            case TreeNode::Kind::folder:
                if (mkdir(path.c_str(), 0700) != 0) return failed("cannot make a folder");
                break;
            case TreeNode::Kind::link:
                if (symlink(node.text.c_str(), path.c_str()) != 0) return failed("cannot link");
                break;
            case TreeNode::Kind::file: {
                const int fd =
                    open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0444);
                if (fd < 0) return failed("cannot make a file");
                const auto size = static_cast<ssize_t>(node.text.size());
                const ssize_t n = write(fd, node.text.data(), node.text.size());
                const int error = n < 0 ? errno : ENOSPC;
                // Whatever the umask is.
                const bool good = n == size && fchmod(fd, 0444) == 0;
                close(fd);
                if (!good) return Error{error, "cannot write a file"};
                break;
            }
        }
    }
    for (auto node = nodes.rbegin(); node != nodes.rend(); ++node) {
        if (node->kind != TreeNode::Kind::folder) continue;
        if (chmod((folder + node->path).c_str(), 0555) != 0) return failed("cannot set a mode");
    }
    if (chmod(folder.c_str(), 0555) != 0) return failed("cannot set a mode");
    return {};
}

Result<Tree> prepare_tree(const std::string& parent, const GidList& gids) {
    const std::string usual = parent + "/" + kNamePrefix + std::to_string(geteuid()) + "-" +
                              hex_of(hash_of(tree_nodes(gids)));
    remove_unheld(parent, usual);
    std::string wanted = usual;
    for (int i = 0; i < kTries; ++i) {
        if (const int fd = open_held(wanted); fd >= 0) return Tree{wanted, fd};
        const std::string made = usual + random_ending();
        if (mkdir(made.c_str(), 0700) != 0) {
            if (errno == EEXIST) continue;
            return Error{errno, "cannot make a folder"};
        }
        if (auto written = write_tree(made, gids); !written) {
            remove_tree(made);
            return written.error();
        }
        // Held before it has the name that others look for: they leave it alone.
        const int fd = open_held(made);
        if (fd >= 0 && rename(made.c_str(), wanted.c_str()) == 0) return Tree{wanted, fd};
        if (fd >= 0) close(fd);
        remove_tree(made);
        // Made by another process meanwhile; or it is not ours, and never will be.
        if (i > 0) wanted = usual + random_ending();
    }
    return Error{EEXIST, "cannot find a name"};
}

}  // namespace xsock::verbs
