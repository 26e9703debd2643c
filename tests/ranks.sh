# Sourced by the test scripts that kill ranks of `tersegrad train`.
# shellcheck shell=bash

# process_of LOG RANK: the process of that rank of the job that writes LOG. Its watcher has the same arguments and surroundings; the rank is the
# older of the two.
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

# begun LOG: waits until the job writes it, for 10 s.
begun() {
    local i
    for ((i = 0; i < 100; i++)); do
        [ ! -s "$1" ] || return 0
        sleep 0.1
    done
    return 1
}
