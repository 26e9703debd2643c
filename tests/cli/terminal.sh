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
cat >line_of_80.py <<'END'
"""Whether the line of a run in training fits 80 columns and still ends with the ratio."""
import fcntl, os, pty, re, struct, sys, termios

pid, master = pty.fork()
if pid == 0:
    fcntl.ioctl(1, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    os.execvp(sys.argv[1], sys.argv[1:])
output, lines = b"", []
while not lines:
    output += os.read(master, 65536)
    text = re.sub(r"\x1b\[[0-9;]*m", "", output.decode(errors="replace"))
    lines = [line for line in text.split("\r\x1b[K")[:-1] if "░" in line]
os.kill(pid, 15)
os.waitpid(pid, 0)
print("fits" if len(lines[0]) < 80 else "wraps", "whole" if re.search(r"[0-9]x$", lines[0]) else "cut: " + lines[0])
END
try python3 line_of_80.py tersegrad train --steps 100000000 --codec gaussiank:density=0.01
sample in.npy 1000
{
    tersegrad codecs
    tersegrad inspect in.npy
    tersegrad frob
    tersegrad bench --codec none -n 10 --seconds 0.7
} >piped 2>&1
if LC_ALL=C grep -q "$(printf '\033')" piped; then echo "piped: escape sequences"; else echo "piped: plain"; fi
