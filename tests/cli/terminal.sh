# Colours and the progress bar only where a terminal is; what is piped stays plain.
. "$TOOLS/lib.sh"
cat >on_terminal.py <<'END'
"""Runs a command with stdout and stderr on a terminal of its own, and tells which escape sequences came."""
import os, pty, sys

pid, master = pty.fork()
if pid == 0:
    os.execvp(sys.argv[1], sys.argv[1:])
output = b""
while True:
    try:
        piece = os.read(master, 65536)
    except OSError:
        break
    if not piece:
        break
    output += piece
_, status = os.waitpid(pid, 0)
colour = b"\x1b[1m" in output or b"\x1b[1;31m" in output
bar = "█".encode() in output and b"\r\x1b[K" in output
print("exit", os.waitstatus_to_exitcode(status), "colour" if colour else "plain", "bar" if bar else "no bar")
END
unset NO_COLOR
export TERM=xterm
try python3 on_terminal.py tersegrad codecs
try python3 on_terminal.py tersegrad frob
try python3 on_terminal.py tersegrad bench -n 1000 --codec none --seconds 0
try python3 on_terminal.py tersegrad bench -n 1000 --codec none --seconds 1.2
NO_COLOR=1 python3 on_terminal.py tersegrad codecs
TERM=dumb python3 on_terminal.py tersegrad bench -n 1000 --codec none --seconds 1.2
sample in.npy 1000
{
    tersegrad codecs
    tersegrad inspect in.npy
    tersegrad frob
    tersegrad bench --codec none -n 10 --seconds 0.7
} >piped 2>&1
if LC_ALL=C grep -q "$(printf '\033')" piped; then echo "piped: escape sequences"; else echo "piped: plain"; fi
