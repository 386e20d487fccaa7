// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// filecopy: the connection, as both ends see it. The order of things, for each file:
//   sender    "MODE SIZE PATH" (to be Read: with a key), then data, then "check" with the SHA-256
//   receiver  "go" (to be Written: with a key; by Read: once the data is there), in the end "ok"
// In place of "go" or "ok" the receiver may say what is wrong with the file.
#pragma once

#include <xsock/xsock.h>

#include <algorithm>
#include <exception>
#include <map>
#include <memory>

#include "file.hpp"

struct Message {  // bytes only, so that byte order does not matter
    xsock_key key;
    unsigned char digest[32];  // SHA-256
    char bytes[4096];
    std::string text() const { return {bytes, strnlen(bytes, sizeof(bytes))}; }
};

class Peer {
  public:
    xsock_ep* const ep;
    Message in = {}, out = {};
    Peer(xsock_ep* endpoint, xsock_cq* queue) : ep(endpoint), cq_(queue) {}
    ~Peer() {  // when all went well nothing is under way; otherwise abort flushes all of it
        std::uncaught_exceptions() > 0 ? xsock_ep_abort(ep) : xsock_ep_close(ep);
        for (xsock_wc rest; xsock_cq_poll(cq_, &rest, 1) > 0;) continue;
    }

    /// Sends `out` with this text and waits until it has gone.
    void say(const std::string& text) {
        out.bytes[text.copy(out.bytes, sizeof(out.bytes) - 1)] = '\0';
        check(xsock_send(ep, 0, &out, sizeof(out), 0) == 0 && reap(), "send");
    }
    /// Waits for a message of the other end, which is then in `in`. False: it has left.
    bool hear() { return xsock_recv(ep, 0, &in, sizeof(in)) == 0 ? reap() : ended("receive"); }
    /// Has post(offset, length) post `size` bytes in pieces, up to 32 of them under way, and waits
    /// until all have completed.
    template <class Post>
    void transfer(std::size_t size, Post post) {
        std::size_t under_way = 0;
        for (std::size_t offset = 0; offset < size || under_way > 0;) {
            const auto length = std::min<std::size_t>(256 << 10, size - offset);
            const bool full = length == 0 || under_way == 32;
            if (full && !reap()) throw std::runtime_error("the other end left inside a file");
            if (!full) check(post(offset, static_cast<std::uint32_t>(length)) == 0, "post");
            offset += full ? 0 : length;
            full ? --under_way : ++under_way;
        }
    }

  private:
    /// Waits for one completion. False: the other end closed the connection in good order.
    bool reap() {
        xsock_wc wc;
        check(xsock_cq_wait(cq_, &wc, 1, 1, XSOCK_FOREVER) == 1, "wait");
        return wc.status == XSOCK_WC_SUCCESS || ended(xsock_wc_str(wc.status));
    }
    bool ended(const std::string& what) {  // false: in good order
        XSOCK_INIT(xsock_ep_info, info);
        if (xsock_ep_query(ep, &info) == 0 && info.error == 0) return false;
        throw std::runtime_error(what + ": " + info.error_text);
    }
    xsock_cq* cq_;
};

using Region = std::unique_ptr<xsock_mr, int (*)(xsock_mr*)>;  // ends before its file does

/// Lets this peer, and no other, reach the file. The key goes with the next message.
inline Region lend(Peer& peer, const File& file, unsigned access) {
    Region mr(xsock_mr_register(nullptr, file.data, file.size, access, peer.ep),
              xsock_mr_deregister);
    check(mr && xsock_mr_key(mr.get(), 0, file.size, &peer.out.key) == 0, "register");
    return mr;
}

using Files = std::map<std::string, std::string>;  // name at the receiver, path here
bool send_files(char mode, const char* host, const char* port, const Files& files, bool quiet);
void serve_files(const char* port, const std::string& directory);
