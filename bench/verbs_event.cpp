// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Ping-pong of verbs programs that sleep on a completion channel: in poll(), in epoll_wait(), or in
// ibv_get_cq_event(). The figures are those of event.cpp. The two libraries are opened here, from
// beside this program: a benchmark that was linked to the host's would measure those.
#include <arpa/inet.h>
#include <dlfcn.h>
#include <rdma/rdma_cma.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <memory>
#include <string>

#include "bench/event.hpp"

namespace xsock::bench::event {
namespace {

constexpr std::size_t kSlots = 16;

class Library {
  public:
    explicit Library(const char* name) {
        std::array<char, PATH_MAX> self{};
        if (readlink("/proc/self/exe", self.data(), self.size() - 1) < 0) fail_errno("readlink");
        std::string path = self.data();
        for (int up = 0; up < 2; ++up) path.erase(path.rfind('/'));
        path += std::string("/libxsock/verbs/") + name;
        handle_ = dlopen(path.c_str(), RTLD_NOW | RTLD_GLOBAL);
        if (handle_ == nullptr) fail("%s", dlerror());
    }
    template <typename F>
    void find(F*& function, const char* name) const {
        function = reinterpret_cast<F*>(dlsym(handle_, name));
        if (function == nullptr) fail("%s", dlerror());
    }

  private:
    void* handle_;
};

#define XSOCK_BENCH_RDMA(F)                                                                    \
    F(create_event_channel)                                                                    \
    F(create_id)                                                                               \
    F(bind_addr)                                                                               \
    F(listen) F(get_src_port) F(resolve_addr) F(resolve_route) F(get_cm_event) F(ack_cm_event) \
        F(create_qp) F(accept) F(connect)
#define XSOCK_BENCH_IBV(F) \
    F(alloc_pd) F(create_comp_channel) F(create_cq) F(get_cq_event) F(ack_cq_events)

struct Verbs {
#define XSOCK_BENCH_RDMA_MEMBER(name) decltype(rdma_##name)* name = nullptr;
#define XSOCK_BENCH_IBV_MEMBER(name) decltype(ibv_##name)* name = nullptr;
    XSOCK_BENCH_RDMA(XSOCK_BENCH_RDMA_MEMBER)
    XSOCK_BENCH_IBV(XSOCK_BENCH_IBV_MEMBER)
    ibv_mr* (*reg_mr)(ibv_pd*, void*, size_t, int) = nullptr;

    Verbs() {
        const Library ibverbs("libibverbs.so.1"), rdmacm("librdmacm.so.1");
#define XSOCK_BENCH_FIND_RDMA(name) rdmacm.find(name, "rdma_" #name);
#define XSOCK_BENCH_FIND_IBV(name) ibverbs.find(name, "ibv_" #name);
        XSOCK_BENCH_RDMA(XSOCK_BENCH_FIND_RDMA)
        XSOCK_BENCH_IBV(XSOCK_BENCH_FIND_IBV)
        ibverbs.find(reg_mr, "ibv_reg_mr");
    }
};

template <typename T>
T* made(T* object, const char* what) {
    if (object == nullptr) fail_errno(what);
    return object;
}
void must_be_0(int result, const char* what) {
    if (result == 0) return;
    if (result > 0) errno = result;
    fail_errno(what);
}

/// One connected queue pair with a completion channel, for Sends and receives alike.
class End {
  public:
    explicit End(Way way) : way_(way), events_(made(verbs_.create_event_channel(), "channel")) {
        must_be_0(verbs_.create_id(events_, &id_, nullptr, RDMA_PS_TCP), "rdma_create_id");
    }

    void serve(Child& child, const Run& run) {
        rdma_cm_id* const listener = id_;
        sockaddr_in address = address_of(run);
        must_be_0(verbs_.bind_addr(listener, reinterpret_cast<sockaddr*>(&address)), "bind");
        must_be_0(verbs_.listen(listener, 1), "listen");
        child.tell(ntohs(verbs_.get_src_port(listener)));
        id_ = wait_for(RDMA_CM_EVENT_CONNECT_REQUEST);
        make_queues();
        rdma_conn_param param{};
        param.responder_resources = param.initiator_depth = 1;
        must_be_0(verbs_.accept(id_, &param), "rdma_accept");
        wait_for(RDMA_CM_EVENT_ESTABLISHED);
    }

    void connect(Child& child, const Run& run) {
        sockaddr_in address = address_of(run);
        address.sin_port = htons(child.hear<std::uint16_t>());
        must_be_0(verbs_.resolve_addr(id_, nullptr, reinterpret_cast<sockaddr*>(&address), 1000),
                  "rdma_resolve_addr");
        wait_for(RDMA_CM_EVENT_ADDR_RESOLVED);
        must_be_0(verbs_.resolve_route(id_, 1000), "rdma_resolve_route");
        wait_for(RDMA_CM_EVENT_ROUTE_RESOLVED);
        make_queues();
        rdma_conn_param param{};
        param.responder_resources = param.initiator_depth = 1;
        must_be_0(verbs_.connect(id_, &param), "rdma_connect");
        wait_for(RDMA_CM_EVENT_ESTABLISHED);
    }

    void send(const Message& message) {
        outgoing_ = message;
        ibv_sge sge{reinterpret_cast<std::uintptr_t>(outgoing_.data()), kSize, mr_->lkey};
        ibv_send_wr wr{};
        wr.sg_list = &sge;
        wr.num_sge = 1;
        wr.opcode = IBV_WR_SEND;
        wr.send_flags = IBV_SEND_INLINE;  // and not signaled
        // A queue full of unsignaled requests would never have room again.
        if (++sends_ % kSlots == 0) wr.send_flags |= IBV_SEND_SIGNALED;
        ibv_send_wr* bad = nullptr;
        must_be_0(ibv_post_send(id_->qp, &wr, &bad), "ibv_post_send");
    }

    /// The loop of most programs: sleep, take the event, arm, poll until empty.
    Message receive() {
        for (;;) {
            waiter_->sleep();
            ibv_cq* cq = nullptr;
            void* context = nullptr;
            must_be_0(verbs_.get_cq_event(channel_, &cq, &context), "ibv_get_cq_event");
            verbs_.ack_cq_events(cq, 1);
            must_be_0(ibv_req_notify_cq(cq, 0), "ibv_req_notify_cq");
            Message message{};
            bool found = false;
            ibv_wc wc{};
            while (ibv_poll_cq(cq, 1, &wc) == 1) {
                if (wc.status != IBV_WC_SUCCESS) fail("completion status %d", wc.status);
                if (wc.opcode != IBV_WC_RECV) continue;
                if (found) fail("more than one message at a time");
                found = true;
                message = incoming_[wc.wr_id];
                post(wc.wr_id);
            }
            if (found) return message;
        }
    }

  private:
    static sockaddr_in address_of(const Run& run) {
        sockaddr_in address{};
        address.sin_family = AF_INET;
        if (inet_pton(AF_INET, run.server_address.c_str(), &address.sin_addr) != 1) {
            fail("%s is not an IPv4 address", run.server_address.c_str());
        }
        return address;
    }

    rdma_cm_id* wait_for(rdma_cm_event_type type) {
        rdma_cm_event* event = nullptr;
        must_be_0(verbs_.get_cm_event(events_, &event), "rdma_get_cm_event");
        if (event->event != type) fail("event %d instead of %d", event->event, type);
        rdma_cm_id* const id = event->id;
        must_be_0(verbs_.ack_cm_event(event), "rdma_ack_cm_event");
        return id;
    }

    void make_queues() {
        ibv_pd* const pd = made(verbs_.alloc_pd(id_->verbs), "ibv_alloc_pd");
        channel_ = made(verbs_.create_comp_channel(id_->verbs), "ibv_create_comp_channel");
        ibv_cq* const cq =
            made(verbs_.create_cq(id_->verbs, 64, nullptr, channel_, 0), "ibv_create_cq");
        must_be_0(ibv_req_notify_cq(cq, 0), "ibv_req_notify_cq");
        ibv_qp_init_attr attr{};
        attr.send_cq = attr.recv_cq = cq;
        attr.cap = {.max_send_wr = 2 * kSlots,
                    .max_recv_wr = kSlots,
                    .max_send_sge = 1,
                    .max_recv_sge = 1,
                    .max_inline_data = kSize};
        attr.qp_type = IBV_QPT_RC;
        must_be_0(verbs_.create_qp(id_, pd, &attr), "rdma_create_qp");
        mr_ = made(verbs_.reg_mr(pd, this, sizeof *this, IBV_ACCESS_LOCAL_WRITE), "ibv_reg_mr");
        for (std::size_t slot = 0; slot < kSlots; ++slot) post(slot);
        waiter_ = std::make_unique<Waiter>(channel_->fd, way_);
    }

    void post(std::uint64_t slot) {
        ibv_sge sge{reinterpret_cast<std::uintptr_t>(incoming_[slot].data()), kSize, mr_->lkey};
        ibv_recv_wr wr{};
        wr.wr_id = slot;
        wr.sg_list = &sge;
        wr.num_sge = 1;
        ibv_recv_wr* bad = nullptr;
        must_be_0(ibv_post_recv(id_->qp, &wr, &bad), "ibv_post_recv");
    }

    const Way way_;
    Verbs verbs_;
    rdma_event_channel* events_;
    rdma_cm_id* id_ = nullptr;
    ibv_comp_channel* channel_ = nullptr;
    ibv_mr* mr_ = nullptr;
    std::unique_ptr<Waiter> waiter_;
    unsigned sends_ = 0;
    Message outgoing_{};
    std::array<Message, kSlots> incoming_{};
};

void serve(Child& child, const Run& run, Way way) {
    End end(way);
    end.serve(child, run);
    answer_by(end, child);
    child.meet();  // the connection lives until its last answer was taken
}

void ask(Child& child, const Run& run, Way way) {
    End end(way);
    end.connect(child, run);
    ask_by(end, child, run);
    child.meet();
}

}  // namespace

void verbs_poll_server(Child& child, const Run& run) { serve(child, run, Way::poll); }
void verbs_poll_client(Child& child, const Run& run) { ask(child, run, Way::poll); }
void verbs_epoll_server(Child& child, const Run& run) { serve(child, run, Way::epoll); }
void verbs_epoll_client(Child& child, const Run& run) { ask(child, run, Way::epoll); }
void verbs_block_server(Child& child, const Run& run) { serve(child, run, Way::block); }
void verbs_block_client(Child& child, const Run& run) { ask(child, run, Way::block); }

}  // namespace xsock::bench::event
