# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
# Completion of xsock(1) for bash. What is offered comes from the program's own --help.

# Offers what compgen has for these options where $word does not begin as an option does.
_xsock_unless_option() {
    [[ $word != -* ]] && mapfile -t COMPREPLY < <(compgen "$@" -- "$word")
}

_xsock() {
    local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD - 1]}
    local program=${COMP_WORDS[0]} command=${COMP_WORDS[1]} offer i
    if [ "$COMP_CWORD" -eq 1 ]; then
        offer=$("$program" --help 2>/dev/null | sed -n 's/^  \([a-z]*\) .*/\1/p')
        mapfile -t COMPREPLY < <(compgen -W "$offer --help --version" -- "$word")
        return
    fi
    case $before in
    --progress) offer='app thread both' ;;
    --log) offer='off error warn info debug' ;;
    --shm | --kernel) offer='off auto require' ;;
    -t | --tests) offer='latency bandwidth rate' ;;
    -o | --ops) offer='send write read' ;;
    --svg | --pcap)
        mapfile -t COMPREPLY < <(compgen -f -- "$word")
        return
        ;;
    -p | --policy)
        case $command in
        info) mapfile -t COMPREPLY < <(compgen -c -- "$word") && return ;;
        run) mapfile -t COMPREPLY < <(compgen -f -- "$word") && return ;;
        esac
        ;;
    esac
    if [ -n "${offer:-}" ]; then
        mapfile -t COMPREPLY < <(compgen -W "$offer" -- "$word")
        return
    fi
    case $command in
    run)
        # Behind the options comes the command line of a program.
        for ((i = 2; i < COMP_CWORD; i++)); do
            case ${COMP_WORDS[i]} in
            --)
                mapfile -t COMPREPLY < <(compgen -c -- "$word")
                return
                ;;
            esac
        done
        _xsock_unless_option -c && return
        ;;
    perf)
        if [ "$COMP_CWORD" -eq 2 ]; then
            mapfile -t COMPREPLY < <(compgen -W 'server client' -- "$word")
            return
        fi
        command="perf ${COMP_WORDS[2]}"
        ;;
    decode)
        _xsock_unless_option -f && return
        ;;
    doctor)
        # A host or a program.
        _xsock_unless_option -A hostname -c && return
        ;;
    esac
    _xsock_unless_option -A hostname && return
    # shellcheck disable=SC2086  # $command is one word or two
    offer=$("$program" $command --help 2>/dev/null | sed -n 's/^  .*\(--[a-z0-9-]*\).*/\1/p')
    mapfile -t COMPREPLY < <(compgen -W "$offer" -- "$word")
}

complete -F _xsock xsock
