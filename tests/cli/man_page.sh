# The man page is well formed.
command -v groff >/dev/null || { echo "groff is not installed, so the man page was not formatted"; exit 77; }
groff -man -ww -Tutf8 "$SHARE/tersegrad.1" >/dev/null
echo "# one that is not is found"
printf '.TH a 1\n.nobody\n' | groff -man -ww -Tutf8 2>&1 >/dev/null | grep -c nobody
