// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "tools/executable.hpp"

#include <elf.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <string_view>

#include "tools/fd.hpp"
#include "tools/text.hpp"

namespace xsock::tools {
namespace {

constexpr int kMaxInterpreters = 4;  // scripts run by scripts
constexpr std::size_t kMaxHeaders = 256;

/// A file that is read piece by piece; every piece may be missing.
class File {
  public:
    explicit File(const std::string& path)
        : fd_(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK)) {}
    [[nodiscard]] bool open_failed() const { return !fd_.good(); }
    [[nodiscard]] bool read_at(off_t offset, void* into, std::size_t size) const {
        return pread(fd_.get(), into, size, offset) == static_cast<ssize_t>(size);
    }
    [[nodiscard]] std::string text_at(off_t offset, std::size_t size) const {
        std::string text(size, '\0');
        const ssize_t n = pread(fd_.get(), text.data(), size, offset);
        text.resize(n > 0 ? static_cast<std::size_t>(n) : 0);
        return text;
    }

  private:
    Fd fd_;
};

#if __SIZEOF_POINTER__ == 8
using ElfHeader = Elf64_Ehdr;
using ProgramHeader = Elf64_Phdr;
constexpr unsigned char kOurClass = ELFCLASS64;
#else
using ElfHeader = Elf32_Ehdr;
using ProgramHeader = Elf32_Phdr;
constexpr unsigned char kOurClass = ELFCLASS32;
#endif

/// e_machine of this program, read from itself.
unsigned our_machine() {
    ElfHeader header{};
    const File self("/proc/self/exe");
    return !self.open_failed() && self.read_at(0, &header, sizeof header) ? header.e_machine : 0;
}

std::string check_elf(const File& file, const std::string& path) {
    const char* name = path.c_str();
    ElfHeader header{};
    if (!file.read_at(0, &header, sizeof header)) {
        return fmt::format("{} is cut short: no ELF header", name);
    }
    const unsigned machine = our_machine();
    if (header.e_ident[EI_CLASS] != kOurClass || (machine != 0 && header.e_machine != machine)) {
        return fmt::format("{} is for another machine or word size than the overlay", name);
    }
    if (header.e_phentsize != sizeof(ProgramHeader) || header.e_phnum > kMaxHeaders) {
        return fmt::format("{} has program headers of an unknown form", name);
    }
    for (unsigned i = 0; i < header.e_phnum; ++i) {
        ProgramHeader part{};
        const auto at = static_cast<off_t>(header.e_phoff + i * sizeof part);
        if (!file.read_at(at, &part, sizeof part)) break;
        if (part.p_type != PT_INTERP) continue;
        const std::string loader = file.text_at(static_cast<off_t>(part.p_offset), 256);
        if (loader.find("ld-musl") != loader.npos) {
            return fmt::format("{} uses another C library (musl) than the overlay", name);
        }
        return {};
    }
    return fmt::format("{} is statically linked: there is no libc call to intercept", name);
}

std::string check_rights(const std::string& path) {
    struct stat s {};
    if (stat(path.c_str(), &s) != 0) return {};
    const char* name = path.c_str();
    if ((s.st_mode & S_ISUID) != 0 && s.st_uid != geteuid()) {
        return fmt::format("{} is setuid: the loader ignores preloaded libraries", name);
    }
    if ((s.st_mode & S_ISGID) != 0 && s.st_gid != getegid()) {
        return fmt::format("{} is setgid: the loader ignores preloaded libraries", name);
    }
    if (geteuid() != 0 && getxattr(name, "security.capability", nullptr, 0) > 0) {
        return fmt::format("{} has file capabilities: the loader ignores preloaded libraries",
                           name);
    }
    return {};
}

}  // namespace

std::string why_not_preloadable(const std::string& path) {
    std::string at = path;
    for (int i = 0; i < kMaxInterpreters; ++i) {
        if (std::string why = check_rights(at); !why.empty()) return why;
        const File file(at);
        // Executable but not readable: only the kernel knows what it is, and it may well work.
        if (file.open_failed()) return {};
        const std::string start = file.text_at(0, 256);
        if (start.compare(0, SELFMAG, ELFMAG) == 0) return check_elf(file, at);
        if (start.compare(0, 2, "#!") != 0) return {};  // exec says what it thinks of it
        std::string_view line = std::string_view(start).substr(2);
        line = trimmed(line.substr(0, line.find('\n')));
        at = std::string(line.substr(0, line.find_first_of(" \t")));
    }
    return {};
}

std::vector<char*> exec_arguments(const std::vector<std::string>& words) {
    std::vector<char*> arguments;
    for (const std::string& word : words) arguments.push_back(const_cast<char*>(word.c_str()));
    arguments.push_back(nullptr);
    return arguments;
}

Executable find_executable(const std::string& name) {
    Executable found;
    const auto usable = [&](const std::string& path) {
        struct stat s {};
        if (stat(path.c_str(), &s) != 0) {
            if (found.error == 0) found.error = errno;
            return false;
        }
        if (S_ISDIR(s.st_mode)) {
            found.error = EISDIR;
            return false;
        }
        if (access(path.c_str(), X_OK) != 0) {
            found.error = errno;
            return false;
        }
        return true;
    };
    if (name.find('/') != name.npos) {
        if (usable(name)) found.path = name;
    } else {
        const char* variable = std::getenv("PATH");
        std::string_view rest = variable != nullptr ? variable : "/usr/local/bin:/usr/bin:/bin";
        int hidden = 0;  // found, but not executable
        while (!name.empty()) {
            const std::size_t colon = rest.find(':');
            const std::string_view folder = rest.substr(0, colon);
            const std::string path = (folder.empty() ? "." : std::string(folder)) + "/" + name;
            found.error = 0;
            if (usable(path)) {
                found.path = path;
                break;
            }
            if (found.error == EACCES) hidden = EACCES;
            if (colon == rest.npos) break;
            rest.remove_prefix(colon + 1);
        }
        if (found.path.empty()) found.error = hidden != 0 ? hidden : ENOENT;
    }
    if (!found.path.empty()) {
        found.error = 0;
        found.refusal = why_not_preloadable(found.path);
    }
    return found;
}

}  // namespace xsock::tools
