// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstdio>
#include <initializer_list>
#include <string>

#include "tests/unit/folder.hpp"
#include "tools/doctor/checks.hpp"
#include "tools/kernel_module.hpp"

namespace xsock::tools {
namespace {

TEST(GuessProtocol, names_what_it_knows) {
    EXPECT_EQ(guess_protocol("HTTP/1.1 400 Bad Request\r\n"), "HTTP");
    EXPECT_EQ(guess_protocol("SSH-2.0-OpenSSH_9.2\r\n"), "SSH");
    EXPECT_EQ(guess_protocol(std::string_view("\x15\x03\x03\x00\x02", 5)), "TLS");
    EXPECT_EQ(guess_protocol(std::string_view("\x4a\x00\x00\x00\x0a"
                                              "8.0",
                                              8)),
              "MySQL");
    EXPECT_EQ(guess_protocol(""), "");
    EXPECT_EQ(guess_protocol("MPA ID Rep"), "");
}

TEST(Findings, only_a_failure_is_one) {
    Findings findings;
    findings.add(Verdict::warning, "a", "b");
    EXPECT_FALSE(findings.failed());
    findings.add(Verdict::failure, "a", "b");
    EXPECT_TRUE(findings.failed());
}

// ---- the kernel module ----

/// A machine as check_kernel_module() sees it. Its device cannot be made here: /dev/null has the
/// name of one that is another's.
class Machine {
  public:
    Machine() {
        places_ = {.modules = folder_.path() + "/modules",
                   .sys = folder_.path() + "/sys",
                   .device = folder_.path() + "/ddp"};
    }
    void put(const std::string& name, const char* text = "") {
        std::string path = folder_.path();
        for (std::size_t at = 0, next = 0; next != name.npos; at = next + 1) {
            next = name.find('/', at);
            path += "/" + name.substr(at, next - at);
            if (next != name.npos) mkdir(path.c_str(), 0700);
        }
        std::FILE* const file = std::fopen(path.c_str(), "w");
        ASSERT_NE(file, nullptr) << path;
        std::fputs(text, file);
        std::fclose(file);
    }
    void set_device(const char* path) { places_.device = path; }
    [[nodiscard]] Finding look(const char* mode) const {
        Findings findings;
        check_kernel_module(findings, mode, places_);
        EXPECT_EQ(findings.list().size(), 1u);
        return findings.list().front();
    }

  private:
    test::Folder folder_;
    KernelModulePlaces places_;
};

TEST(KernelModule, that_is_not_there_is_well_where_no_setting_names_it) {
    const Machine machine;
    EXPECT_EQ(machine.look("").verdict, Verdict::ok);
    EXPECT_EQ(machine.look("off").verdict, Verdict::ok);
    EXPECT_EQ(machine.look("auto").verdict, Verdict::note);
    EXPECT_EQ(machine.look("require").verdict, Verdict::failure);
}

TEST(KernelModule, each_obstacle_has_its_remedy) {
    Machine machine;
    EXPECT_THAT(machine.look("auto").text, testing::HasSubstr("not built"));
    EXPECT_THAT(machine.look("auto").mend, testing::HasSubstr("dkms"));
    machine.put("modules/updates/dkms/ddp_kernel.ko.xz");
    EXPECT_THAT(machine.look("auto").text, testing::HasSubstr("dkms/ddp_kernel.ko.xz"));
    EXPECT_THAT(machine.look("auto").mend, testing::HasSubstr("modprobe ddp_kernel"));
    machine.put("sys/kernel/security/lockdown", "none [integrity] confidentiality\n");
    EXPECT_THAT(machine.look("auto").mend, testing::HasSubstr("mokutil"));
    machine.put("sys/kernel/security/lockdown", "[none] integrity confidentiality\n");
    machine.put("sys/module/module/parameters/sig_enforce", "Y\n");
    EXPECT_THAT(machine.look("auto").mend, testing::HasSubstr("mokutil"));
    machine.put("sys/module/ddp_kernel/version");
    EXPECT_THAT(machine.look("auto").text, testing::HasSubstr("it is loaded, but"));
    EXPECT_THAT(machine.look("auto").mend, testing::HasSubstr("--device"));
    machine.set_device("/dev/null");
    EXPECT_THAT(machine.look("auto").text, testing::HasSubstr("no device of the module"));
    EXPECT_THAT(machine.look("auto").mend, testing::HasSubstr("remove what has that name"));
    EXPECT_EQ(machine.look("").verdict, Verdict::note) << "it would be used";
}

TEST(KernelModule, names_its_features) {
    EXPECT_EQ(feature_names(0), "");
    EXPECT_EQ(feature_names(DDP_FEATURE_CRC | DDP_FEATURE_AHEAD), "crc ahead");
    EXPECT_EQ(feature_names(DDP_FEATURE_READS | (ddp_u64{1} << 40)), "reads 0x10000000000");
}

}  // namespace
}  // namespace xsock::tools
