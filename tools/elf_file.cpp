// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "tools/elf_file.hpp"

#include <elf.h>
#include <fcntl.h>
#include <link.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <string_view>

#include "tools/fd.hpp"
#include "tools/text.hpp"

namespace xsock::tools {
namespace {

constexpr std::size_t kMaxHeaders = 256;
constexpr std::size_t kMaxNotes = 64 * 1024;    // bytes of a segment of notes
constexpr std::size_t kMaxNames = 1024 * 1024;  // bytes of the names of sections
constexpr std::size_t kMaxShebang = 256;        // as the kernel has it
constexpr std::size_t kMaxDynamic = 4096;       // entries of the dynamic section
constexpr std::size_t kMaxName = 4096;          // bytes of a library's name
constexpr std::size_t kMaxSearched = 256u << 20;

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

using ElfHeader = ElfW(Ehdr);
using ProgramHeader = ElfW(Phdr);
using SectionHeader = ElfW(Shdr);
using NoteHeader = ElfW(Nhdr);
using DynamicEntry = ElfW(Dyn);

/// The header of this program, which runs on this machine.
ElfHeader own_header() {
    ElfHeader header{};
    const File self("/proc/self/exe");
    return !self.open_failed() && self.read_at(0, &header, sizeof header) ? header : ElfHeader{};
}

bool for_this_machine(const ElfHeader& header) {
    static const ElfHeader own = own_header();
    if (own.e_machine == EM_NONE) return true;  // no /proc: not known
    return header.e_ident[EI_CLASS] == own.e_ident[EI_CLASS] &&
           header.e_ident[EI_DATA] == own.e_ident[EI_DATA] && header.e_machine == own.e_machine;
}

/// Go's linker gives each program a note with its build's name, which stays when it is stripped.
bool has_go_note(const std::string& notes) {
    std::size_t at = 0;
    const auto padded = [](std::size_t n) { return (n + 3) & ~std::size_t{3}; };
    while (notes.size() - at >= sizeof(NoteHeader)) {
        NoteHeader note;
        std::memcpy(&note, notes.data() + at, sizeof note);
        at += sizeof note;
        const std::size_t rest = notes.size() - at;
        if (note.n_namesz > rest) return false;
        if (notes.compare(at, note.n_namesz, std::string_view("Go\0\0", 4)) == 0) return true;
        const std::size_t size = padded(note.n_namesz) + padded(note.n_descsz);
        if (size > rest) return false;
        at += size;
    }
    return false;
}

/// Its sections tell too, where Go's code was linked by another linker (cgo).
bool has_go_section(const File& file, const ElfHeader& header) {
    SectionHeader names{};
    if (header.e_shentsize != sizeof names || header.e_shstrndx >= header.e_shnum) return false;
    const auto at = static_cast<off_t>(header.e_shoff + header.e_shstrndx * sizeof names);
    if (!file.read_at(at, &names, sizeof names)) return false;
    const std::string text = file.text_at(static_cast<off_t>(names.sh_offset),
                                          std::min<std::size_t>(names.sh_size, kMaxNames));
    return text.find(".note.go.buildid") != text.npos || text.find(".go.buildinfo") != text.npos ||
           text.find(".gopclntab") != text.npos;
}

/// The libraries that the dynamic section names. Names are at addresses, which `parts` lead to the
/// file.
std::vector<std::string> needed_libraries(const File& file,
                                          const std::vector<ProgramHeader>& parts) {
    std::vector<DynamicEntry> entries;
    for (const ProgramHeader& part : parts) {
        if (part.p_type != PT_DYNAMIC) continue;
        const std::size_t count = part.p_filesz / sizeof(DynamicEntry);
        entries.resize(std::min(count, kMaxDynamic));
        if (!file.read_at(static_cast<off_t>(part.p_offset), entries.data(),
                          entries.size() * sizeof(DynamicEntry))) {
            return {};
        }
        break;
    }
    std::optional<off_t> names;
    for (const DynamicEntry& entry : entries) {
        if (entry.d_tag != DT_STRTAB) continue;
        for (const ProgramHeader& part : parts) {
            if (part.p_type != PT_LOAD || entry.d_un.d_ptr < part.p_vaddr ||
                entry.d_un.d_ptr - part.p_vaddr >= part.p_filesz) {
                continue;
            }
            names = static_cast<off_t>(part.p_offset + (entry.d_un.d_ptr - part.p_vaddr));
        }
    }
    std::vector<std::string> libraries;
    for (const DynamicEntry& entry : entries) {
        if (entry.d_tag == DT_NULL || !names) break;
        if (entry.d_tag != DT_NEEDED) continue;
        const auto at = static_cast<off_t>(static_cast<std::uint64_t>(*names) + entry.d_un.d_val);
        libraries.emplace_back(file.text_at(at, kMaxName).c_str());
    }
    return libraries;
}

ElfInfo read_elf(const File& file) {
    ElfInfo info;
    ElfHeader header{};
    if (!file.read_at(0, &header, sizeof header)) {
        info.form = ElfInfo::Form::cut_short;
        return info;
    }
    if (!for_this_machine(header)) {
        info.form = ElfInfo::Form::other_machine;
        return info;
    }
    if (header.e_phentsize != sizeof(ProgramHeader) || header.e_phnum > kMaxHeaders) {
        info.form = ElfInfo::Form::unknown_headers;
        return info;
    }
    std::vector<ProgramHeader> parts;
    for (unsigned i = 0; i < header.e_phnum; ++i) {
        ProgramHeader part{};
        const auto at = static_cast<off_t>(header.e_phoff + i * sizeof part);
        if (!file.read_at(at, &part, sizeof part)) break;
        parts.push_back(part);
        const auto offset = static_cast<off_t>(part.p_offset);
        if (part.p_type == PT_INTERP) {
            // As a C string: it ends at its first NUL byte.
            info.interpreter = file.text_at(offset, 256).c_str();
        } else if (part.p_type == PT_NOTE) {
            info.go = info.go || has_go_note(file.text_at(
                                     offset, std::min<std::size_t>(part.p_filesz, kMaxNotes)));
        }
    }
    info.go = info.go || has_go_section(file, header);
    info.needed = needed_libraries(file, parts);
    return info;
}

}  // namespace

ProgramFile read_program_file(const std::string& path) {
    ProgramFile program;
    const File file(path);
    if (file.open_failed()) return program;
    program.readable = true;
    const std::string start = file.text_at(0, kMaxShebang);
    if (start.compare(0, SELFMAG, ELFMAG) == 0) {
        program.elf = read_elf(file);
    } else if (start.compare(0, 2, "#!") == 0) {
        const std::string_view line = std::string_view(start).substr(2);
        program.shebang = trimmed(line.substr(0, line.find('\n')));
    }
    return program;
}

std::string find_in_file(const std::string& path, const std::vector<std::string>& texts) {
    constexpr std::size_t kAtOnce = 1 << 20;
    const File file(path);
    if (file.open_failed()) return {};
    std::size_t longest = 1;
    for (const std::string& text : texts) longest = std::max(longest, text.size());
    for (std::size_t at = 0; at < kMaxSearched; at += kAtOnce) {
        // What begins in this piece may end in the next one.
        const std::string piece = file.text_at(static_cast<off_t>(at), kAtOnce + longest - 1);
        for (const std::string& text : texts) {
            if (piece.find(text) != piece.npos) return text;
        }
        if (piece.size() < kAtOnce) break;
    }
    return {};
}

}  // namespace xsock::tools
