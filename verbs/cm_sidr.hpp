// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Ids of RDMA_PS_UDP: a client asks a server for the number of a UD queue pair, and whatever the
// two send from then on are datagrams between queue pairs (datagrams.hpp). Nothing is connected,
// and nothing ends. The frames are sidr.hpp. With the engine's mutex held.
#pragma once

#include <infiniband/verbs.h>
#include <sys/socket.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>

#include "verbs/sidr.hpp"
#include "verbs/sidr_socket.hpp"

struct rdma_conn_param;

namespace xsock::verbs {

struct CmId;
class VerbsState;

/// Part of a CmId.
struct SidrId {
    /// Of a listener (or an id that is bound), and of a request that has no answer yet.
    std::shared_ptr<SidrSocket> socket;

    // A listener's.
    std::map<SidrKey, CmId*> asked;  ///< no answer yet
    SidrAnswers answers;
    std::uint64_t malformed = 0;  ///< datagrams that are no requests

    // A request's; of a client its number alone.
    SidrKey key;
    sockaddr_storage peer{}, own{};  ///< as UDP has them

    std::optional<SidrRepeat> repeat;  ///< a client's that waits for its answer
};

// What the functions of the same names do with such an id, once they have checked the handle and
// the state. 0 or an errno.

int bind_datagrams(VerbsState& engine, CmId& id);
int listen_datagrams(VerbsState& engine, CmId& id, std::size_t backlog);
int connect_datagrams(VerbsState& engine, CmId& id, const rdma_conn_param* param);
int accept_datagrams(VerbsState& engine, CmId& id, const rdma_conn_param* param);
int reject_datagrams(VerbsState& engine, CmId& id, ConstBytes private_data);
/// @return of ibv_qp_attr_mask
int fill_datagram_attr(ibv_qp_attr& attr) noexcept;

/// The program is about to be told of a request. Throws std::bad_alloc.
void on_request_taken(CmId& id);
/// The id goes: what was not answered is rejected.
void detach_datagrams(VerbsState& engine, CmId& id);
/// Moves a UD QP that has just been made as far as it sends and receives, with the Q_Key of
/// RDMA_PS_UDP. 0 or an errno. Not with the engine's mutex held.
int start_datagram_qp(ibv_qp* qp) noexcept;

}  // namespace xsock::verbs
