// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// filecopy: the sender. Its files are mapped too, and go from there to the wire.
#include <openssl/evp.h>

#include <chrono>
#include <cstdio>

#include "peer.hpp"

/// Sends one file, calling on_piece(bytes). Answers what the receiver said in the end.
template <class OnPiece>
static std::string send(Peer& peer, char mode, const File& file, const std::string& name,
                        OnPiece on_piece) {
    const Region region = lend(peer, file, mode == 'r' ? XSOCK_REMOTE_READ : 0);
    const std::unique_ptr<EVP_MD_CTX, void (*)(EVP_MD_CTX*)> hash(EVP_MD_CTX_new(),
                                                                  EVP_MD_CTX_free);
    EVP_DigestInit_ex(hash.get(), EVP_sha256(), nullptr);
    const auto digest = [&](std::size_t offset, std::size_t length) {
        EVP_DigestUpdate(hash.get(), file.data + offset, length);
        on_piece(length);
    };
    peer.say(mode + (" " + std::to_string(file.size)) + " " + name);
    if (mode == 'r') digest(0, file.size);  // meanwhile the receiver Reads
    if (!peer.hear() || peer.in.text() != "go") return peer.in.text();
    xsock_remote sink;
    xsock_key_read(&peer.in.key, &sink);
    const auto post = [&](std::size_t offset, std::uint32_t length) {
        const char* piece = file.data + offset;
        const int result = mode == 'w' ? xsock_write(peer.ep, 0, piece, length, &sink, offset, 0)
                                       : xsock_send(peer.ep, 0, piece, length, 0);
        digest(offset, length);  // while it is under way
        return result;
    };
    if (mode != 'r') peer.transfer(file.size, post);
    EVP_DigestFinal_ex(hash.get(), peer.out.digest, nullptr);
    peer.say("check");
    return peer.hear() ? peer.in.text() : "the receiver left";
}

bool send_files(char mode, const char* host, const char* port, const Files& files, bool quiet) {
    XSOCK_INIT(xsock_ep_attr, attr);
    attr.send_cq = check(xsock_cq_create(nullptr), "completion queue");
    attr.rnr_timeout_ms = -1;  // a long answer of the file system may keep us
    Peer peer(check(xsock_connect(host, port, &attr, 10'000), "connect"), attr.send_cq);
    const auto begin = std::chrono::steady_clock::now();
    const bool tty = isatty(STDOUT_FILENO) != 0;
    std::size_t good = 0, bad = 0;
    double megabytes = 0;
    std::chrono::duration<double> elapsed(0);
    for (const auto& [name, path] : files) {
        std::string answer;
        try {
            const File file(path);
            answer = send(peer, mode, file, name, [&](std::size_t length) {
                megabytes += static_cast<double>(length) * 1e-6;
                elapsed = std::chrono::steady_clock::now() - begin;
                if (!tty || quiet) return;
                std::printf("\r%zu of %zu files, %.0f MB, %.0f MB/s ", good + bad, files.size(),
                            megabytes, megabytes / elapsed.count());
                std::fflush(stdout);
            });
        } catch (const FileError& error) {
            answer = error.what();
        }
        answer == "ok" ? ++good : ++bad;
        if (answer != "ok") std::fprintf(stderr, "%s: %s\n", name.c_str(), answer.c_str());
        if (answer == "ok" && !tty && !quiet) std::printf("%s: ok\n", name.c_str());
    }
    elapsed = std::chrono::steady_clock::now() - begin;
    std::printf("%s%zu files, %.1f MB in %.2f s: %.1f MB/s; SHA-256 agreed for %zu, %zu failed\n",
                tty ? "\n" : "", files.size(), megabytes, elapsed.count(),
                megabytes / elapsed.count(), good, bad);
    return bad == 0;
}
