# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
# shellcheck shell=bash
# Sourced by scripts whose options are letters with a value.

# read_options "LETTER:VARIABLE..." "$@": the value of -LETTER into VARIABLE; -h: usage() of the caller,
# on standard output. What follows the options is behind OPTIND.
read_options() {
    local -A variable=()
    local letters= pair option
    for pair in $1; do
        variable[${pair%%:*}]=${pair#*:}
        letters+=${pair%%:*}:
    done
    shift
    OPTIND=1
    while getopts "${letters}h" option; do
        case $option in
        h) usage && exit 0 ;;
        \?) usage >&2 && exit 2 ;;
        *) printf -v "${variable[$option]}" %s "$OPTARG" ;;
        esac
    done
}
