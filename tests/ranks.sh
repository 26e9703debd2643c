# Sourced by the test scripts that kill ranks of `tersegrad train`.
# shellcheck shell=bash

# process_of LOG RANK: the process of that rank of the job that writes LOG.
process_of() {
    local process
    for process in $(pgrep -f -- "$1"); do
        [ "$(cat "/proc/$process/comm" 2>/dev/null)" = tersegrad ] || continue
        if tr '\0' '\n' 2>/dev/null <"/proc/$process/environ" | grep -qxE "(OMPI_COMM_WORLD_RANK|PMI_RANK)=$2"; then
            echo "$process"
            return
        fi
    done
}

# begun LOG LAUNCHER: waits until the job writes it, as long as that process lives.
begun() {
    while [ ! -s "$1" ]; do
        kill -0 "$2" 2>/dev/null || return 1
        sleep 0.1
    done
}
