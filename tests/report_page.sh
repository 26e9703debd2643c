#!/usr/bin/env bash
# The page of `tersegrad train --report` in a real browser: nothing from elsewhere, no complaint on the console, nothing wider than a
# telephone, no label cut off, text that can be read, in the light and in the dark.
set -u
cd "$(dirname "$0")/.." || exit 1
. tests/report.sh
command=$PWD/${1:-build/tersegrad}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 1

# One page with everything: classes, several runs of one codec, long names; one with an optimum, and a run that diverges.
"$command" train --data synthetic:rows=2000,features=20,classes=5 --model mlp:30,20 --steps 40 --workers 2 --report classes.html \
    --codec none --codec qsgd:levels=7,bucket=512,norm=max,coding=entropy --codec topk:density=0.01 --codec topk:density=0.1 \
    --codec gaussiank:density=0.02 --feedback none --feedback none --feedback ef --feedback ef --feedback dgc:momentum=0.9 --log classes.jsonl \
    2>/dev/null >/dev/null || fail "a report of classes"
"$command" train --data syn-256 --steps 200 --workers 2 --report optimum.html --codec none --codec qsgd:levels=1,norm=l2,bucket=0 \
    --feedback none --feedback ef --insist --log optimum.jsonl 2>/dev/null >/dev/null || fail "a report with an optimum"
# Ten runs that differ in one parameter, over more test rows than a point on the way looks at.
runs=()
for levels in 1 2 3 4 5 6 7 8 9 10; do runs+=(--codec "qsgd:levels=$levels,bucket=128"); done
"$command" train --data synthetic:rows=500,test=3000,features=20,classes=3 --steps 40 --workers 2 --report ten.html --json "${runs[@]}" \
    2>/dev/null >ten.json || fail "a report of ten runs"
if ! "$command" report classes.jsonl optimum.jsonl -o both.html >/dev/null 2>err; then
    grep -q 'built without jansson' err || fail "a report of two logs"
    cp classes.html both.html
fi

"$command" plan --model gpt2 --world 10000 --per-node 8 --report plan.html >/dev/null || fail "a report of a plan"

# The page in a frame of 360 pixels; what is wrong with it becomes the text of this one.
cat >look.html <<'HTML'
<!DOCTYPE html><meta charset="utf-8"><iframe id="f" width="360" height="2000" style="border:0"></iframe><pre id="out"></pre>
<script>
const frame = document.getElementById('f'), problems = [];
function luminance(c) {
  const v = c.match(/[\d.]+/g).slice(0, 3).map(x => { x /= 255; return x <= 0.04045 ? x / 12.92 : ((x + 0.055) / 1.055) ** 2.4; });
  return 0.2126 * v[0] + 0.7152 * v[1] + 0.0722 * v[2];
}
function contrast(a, b) { const x = luminance(a), y = luminance(b); return (Math.max(x, y) + 0.05) / (Math.min(x, y) + 0.05); }
frame.onload = () => {
  const w = frame.contentWindow, d = w.document, style = e => w.getComputedStyle(e);
  if (d.documentElement.scrollWidth > 360) problems.push('the page is ' + d.documentElement.scrollWidth + ' pixels wide');
  for (const e of d.querySelectorAll('main *'))
    if (!e.closest('.scroll') && e.getBoundingClientRect().right > 361) problems.push(e.tagName + ' ends at ' + e.getBoundingClientRect().right);
  for (const svg of d.querySelectorAll('svg:not(.key)')) {
    const box = svg.getBoundingClientRect();
    if (box.height < 60) problems.push('a chart is ' + box.height + ' pixels high');
    if (!svg.getAttribute('aria-label')) problems.push('a chart without a description');
    const figure = svg.closest('figure'), title = figure.querySelector('figcaption').textContent;
    if (!figure.querySelector('p.note') || figure.querySelector('p.note').textContent.length < 30) problems.push(title + ': no sentence below it');
    const lines = [...svg.querySelectorAll('.line')], entries = figure.querySelectorAll('.legend li').length;
    if (lines.length > 0 && lines.length != entries) problems.push(title + ': ' + lines.length + ' lines and ' + entries + ' names');
    const looks = new Set(lines.map(l => style(l).stroke + style(l).strokeDasharray));
    if (looks.size < lines.length) problems.push(title + ': two lines look alike');
    const widths = lines.map(l => parseFloat(l.getAttribute('stroke-width')));
    if (widths.some((x, i) => i > 0 && x >= widths[i - 1])) problems.push(title + ': a line hides the one below it');
    if (lines.length > 0 && [...svg.querySelectorAll('circle title')].length < 10) problems.push(title + ': no values to hover');
    for (const t of svg.querySelectorAll('text')) {
      const r = t.getBoundingClientRect();
      if (r.right > box.right + 1 || r.left < box.left - 1 || r.bottom > box.bottom + 1 || r.top < box.top - 1)
        problems.push('cut off: ' + t.textContent);
      if (r.height > 0 && parseFloat(style(t).fontSize) * box.width / 420 < 8) problems.push('too small: ' + t.textContent);
    }
  }
  const page = style(d.body).backgroundColor, box = style(d.querySelector('figure')).backgroundColor;
  for (const e of d.querySelectorAll('h1, h2, p, th, td, figcaption'))
    if (contrast(style(e).color, page) < 4.5) problems.push('faint: ' + e.textContent.slice(0, 30));
  for (const e of d.querySelectorAll('svg text'))
    if (contrast(style(e).fill, box) < 4.5) problems.push('faint: ' + e.textContent);
  for (const r of w.performance.getEntriesByType('resource')) if (!r.name.startsWith('data:')) problems.push('loads ' + r.name);
  document.getElementById('out').textContent = 'LOOKED ' + d.querySelectorAll('svg:not(.key)').length + ' ' + page + '\n' + problems.join('\n');
};
frame.src = location.hash.slice(1);
</script>
HTML

# look PAGE SCHEME BACKGROUND CHARTS
look() {
    local dark=()
    [ "$2" = light ] || dark=(--blink-settings=preferredColorScheme=0)
    timeout "$patience" chromium --headless --no-sandbox --disable-gpu --allow-file-access-from-files --enable-logging=stderr \
        --user-data-dir="$work/profile" --virtual-time-budget=3000 --dump-dom "${dark[@]}" "file://$work/look.html#$1" >dom 2>log
    sed -n '/<pre id="out">/,/<\/pre>/p' dom | sed 's/.*<pre id="out">//; s/<\/pre>.*//' >seen
    expect "$1, $2: $4 charts on the right ground" grep -qxF "LOOKED $4 $3" seen
    expect "$1, $2: nothing wrong at 360 pixels" sh -c '[ -z "$(tail -n +2 seen | tee /dev/stderr)" ]'
    expect "$1, $2: the console is silent" sh -c '! grep CONSOLE log'
}
look classes.html light "rgb(251, 251, 250)" 12
look classes.html dark "rgb(21, 21, 23)" 12
look optimum.html light "rgb(251, 251, 250)" 9
look optimum.html dark "rgb(21, 21, 23)" 9
look ten.html light "rgb(251, 251, 250)" 16
look plan.html light "rgb(251, 251, 250)" 3
look plan.html dark "rgb(21, 21, 23)" 3
if grep -q jsonl both.html; then look both.html light "rgb(251, 251, 250)" 7; fi
# what a page says: contains PAGE TEXT...
contains() {
    local page=$1 text
    shift
    for text in "$@"; do expect "$page has: $text" grep -qF "$text" "$page"; done
}
contains classes.html "Loss by time" "Accuracy by step" "Residual norm by step" "Elements sent by step" ">wire<" ">frames<" \
    "<dt>command</dt><dd><code>tersegrad train --data synthetic:rows=2000,features=20,classes=5" "<dt>seed</dt><dd>1<" "<dt>date</dt><dd>20" \
    "<dt>host</dt>" "<dt>version</dt><dd>tersegrad"
contains plan.html "Recommended for gpt2" "Step time by bandwidth" "Step time by world" "Which codec wins" "assumed: latency"
contains optimum.html "<td>diverged</td>" "(diverged)</li>" 'class="cross '
contains ten.html ">qsgd levels=1<" ">qsgd levels=10<" "Over 1 000 of 3 000 test rows before the last step, and over all of them at the last step"
expect "the last point of each run is the table's loss" python3 -c 'import json, re
page = open("ten.html", encoding="utf-8").read()
chart = page[page.index("Loss by step"):page.index("Loss by bytes sent")]
last = {name: float(loss) for name, loss in re.findall(r"<title>(qsgd levels=\d+)\nstep 40\ntest loss ([^<]*)<", chart)}
runs = {"qsgd " + re.search(r"levels=\d+", run["codec"]).group(): run["final_loss"] for run in json.load(open("ten.json"))["runs"]}
assert last.keys() == runs.keys() and all(abs(last[name] / runs[name] - 1) < 1e-5 for name in runs), (last, runs)'

expect "the page names nothing on a network" sh -c '! grep -E "https?:|src=|@import" classes.html optimum.html ten.html both.html'
finish
