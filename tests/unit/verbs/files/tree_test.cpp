// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "verbs/files/tree.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>

#include "tests/unit/folder.hpp"

namespace xsock::verbs {
namespace {

namespace fs = std::filesystem;

GidList two_gids() {
    return {{*parse_gid("0000:0000:0000:0000:0000:ffff:0a00:0001"), "eth0"},
            {*parse_gid("2001:0db8:0000:0000:0000:0000:0000:0001"), "eth0"}};
}

std::string text_of(const std::string& path) {
    std::ifstream file(path);
    std::ostringstream text;
    text << file.rdbuf();
    return text.str();
}

mode_t mode_of(const std::string& path) {
    struct stat found {};
    EXPECT_EQ(lstat(path.c_str(), &found), 0) << path;
    return found.st_mode & 07777;
}

/// A folder whose trees can be taken away.
struct Parent : test::Folder {
    ~Parent() {
        for (const auto& entry : fs::directory_iterator(path())) writable(entry.path());
    }
    static void writable(const fs::path& at) {
        if (!fs::is_directory(fs::symlink_status(at))) return;
        fs::permissions(at, fs::perms::owner_all);
        for (const auto& entry : fs::directory_iterator(at)) writable(entry.path());
    }
    [[nodiscard]] std::size_t count() const {
        std::size_t n = 0;
        for ([[maybe_unused]] const auto& entry : fs::directory_iterator(path())) ++n;
        return n;
    }
};

TEST(Tree, has_the_files_of_the_device) {
    const Parent parent;
    ASSERT_TRUE(write_tree(parent.path(), two_gids()));
    const std::string device = parent.path() + "/sys/class/infiniband/xsock0";
    const std::map<std::string, std::string> expected = {
        {"/node_type", "1: CA\n"},
        {"/node_guid", "0258:736f:636b:0001\n"},
        {"/hca_type", "xsock: looks like RoCE, is TCP\n"},
        {"/ports/1/state", "4: ACTIVE\n"},
        {"/ports/1/phys_state", "5: LinkUp\n"},
        {"/ports/1/cap_mask", "0x04010000\n"},
        {"/ports/1/link_layer", "Ethernet\n"},
        {"/ports/1/gids/1", "2001:0db8:0000:0000:0000:0000:0000:0001\n"},
        {"/ports/1/gid_attrs/types/1", "RoCE v2\n"},
        {"/ports/1/gid_attrs/ndevs/0", "eth0\n"},
        {"/ports/1/pkeys/0", "0xffff\n"},
        {"/device/numa_node", "-1\n"},
    };
    for (const auto& [file, text] : expected) EXPECT_EQ(text_of(device + file), text) << file;
    EXPECT_TRUE(fs::is_directory(device + "/device/net/eth0"));
    EXPECT_FALSE(fs::exists(device + "/ports/1/gids/2"));
    EXPECT_EQ(text_of(parent.path() + "/sys/class/infiniband_verbs/uverbs0/ibdev"), "xsock0\n");
    struct stat node {};
    ASSERT_EQ(stat((parent.path() + "/dev/infiniband/uverbs0").c_str(), &node), 0);
    EXPECT_TRUE(S_ISCHR(node.st_mode));
}

TEST(Tree, nothing_of_it_can_be_written) {
    const Parent parent;
    const mode_t before = umask(077);
    ASSERT_TRUE(write_tree(parent.path(), two_gids()));
    umask(before);
    EXPECT_EQ(mode_of(parent.path()), 0555u);
    EXPECT_EQ(mode_of(parent.path() + "/sys/class"), 0555u);
    EXPECT_EQ(mode_of(parent.path() + kDeviceFolder + "/node_type"), 0444u);
    for (const auto& entry : fs::recursive_directory_iterator(parent.path())) {
        if (entry.is_symlink()) continue;
        EXPECT_EQ(mode_of(entry.path()) & 0222u, 0u) << entry.path();
    }
    fs::permissions(parent.path(), fs::perms::owner_all);
}

TEST(Tree, its_gids_are_read_as_they_were_written) {
    const Parent parent;
    ASSERT_TRUE(write_tree(parent.path(), two_gids()));
    auto read = read_gids(parent.path());
    ASSERT_TRUE(read);
    EXPECT_EQ(*read, two_gids());
    EXPECT_EQ(read_gids(parent.path() + "/sys").error().code, ENOENT);
}

TEST(Tree, one_that_was_spoilt_is_refused) {
    const Parent parent;
    ASSERT_TRUE(write_tree(parent.path(), two_gids()));
    Parent::writable(parent.path());
    const std::string port = parent.path() + kDeviceFolder + "/ports/1";
    fs::remove(port + "/gid_attrs/ndevs/1");
    EXPECT_EQ(read_gids(parent.path()).error().code, EINVAL);
    std::ofstream(port + "/gid_attrs/ndevs/1") << "eth0\n";
    EXPECT_TRUE(read_gids(parent.path()));
    fs::remove(port + "/gids/0");
    std::ofstream(port + "/gids/0") << "nonsense\n";
    EXPECT_EQ(read_gids(parent.path()).error().code, EINVAL);
}

TEST(PrepareTree, one_table_has_one_tree) {
    const Parent parent;
    auto first = prepare_tree(parent.path(), two_gids());
    auto second = prepare_tree(parent.path(), two_gids());
    ASSERT_TRUE(first && second);
    EXPECT_EQ(first->path, second->path);
    EXPECT_EQ(parent.count(), 1u);
    EXPECT_EQ(fcntl(first->fd, F_GETFD) & FD_CLOEXEC, 0);
    close(first->fd);
    close(second->fd);
}

TEST(PrepareTree, those_that_nobody_holds_go) {
    const Parent parent;
    auto held = prepare_tree(parent.path(), two_gids());
    ASSERT_TRUE(held);
    GidList other = two_gids();
    other.pop_back();
    auto left = prepare_tree(parent.path(), other);
    ASSERT_TRUE(left);
    close(left->fd);
    auto again = prepare_tree(parent.path(), two_gids());
    ASSERT_TRUE(again);
    EXPECT_FALSE(fs::exists(left->path));
    EXPECT_TRUE(fs::exists(held->path));
    close(held->fd);
    close(again->fd);
}

TEST(PrepareTree, what_is_not_ours_is_not_used) {
    const Parent parent, elsewhere;
    auto ours = prepare_tree(parent.path(), two_gids());
    ASSERT_TRUE(ours);
    close(ours->fd);
    const std::string name = ours->path;
    Parent::writable(name);
    fs::remove_all(name);
    fs::create_directory_symlink(elsewhere.path(), name);
    auto beside_link = prepare_tree(parent.path(), two_gids());
    ASSERT_TRUE(beside_link);
    EXPECT_NE(beside_link->path, name);
    EXPECT_TRUE(fs::is_empty(elsewhere.path()));
    close(beside_link->fd);
    fs::remove(name);
    fs::create_directory(name);  // in which anybody who has its rights may write
    std::ofstream(name + "/planted") << "";
    auto beside_folder = prepare_tree(parent.path(), two_gids());
    ASSERT_TRUE(beside_folder);
    EXPECT_NE(beside_folder->path, name);
    close(beside_folder->fd);
}

TEST(PrepareTree, without_a_place_it_says_why) {
    EXPECT_EQ(prepare_tree("/proc", two_gids()).error().code, ENOENT);
    EXPECT_EQ(prepare_tree("/no/such/folder", two_gids()).error().code, ENOENT);
}

}  // namespace
}  // namespace xsock::verbs
