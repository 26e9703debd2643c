#!/usr/bin/env bash
# Documents: links that lead somewhere, lines of at most 100 columns, functions that are where a document says, and a picture that shows the
# figures it names. Messages: names that exist.
set -u
cd "$(dirname "$0")/.." || exit 1
. tests/report.sh

mapfile -t documents < <(git ls-files '*.md')

# broken FILE...: relative links, in text and in pictures, that name no file.
broken() {
    local file target
    for file in "$@"; do
        while read -r target; do
            [ -e "$(dirname "$file")/${target%%#*}" ] || echo "$file links to $target, which does not exist"
        done < <(grep -oE '\]\([^) ]+\)' "$file" | sed -E 's/^\]\(//; s/\)$//' | grep -vE '^(https?:|mailto:|#)')
    done
}

# long FILE...: lines of more than 100 characters, but for tables, code, pictures and lines that are one long link.
long() {
    python3 - "$@" <<'PYTHON'
import re, sys
for name in sys.argv[1:]:
    fenced = False
    for number, line in enumerate(open(name, encoding="utf-8"), 1):
        line = line.rstrip("\n")
        fenced ^= line.startswith("```")
        if len(line) > 100 and not fenced and not re.match(r"\||    |<|!\[|\s*\S+$", line):
            print(f"{name}:{number} has {len(line)} columns; wrap it at 100")
PYTHON
}

# astray FILE: what is wrong with the table of "Follow one gradient": a function that is not defined where it says, or too many of them.
astray() {
    python3 - "$1" <<'PYTHON'
import pathlib, re, sys
text = pathlib.Path(sys.argv[1]).read_text(encoding="utf-8")
section = text.partition("## Follow one gradient\n")[2].partition("\n## ")[0]
rows = re.findall(r"^\| \d+ \| `(\w+)` \| `([\w/.]+)` \|", section, re.M)
if not 1 <= len(rows) <= 15:
    print(f"{sys.argv[1]} names {len(rows)} functions to follow one gradient, not 1 to 15")
for function, file in rows:
    path = pathlib.Path(file)
    if not path.exists() or not re.search(rf"^\w[^;=]*?[ *]{function}\([^;]*?\)\n\{{", path.read_text(), re.M):
        print(f"{sys.argv[1]} names {function}, which is not defined in {file}")
PYTHON
}

# strangers ROOT: strings that name something of the library which its header lacks. A string that is a name alone is a
# symbol of a module.
strangers() {
    python3 - "$1" <<'PYTHON'
import pathlib, re, sys
root = pathlib.Path(sys.argv[1])
known = set(re.findall(r"\b(?:tg|TG)_\w+", pathlib.Path("include/tersegrad.h").read_text(encoding="utf-8")))
files = [f for folder in ("src", "cli", "common", "predict", "train") for f in sorted((root / folder).rglob("*"))]
for file in files:
    if file.suffix not in (".c", ".h", ".cu", ".cuh"):
        continue
    text = re.sub(r"/\*.*?\*/", lambda comment: "\n" * comment[0].count("\n"), file.read_text(encoding="utf-8"), flags=re.S)
    for number, line in enumerate(text.splitlines(), 1):
        for string in re.findall(r'"((?:[^"\\]|\\.)*)"', line):
            for name in re.findall(r"\b(?:tg|TG)_\w+", string):
                if name not in known and name != string:
                    print(f'{file}:{number} names {name}, which include/tersegrad.h lacks: "{string}"')
PYTHON
}

report_lines() { # report_lines SENTENCE LINES
    if [ -z "$2" ]; then
        pass "$1"
    else
        while read -r line; do fail "$line"; done <<<"$2"
    fi
}

report_lines "every link of ${#documents[@]} documents leads to a file" "$(broken "${documents[@]}")"
report_lines "no line is longer than 100 columns" "$(long "${documents[@]}")"
report_lines "docs/architecture.md: the functions of one gradient are where it says" "$(astray docs/architecture.md)"
report_lines "messages name nothing of the library that its header lacks" "$(strangers .)"
expect "docs/figures/overview.svg shows docs/figures/measured.json" python3 bench/figures.py --check
expect "docs/figures/training.svg shows docs/figures/training.json" python3 bench/curves.py --check

# Checks that cannot fail check nothing.
wrong=$(mktemp -d)
trap 'rm -rf "$wrong"' EXIT
{ echo '[a](nowhere.md)'; printf 'word %.0s' {1..30}; echo; } >"$wrong/a.md"
{ echo '## Follow one gradient'; echo '| 1 | `nobody` | `src/frame/encode.c` | |'; } >"$wrong/b.md"
expect "finds a function that is not there" test "$(astray "$wrong/b.md" | wc -l)" -eq 1
expect "finds a broken link" test "$(broken "$wrong/a.md" | wc -l)" -eq 1
mkdir "$wrong/src"
echo 'x = "tg_nobody"; /* "tg_nobody did not start" */ y = "tg_launch failed; see tg_encode, TG_OK";' >"$wrong/src/a.c"
expect "finds a name that the header lacks" test "$(strangers "$wrong" | wc -l)" -eq 1
expect "finds a long line" test "$(long "$wrong/a.md" | wc -l)" -eq 1
finish
