// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Connections of ids without a queue pair. Programs for InfiniBand use rdma_cm also to exchange
// private data and QP numbers, and to learn of the other's end, while their data go by queue pairs
// that they connect by themselves: UCX names a UD queue pair in rdma_conn_param.qp_num. Here such a
// connection is that of an engine's QP which the program does not know, and which carries nothing.
// With the engine's mutex held.
#pragma once

#include <cstdint>

#include "base/bytes.hpp"

struct rdma_conn_param;

namespace xsock::verbs {

struct CmId;
struct Qp;
class VerbsState;

/// Part of a CmId.
struct CmStandIn {
    /// Unknown to the program; also CmId::qp. Null: the id is not of this kind.
    Qp* qp = nullptr;
    std::uint32_t own_num = 0;   ///< that the program names
    std::uint32_t peer_num = 0;  ///< that the peer's has named; 0: not of this kind, or not known
};

/// The program names a queue pair that no connection can be of.
bool needs_stand_in(VerbsState& engine, const CmId& id, const rdma_conn_param* param);
/// Makes the id's QP, for the number in `param`. Null with errno. Throws std::bad_alloc.
/// @pre needs_stand_in()
Qp* open_stand_in(VerbsState& engine, CmId& id, const rdma_conn_param& param);
/// Without effect where there is none.
void close_stand_in(VerbsState& engine, CmId& id) noexcept;
/// The QP is one of these: the program is told nothing about it.
bool is_stand_in(const Qp& qp) noexcept;

/// Takes the peer's number out of what precedes its private data, which is left in `data`. False:
/// it is malformed.
bool take_peer_num(CmId& id, ConstBytes& data);
/// Both ends, or none, are to be of this kind. 0, or EINVAL and a line in the log.
int check_accept(const CmId& id, bool stands_in);
/// The peer's Reply was read: as take_peer_num(), but false also where it says nothing of a number,
/// and then there is a line in the log.
bool take_reply(CmId& id, ConstBytes& data);

}  // namespace xsock::verbs
