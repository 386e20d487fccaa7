#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
"""Mutants of the kernel module and of the engine's part of it: each breaks one rule of
include/xsock/ddp_uapi.h or docs/kernel.md, and names the check that has to fail then
(tests/long/kernel-mutants.sh).

usage: mutants.py list              a line for each: NAME TEST
       mutants.py rule NAME
       mutants.py check-of NAME
       mutants.py make NAME FOLDER  in a copy of the tree
       mutants.py undo NAME FOLDER  takes it back
"""
import pathlib
import sys
from typing import NamedTuple


class Mutant(NamedTuple):
    rule: str
    test: str  # a program of the guest with its arguments, or a unit program
    check: str  # what the program prints of it; of a unit program the case
    file: str
    right: str  # lines that the file has once
    wrong: str  # and what becomes of them


CORE = "ddp_kernel/core/"
WORLD = "DdpCoreWorld.memory_is_what_user_space_leaves_behind_each_send"
PINS = "pins, and ends of them:"
MUTANTS = {
    # A record follows the placement, whose last bytes are stored last.
    "told-unplaced": Mutant(
        "what a record tells of is in place",
        "/x/records",
        "in its place",
        "ddp_kernel/place.c",
        "		store(mr->root, address, octets, body);\n"
        "	else if",
        "		;\n"
        "	else if",
    ),
    "tail-first": Mutant(
        "the last bytes of a piece are stored last",
        "/x/polled",
        "with the last byte all others that are checked were there",
        "ddp_kernel/place.c",
        "	if (octets)\n"
        "		store(mr->root, address, octets, body);",
        "	if (octets)\n"
        "		store(mr->root, address + body, octets + body, last);\n"
        "	if (octets)\n"
        "		store(mr->root, address, octets, body);",
    ),
    # Memory behind a Send is what user level leaves.
    "goes-back": Mutant(
        "a Write that comes late does not undo a later one",
        "unit_ddp_kernel",
        WORLD,
        CORE + "targets.c",
        "	return target->first > at;",
        "	return target->first > at && false;",
    ),
    "overtakes-a-store": Mutant(
        "what goes up to be stored is stored before what comes next is placed",
        "unit_ddp_kernel",
        WORLD,
        CORE + "rx.c",
        "		rx->held_back = true;\n",
        "",
    ),
    "keeps-runs": Mutant(
        "what was placed early is placed again behind what goes up to be stored",
        "unit_ddp_kernel",
        WORLD,
        CORE + "rx.c",
        "		ddp_ahead_forget(rx->ahead);\n",
        "",
    ),
    "overtakes-in-recv": Mutant(
        "what goes up to be stored is stored before what lies behind it is placed",
        "/x/records",
        "a Write that went up is stored first",
        CORE + "rx.c",
        "	if (reader->unstored && is_mirrored_write(env, fpdu))\n"
        "		return FULL;\n",
        "",
    ),
    "counts-twice": Mutant(
        "each Write is told of once",
        "unit_ddp_kernel",
        WORLD,
        CORE + "rx.c",
        "	if (!rx->stepping)\n"
        "		count_placed(rx, &rx->step);\n",
        "	count_placed(rx, &rx->step);\n",
    ),
    # What is placed
    "out-of-order": Mutant(
        "IN_ORDER places nothing behind a hole",
        "/x/segments",
        "IN_ORDER: nothing is placed behind a hole",
        "ddp_kernel/bind.c",
        "	if (bind->flags == DDP_BIND_CRC) {",
        "	if ((bind->flags & ~DDP_BIND_IN_ORDER) == DDP_BIND_CRC) {",
    ),
    "no-right": Mutant(
        "a region has the right to what is placed there",
        "/x/records",
        "unknown STag, out of bounds, TO wraps, wrong kind, unknown opcode: up",
        "ddp_kernel/place.c",
        "	if (!(ds->bind.rights & attr->rights & right))",
        "	if (!(ds->bind.rights & right))",
    ),
    "no-right-of-socket": Mutant(
        "RIGHTS holds when it returns",
        "/x/records",
        "without rights nothing is placed",
        "ddp_kernel/bind.c",
        "	ds->bind.rights = rights->rights;\n",
        "	ds->bind.rights |= rights->rights;\n",
    ),
    "any-pd": Mutant(
        "what is placed is for a region of the socket's PD",
        "/x/allowed",
        "a Write to a region of another PD goes up",
        "ddp_kernel/place.c",
        "	if (attr->pd != ds->bind.pd)",
        "	if (false)",
    ),
    "any-qp": Mutant(
        "a region of one QP takes that QP's Writes only",
        "/x/allowed",
        "or of another QP",
        "ddp_kernel/place.c",
        "	if (attr->qp && attr->qp != ds->bind.qp)",
        "	if (false)",
    ),
    "over-the-end": Mutant(
        "nothing is stored behind the end of a region",
        "/x/allowed",
        "a Write that runs over the end goes up",
        "ddp_kernel/place.c",
        "	    fpdu->payload > attr->length - offset)",
        "	    fpdu->payload > attr->length - offset + 1)",
    ),
    "unsound": Mutant(
        "the CRC is checked before payload is copied, in order",
        "/x/allowed",
        "a Write whose CRC is wrong is not placed",
        CORE + "rx.c",
        "	placed = (!check || is_sound(rx, env, fpdu)) && place(rx, env, mr, fpdu, address);",
        "	placed = place(rx, env, mr, fpdu, address) && (!check || is_sound(rx, env, fpdu));",
    ),
    "unsound-behind-a-hole": Mutant(
        "the CRC is checked before payload is copied, behind a hole",
        "unit_ddp_kernel",
        WORLD,
        CORE + "ahead.c",
        "		if (!ddp_env_crc_holds(env, fpdu->at, fpdu->octets)) {",
        "		if (!ddp_env_crc_holds(env, fpdu->at, fpdu->octets) && !mr) {",
    ),
    "guessed-without-crc": Mutant(
        "without CRC nothing is placed behind a hole",
        "/x/segments",
        "nor without CRC",
        "ddp_kernel/bind.c",
        "	if (bind->flags == DDP_BIND_CRC) {",
        "	if (!(bind->flags & ~DDP_BIND_CRC)) {",
    ),
    "atomic-early": Mutant(
        "where atomic operations may be, nothing is placed behind a hole",
        "/x/segments",
        "nor where atomic operations may be",
        "ddp_kernel/place.c",
        "	if (want == DDP_WANT_WRITE_AHEAD && attr->rights & DDP_RIGHT_ATOMIC)",
        "	if (false)",
    ),
    # REVOKE and RELEASE
    "revoked-is-found": Mutant(
        "after REVOKE no look-up finds a region",
        "/x/allowed",
        "a Write to a revoked one goes up",
        "ddp_kernel/region.c",
        "	return is_shown(mr) && !READ_ONCE(mr->root->stale);",
        "	return READ_ONCE(mr->root->state) != DDP_MR_HIDDEN && !READ_ONCE(mr->root->stale);",
    ),
    "released-is-written": Mutant(
        "after RELEASE nothing is stored",
        "/x/release 4",
        "after RELEASE nothing was stored",
        "ddp_kernel/region.c",
        "		wait_for_completion(&mr->idle);\n"
        "	}",
        "		return;\n"
        "	}",
    ),
    "revocation-untold": Mutant(
        "the module is told of a revocation before the call returns",
        "unit_transport",
        "KernelRegionsTest.the_end_of_a_region_that_is_to_be_pinned_anew",
        "transport/kernel_regions.cpp",
        "    if (entry->held && entry->state != State::pinning) control(DDP_IOC_REVOKE, stag);\n",
        "",
    ),
    "shown-though-revoked": Mutant(
        "what is revoked while it is being pinned is never found",
        "unit_transport",
        "KernelRegionsTest.to_revoke_waits_for_no_pages",
        "transport/kernel_regions.cpp",
        "    if (!entry.revoked) return control(DDP_IOC_SHOW, stag);",
        "    control(DDP_IOC_SHOW, stag);\n"
        "    if (!entry.revoked) return 0;",
    ),
    "placed-behind-the-end": Mutant(
        "detach() ends placement before it returns",
        "unit_transport",
        "KernelDdpTest.a_detached_connection_has_nothing_placed",
        "transport/connection_kernel.cpp",
        "    set_rights(0);\n",
        "",
    ),
    # Pinning
    "pins-at-once": Mutant(
        "a region is pinned when the first Write for it has come up, not before",
        "unit_transport",
        "KernelDdpTest.writes_are_placed_by_the_module_once_the_first_has_come_up",
        "transport/kernel_regions.cpp",
        "        entries_[stag] = Entry{.attr = attr};\n",
        "        entries_[stag] = Entry{.attr = attr};\n"
        "        ddp_region region = region_of(stag, attr);\n"
        "        calls_.control(domain_, DDP_IOC_REGION, &region);\n",
    ),
    "pins-the-longest": Mutant(
        "no region longer than XSOCK_KERNEL_PIN is pinned",
        "unit_transport",
        "KernelRegionsLimitTest.a_longer_region_is_not_pinned",
        "transport/kernel_regions.cpp",
        "entry.attr.length > limits_.region_bytes ? E2BIG",
        "false                                    ? E2BIG",
    ),
    "required-unpinned": Mutant(
        "where the module is required, registering pins or fails",
        "unit_transport",
        "KernelDdpTest.what_is_required_pins_when_it_is_registered_or_fails",
        "transport/kernel_regions.cpp",
        "    if (const int error = pin_entry(stag, *entry, lock); error != 0) {",
        "    if (const int error = pin_entry(stag, *entry, lock); error == ERANGE) {",
    ),
    "unlimited-memlock": Mutant(
        "pages count against RLIMIT_MEMLOCK",
        "/x/abi",
        "RLIMIT_MEMLOCK holds for those without the capability",
        "ddp_kernel/region.c",
        "	error = account_locked_vm(mm, mr->page_count, true);\n",
        "	error = __account_locked_vm(mm, mr->page_count, true, current, true);\n",
    ),
    "leaks-pins": Mutant(
        "no page stays pinned",
        "nothing_left",
        PINS,
        "ddp_kernel/region.c",
        "	mmu_interval_notifier_remove(&mr->notifier);\n"
        "	unpin(mr, mr->page_count);",
        "	mmu_interval_notifier_remove(&mr->notifier);\n"
        "	unpin(mr, mr->page_count - 1);",
    ),
    # Memory that changes
    "never-stale": Mutant(
        "a region whose memory is unmapped or emptied is stale",
        "/x/abi",
        "unmapped: it is stale",
        "ddp_kernel/region.c",
        "		WRITE_ONCE(mr->stale, true);\n"
        "		ddp_count(stale, 1);",
        "		ddp_count(stale, 1);",
    ),
    "stale-is-placed": Mutant(
        "what is for a stale region goes up",
        "/x/allowed",
        "a Write to emptied memory goes up",
        "ddp_kernel/region.c",
        "	return is_shown(mr) && !READ_ONCE(mr->root->stale);",
        "	return is_shown(mr);",
    ),
    "any-process": Mutant(
        "a domain is of the process that opened it",
        "/x/abi",
        "a child may not use its parent's domain",
        "ddp_kernel/main.c",
        "	if (current->mm != domain->mm)\n"
        "		return -EPERM;",
        "	if (current->mm != domain->mm && number != DDP_IOC_HELLO)\n"
        "		return -EPERM;",
    ),
    # What a peer may cost
    "leading-unbounded": Mutant(
        "a call of TCP examines so many octets in order, and no more",
        "unit_ddp_kernel",
        "AheadTest.what_leads_is_examined_within_a_limit_too",
        CORE + "rx.c",
        "		budget -= fpdu.octets;\n",
        "",
    ),
    "ahead-unbounded": Mutant(
        "a call of TCP examines so many octets behind a hole, and no more",
        "unit_ddp_kernel",
        "AheadTest.a_scan_that_a_limit_ended_goes_on_with_the_next_segment_that_is_sent",
        CORE + "ahead.c",
        "		*budget -= octets;\n"
        "		return true;",
        "		return true;",
    ),
    "runs-unbounded": Mutant(
        "so many runs are kept, and no more",
        "unit_ddp_kernel",
        "AheadTest.where_there_is_no_room_no_crc_is_computed",
        CORE + "runs.c",
        "	if (runs->count < DDP_RUNS_MAX)\n"
        "		return true;",
        "	if (runs->count < DDP_RUNS_MAX + 1)\n"
        "		return true;",
    ),
    "misses-unbounded": Mutant(
        "of a hole, so many FPDUs without a region are examined, and no more",
        "unit_ddp_kernel",
        "AheadTest.so_many_fpdus_whose_region_is_not_found_and_no_more_cost_a_crc",
        CORE + "ahead.c",
        " || ahead->misses >= DDP_MISSES_MAX)",
        ")",
    ),
    "guesses-unbounded": Mutant(
        "of a hole, so many wrong guesses are examined, and no more",
        "unit_ddp_kernel",
        "AheadTest.so_many_wrong_guesses_and_no_more_cost_a_crc",
        CORE + "ahead.c",
        "		if (ahead->refused_count == DDP_GUESSES_MAX || ",
        "		if (",
    ),
    "guesses-repeated": Mutant(
        "a wrong guess is examined once",
        "unit_ddp_kernel",
        "AheadTest.so_many_wrong_guesses_and_no_more_cost_a_crc",
        CORE + "ahead.c",
        "		if (ahead->refused[i] == at)\n"
        "			return true;",
        "		if (ahead->refused[i] == at)\n"
        "			return false;",
    ),
    # Read Responses
    "response-anywhere": Mutant(
        "a Read Response is placed in its order only",
        "/x/records",
        "out of its order: up",
        "ddp_kernel/place.c",
        "	if (want == DDP_WANT_RESPONSE && offset != READ_ONCE(mr->responded))",
        "	if (false)",
    ),
    "write-to-a-sink": Mutant(
        "no Write is placed in the sink of a Read",
        "/x/records",
        "a Write to a sink: up",
        "ddp_kernel/place.c",
        "	u32 right = want == DDP_WANT_RESPONSE ? DDP_RIGHT_READ_SINK : DDP_RIGHT_WRITE;",
        "	u32 right = want == DDP_WANT_RESPONSE ? DDP_RIGHT_READ_SINK :\n"
        "						DDP_RIGHT_WRITE | DDP_RIGHT_READ_SINK;",
    ),
    # Markers
    "markers-stored": Mutant(
        "markers are stepped over",
        "unit_ddp_kernel",
        "DdpCoreMarkers.a_write_that_has_all_come_is_placed",
        CORE + "marker.c",
        "		piece = ddp_marker_piece(&at, n);\n"
        "		if (!ddp_env_place",
        "		piece = n;\n"
        "		if (!ddp_env_place",
    ),
    "markers-unread": Mutant(
        "a marker says where its FPDU begins",
        "unit_ddp_kernel",
        "DdpCoreWorld.the_same_with_markers",
        CORE + "marker.c",
        "		if ((((u32)marker[2] << 8 | marker[3]) ^ distance) & FPDUPTR_MASK)\n"
        "			return false;\n",
        "",
    ),
    # Waking the reader
    "first-sleeps": Mutant(
        "the first FPDU wakes the reader",
        "/x/records",
        "a first Write makes it readable",
        CORE + "rx.c",
        "	if (!rx->handed_up || rx->up",
        "	if (rx->up",
    ),
    "owner-woken": Mutant(
        "the owner of the memory sleeps while Writes are placed",
        "/x/records",
        "and make no socket readable",
        "ddp_kernel/ulp.c",
        "	set_read_at(ds, state == DDP_RX_READ ? 0 : state == DDP_RX_WAIT ? need : 1);\n"
        "	return state == DDP_RX_READ;",
        "	if (ds->rx.pos < 200000) { /* later the guest would not get on */\n"
        "		set_read_at(ds, 0);\n"
        "		return avail;\n"
        "	}\n"
        "	set_read_at(ds, state == DDP_RX_READ ? 0 : state == DDP_RX_WAIT ? need : 1);\n"
        "	return state == DDP_RX_READ;",
    ),
}


def texts(name: str, folder: str) -> tuple[pathlib.Path, pathlib.Path]:
    """The file that a mutant changes, and where that of before is kept."""
    path = pathlib.Path(folder) / MUTANTS[name].file
    return path, path.with_name(path.name + ".right")


def make(name: str, folder: str) -> None:
    mutant = MUTANTS[name]
    path, kept = texts(name, folder)
    text = path.read_text()
    if text.count(mutant.right) != 1:
        sys.exit(f"mutants.py: {name}: {mutant.file} has not once what is to be made wrong")
    kept.write_text(text)
    path.write_text(text.replace(mutant.right, mutant.wrong))


def undo(name: str, folder: str) -> None:
    path, kept = texts(name, folder)
    path.write_text(kept.read_text())  # it is newer than what was built of the mutant
    kept.unlink()


def main() -> None:
    verb, name, folder = (sys.argv[1:] + [""] * 3)[:3]
    wanted = {"list": 1, "rule": 2, "check-of": 2, "make": 3, "undo": 3}
    if wanted.get(verb) != len(sys.argv) - 1 or (name and name not in MUTANTS):
        sys.exit(__doc__)
    if verb == "list":
        for each, mutant in MUTANTS.items():
            print(each, mutant.test)
    elif verb == "rule":
        print(MUTANTS[name].rule)
    elif verb == "check-of":
        print(MUTANTS[name].check)
    elif verb == "make":
        make(name, folder)
    else:
        undo(name, folder)


if __name__ == "__main__":
    main()
