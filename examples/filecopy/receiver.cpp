// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// filecopy: the receiver. Its files are mapped, so that data lands in them whichever way it comes.
#include <openssl/evp.h>

#include <cstdio>
#include <filesystem>
#include <memory>

#include "peer.hpp"

namespace fs = std::filesystem;

/// Takes the file that was offered last. Throws when the connection fails.
static void receive(Peer& peer, const fs::path& directory) {
    char mode = 0;
    long long size = -1;
    int start = 0;
    const std::string offer = peer.in.text();
    std::sscanf(offer.c_str(), "%c %lld %n", &mode, &size, &start);
    const fs::path name = offer.substr(start);
    if (size < 0 || name.is_absolute() || std::count(name.begin(), name.end(), ".."))
        return peer.say("refused: the offer is malformed, or the path leads outside");
    std::unique_ptr<File> file;
    try {
        fs::create_directories((directory / name).parent_path());
        file = std::make_unique<File>(directory / name, size);
    } catch (const std::exception& error) {
        return peer.say(error.what());
    }
    xsock_remote source;
    xsock_key_read(&peer.in.key, &source);
    const auto post = [&](std::size_t offset, std::uint32_t length) {
        char* piece = file->data + offset;
        return mode == 'r' ? xsock_read(peer.ep, 0, piece, length, &source, offset, 0)
                           : xsock_recv(peer.ep, 0, piece, length);
    };
    const Region region = lend(peer, *file, mode == 'w' ? XSOCK_REMOTE_WRITE : 0);
    if (mode == 'r') peer.transfer(file->size, post);
    peer.say("go");
    if (mode == 's') peer.transfer(file->size, post);
    if (!peer.hear()) throw std::runtime_error("the sender left in the middle of a file");
    unsigned char digest[32];
    EVP_Digest(file->data, file->size, digest, nullptr, EVP_sha256(), nullptr);
    peer.say(std::memcmp(digest, peer.in.digest, 32) == 0 ? "ok" : "the SHA-256 differs");
}

void serve_files(const char* port, const std::string& directory) {
    XSOCK_INIT(xsock_ep_attr, attr);
    attr.send_cq = check(xsock_cq_create(nullptr), "completion queue");
    attr.rnr_timeout_ms = -1;  // a file system may take its time
    xsock_listener* listener = check(xsock_listen(nullptr, port, 16, &attr), "listen");
    std::printf("listening on port %d\n", xsock_listener_port(listener));
    for (;;) {  // one sender after the other
        std::fflush(stdout);
        xsock_ep* ep = check(xsock_accept(listener, XSOCK_FOREVER), "accept");
        try {
            Peer peer(ep, attr.send_cq);
            int files = 0;
            for (; peer.hear(); ++files) receive(peer, directory);
            std::printf("a sender left after %d files\n", files);
        } catch (const std::exception& error) {
            std::printf("a sender was lost: %s\n", error.what());
        }
    }
}
