#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
# XSOCK_VERBS_SUMMARY counts what each connection moved, once: of those that are open at the end, that
# have ended, and whose queue pairs are destroyed or reset.
#
#   summary.sh BUILD
. "$(dirname "$0")/lib.sh"

export XSOCK_LOG=off XSOCK_VERBS_SUMMARY=1
least=6000   # three Sends of 1000 bytes each way, both ends in the process
most=7000    # and their headers, and start-up
for how in open quick disconnected destroyed reset; do
    said=$("$build/tests/verbs/verbs_summary" $how 2>&1)
    status=$?
    line=$(grep -o '[0-9]* bytes sent, [0-9]* received' <<<"$said") || status=1
    read -r sent _ _ received _ <<<"$line"
    for count in "${sent:-0}" "${received:-0}"; do
        [ "$count" -ge $least ] && [ "$count" -le $most ] || status=1
    done
    verdict "$how: ${said:-no line}" $status
done
exit $failed
