// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "base/policy_file.hpp"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "tests/unit/folder.hpp"

namespace xsock {
namespace {

constexpr const char* kVariables[] = {"XSOCK_POLICY", "XSOCK_STREAM", "XDG_CONFIG_HOME", "HOME"};

class PolicyFile : public ::testing::Test {
  protected:
    void SetUp() override {
        for (const char* name : kVariables) {
            const char* const value = getenv(name);
            before_.emplace_back(value != nullptr ? std::optional<std::string>(value)
                                                  : std::nullopt);
            unsetenv(name);
        }
    }
    void TearDown() override {
        for (std::size_t i = 0; i < before_.size(); ++i) {
            if (before_[i]) {
                setenv(kVariables[i], before_[i]->c_str(), 1);
            } else {
                unsetenv(kVariables[i]);
            }
        }
    }
    std::string write(const std::string& name, std::string_view text) const {
        const std::filesystem::path path = top + "/" + name;
        std::filesystem::create_directories(path.parent_path());
        std::ofstream(path, std::ios::binary) << text;
        return path;
    }
    static std::string reason_of(const std::string& path) {
        Policy policy;
        const auto error = read_policy_file(path, policy);
        return error ? error->reason : "";
    }

    /// Root may read everything: this is done as another user then.
    template <typename Check>
    void as_user(const Check& check) const {
        const uid_t before = geteuid();
        if (before == 0) {
            chmod(top.c_str(), 0711);
            ASSERT_EQ(seteuid(65534), 0);
        }
        check();
        ASSERT_EQ(seteuid(before), 0);
    }

    const test::Folder folder;
    const std::string top = folder.path();

  private:
    std::vector<std::optional<std::string>> before_;
};

TEST_F(PolicyFile, is_read) {
    Policy policy;
    EXPECT_FALSE(read_policy_file(write("good", "use sdp client * 10.0.0.5:80\n"), policy));
    EXPECT_EQ(policy.rules.size(), 1u);
    const auto error = read_policy_file(write("bad", "\nuse\n"), policy);
    ASSERT_TRUE(error);
    EXPECT_EQ(error->line, 2u);
    EXPECT_TRUE(policy.rules.empty()) << "of the file before";
}

TEST_F(PolicyFile, is_a_regular_file_of_a_size_that_can_be_read) {
    EXPECT_EQ(reason_of(top + "/none"), "No such file or directory");
    EXPECT_EQ(reason_of(top), "Is a directory");
    EXPECT_EQ(reason_of("/dev/null"), "is no regular file");
    const std::string fifo = top + "/fifo";
    ASSERT_EQ(mkfifo(fifo.c_str(), 0600), 0);
    EXPECT_EQ(reason_of(fifo), "is no regular file") << "and nothing waits for a writer";
    const std::string huge = write("huge", "");
    std::filesystem::resize_file(huge, 1ull << 40);  // sparse: zeros
    EXPECT_EQ(reason_of(huge), "longer than 1048576 bytes");
    const std::string loop = top + "/loop";
    std::filesystem::create_symlink(loop, loop);
    EXPECT_EQ(reason_of(loop), "Too many levels of symbolic links");
    // The kernel says that it has no bytes, and it has.
    EXPECT_EQ(reason_of("/proc/self/status").find("a line begins with"), 0u);
    const std::string secret = write("secret", "");
    chmod(secret.c_str(), 0);
    as_user([&] { EXPECT_EQ(reason_of(secret), "Permission denied"); });
}

TEST_F(PolicyFile, is_the_one_that_the_environment_names) {
    const std::string named = write("named", "use tcp client * *:*");
    setenv("HOME", top.c_str(), 1);
    write(".config/xsock/policy", "use sdp client * *:*");
    setenv("XSOCK_POLICY", named.c_str(), 1);
    LoadedPolicy loaded = load_policy();
    EXPECT_EQ(loaded.path, named);
    EXPECT_FALSE(loaded.error);
    EXPECT_EQ(loaded.decide(PolicyRole::client, "p", {}).mode, PolicyMode::tcp);
    EXPECT_EQ(loaded.places.size(), 1u) << "it replaces the others";

    // Also when it does not hold: the others were not meant.
    setenv("XSOCK_POLICY", (top + "/none").c_str(), 1);
    loaded = load_policy();
    ASSERT_TRUE(loaded.error);
    EXPECT_EQ(loaded.error->reason, "No such file or directory");
    EXPECT_EQ(loaded.decide(PolicyRole::client, "p", {}).source, PolicySource::built_in);
    setenv("XSOCK_POLICY", "policy", 1);
    loaded = load_policy();
    ASSERT_TRUE(loaded.error);
    EXPECT_EQ(loaded.error->reason, "is no absolute path");
    EXPECT_EQ(loaded.path, "policy");
    setenv("XSOCK_POLICY", "", 1);
    EXPECT_EQ(load_policy().path, top + "/.config/xsock/policy") << "empty is not set";
}

TEST_F(PolicyFile, is_the_first_that_exists) {
    setenv("HOME", (top + "/home").c_str(), 1);
    setenv("XDG_CONFIG_HOME", (top + "/config").c_str(), 1);
    const std::string of_home = write("home/.config/xsock/policy", "use tcp client * *:*");
    LoadedPolicy loaded = load_policy();
    ASSERT_EQ(loaded.places.size(), 2u);
    EXPECT_EQ(loaded.places[0].path, top + "/config/xsock/policy") << "in place of ~/.config";
    EXPECT_EQ(loaded.places[0].state, "not there");
    EXPECT_EQ(loaded.places[1].path, "/etc/xsock/policy");
    EXPECT_NE(loaded.path, of_home);

    const std::string of_config = write("config/xsock/policy", "use sdp client * *:*");
    loaded = load_policy();
    EXPECT_EQ(loaded.path, of_config);
    EXPECT_EQ(loaded.places[0].state, "taken");
    EXPECT_NE(loaded.places[1].state, "taken") << "not merged";

    // One that is wrong exists: the next is not taken.
    write("config/xsock/policy", "nonsense");
    loaded = load_policy();
    EXPECT_EQ(loaded.path, of_config);
    ASSERT_TRUE(loaded.error);
    EXPECT_EQ(loaded.error->line, 1u);
    EXPECT_TRUE(loaded.policy.rules.empty());

    for (const char* no_folder : {"", "config", "./config"}) {
        setenv("XDG_CONFIG_HOME", no_folder, 1);
        EXPECT_EQ(load_policy().path, of_home) << no_folder;
    }
    setenv("HOME", "home", 1);
    EXPECT_EQ(load_policy().places.size(), 1u) << "no home";
    unsetenv("HOME");
    EXPECT_EQ(load_policy().places.size(), 1u);
}

TEST_F(PolicyFile, is_not_there_where_its_folder_is_none) {
    setenv("XDG_CONFIG_HOME", write("file", "").c_str(), 1);
    EXPECT_EQ(load_policy().places.at(0).state, "not there");
    const std::string of_config = write("locked/xsock/policy", "nonsense");
    chmod((top + "/locked").c_str(), 0);
    setenv("XDG_CONFIG_HOME", (top + "/locked").c_str(), 1);
    as_user([&] {
        const LoadedPolicy loaded = load_policy();
        EXPECT_EQ(loaded.places.at(0).state, "Permission denied");
        EXPECT_NE(loaded.path, of_config);
    });
    chmod((top + "/locked").c_str(), 0700);
}

TEST_F(PolicyFile, is_above_xsock_stream) {
    setenv("XSOCK_POLICY", write("policy", "use tcp client a *:*").c_str(), 1);
    setenv("XSOCK_STREAM", "ddp", 1);
    LoadedPolicy loaded = load_policy();
    EXPECT_EQ(loaded.stream, PolicyMode::sdp);
    EXPECT_EQ(loaded.decide(PolicyRole::client, "a", {}).mode, PolicyMode::tcp);
    EXPECT_EQ(loaded.decide(PolicyRole::client, "b", {}).mode, PolicyMode::sdp);
    setenv("XSOCK_STREAM", "yes", 1);
    loaded = load_policy();
    EXPECT_FALSE(loaded.stream);
    EXPECT_EQ(loaded.stream_error, "none of tcp, both, sdp");
    EXPECT_EQ(loaded.decide(PolicyRole::client, "b", {}).mode, PolicyMode::both);
}

}  // namespace
}  // namespace xsock
