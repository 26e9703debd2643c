# The benchmark's JSON, with the times left out, and the rules that its figures keep.
. "$TOOLS/lib.sh"
bench() {
    tersegrad bench --json --seconds 0 "$@" >out.json
    echo "-> $?"
}
bench -n 5000 --codec qsgd:levels=7 --codec topk:density=0.01 --codec none --codec onebit
json 'list(j)' <out.json
json 'list(j["floors_ms"])' <out.json
json 'all(v > 0 for v in j["floors_ms"].values())' <out.json
for row in 0 1; do
    json "list(j['rows'][$row])" <out.json
done
json '[(r["codec"], r["count"], r["distribution"], r["feedback"], r["bytes"]) for r in j["rows"]]' <out.json
json '[r["selected"] for r in j["rows"] if "selected" in r]' <out.json
json 'all(abs(r["encode_x_floor"] * r["floors_ms"]["read"] / r["encode_ms"] - 1) < 1e-9 for r in j["rows"])' <out.json
json 'all(abs(r["decode_add_x_floor"] * r["floors_ms"]["scale"] / r["decode_add_ms"] - 1) < 1e-9 for r in j["rows"])' \
    <out.json
json 'all(r["verify_ms"] > 0 and r["bits_per_element"] == 8 * r["bytes"] / r["count"] for r in j["rows"])' <out.json
json '[round(r["limit_bits_per_element"], 4) for r in j["rows"]]' <out.json
json '[r["limit_bits_per_element"] <= r["bits_per_element"] for r in j["rows"]]' <out.json
json '[round(r["relative_error"], 4) for r in j["rows"]]' <out.json
json 'all(abs(r["encode_gb_per_s"] * r["encode_ms"] / (4e-6 * r["count"]) - 1) < 1e-9 for r in j["rows"])' <out.json
json '[r["break_even_gbit_per_s"] is None or abs(r["break_even_gbit_per_s"] * (r["encode_ms"] + r["decode_add_ms"]) / (8e-6 * (4 * r["count"] - r["bytes"])) - 1) < 1e-9 for r in j["rows"]]' <out.json
json '[r["break_even_gbit_per_s"] is None for r in j["rows"]]' <out.json
json '[v.split(",")[0] for v in j["verdict"]]' <out.json
echo "# with feedback; an unstable pairing is a row with an error"
bench -n 5000 --feedback --codec qsgd --codec qsgd:norm=l2,levels=1
json '[abs(r["encode_x_floor"] * r["floors_ms"]["accumulate"] / r["encode_ms"] - 1) < 1e-9 for r in j["rows"][:1]]' \
    <out.json
json '[(r["feedback"], r["bytes"], "error" in r, r["encode_ms"] is None) for r in j["rows"]]' <out.json
echo "# distributions"
for distribution in gaussian laplace student uniform mixture equal signs sorted layer ambush; do
    bench -n 3000 --distribution $distribution --codec qsgd:levels=127
    json '(j["rows"][0]["distribution"], 0 < j["rows"][0]["relative_error"] < 0.1)' <out.json
done
echo "# a file, repeated and cut"
npy make file.npy '<f4' 1 0 0 0
for count in 4000 2; do
    bench -n $count --distribution file.npy --codec topk:density=0.25
    json '(j["rows"][0]["distribution"], j["rows"][0]["selected"], j["rows"][0]["relative_error"])' <out.json
done
bench -n 10 --distribution missing.npy --codec none
npy make empty.npy '<f4' --shape '(0,)'
bench -n 10 --distribution empty.npy --codec none
echo "# the standard list has every codec, written out"
bench -n 1000
python3 - <<'END'
import json, subprocess
rows = json.load(open("out.json"))["rows"]
names = subprocess.run(["tersegrad", "codecs", "--names"], capture_output=True, text=True).stdout.split()
print({r["codec"].split(":")[0] for r in rows} == set(names), len(rows) == len({r["codec"] for r in rows}))
END
echo "# for people"
tersegrad bench -n 1000 --seconds 0 --codec qsgd --device cpu/scalar |
    sed 's/[0-9][0-9]*\.[0-9]*\(e-[0-9]*\)*/N/g; s/  */ /g; /In short/,$d'
tersegrad bench -n 1000 --seconds 0 --codec qsgd --device cpu/scalar | sed '1,/In short/d' | tr -s ' \n' ' ' |
    sed 's/[0-9][0-9.]*\(e-[0-9]*\)*/N/g'
echo
tersegrad bench -n 1000 --seconds 0 --codec qsgd --device cpu/scalar --wide |
    sed 's/[0-9][0-9]*\.[0-9]*\(e-[0-9]*\)*/N/g; s/  */ /g; /In short/,$d'
tersegrad bench -n 1000 --seconds 0 --feedback --codec qsgd:norm=l2,levels=1 | tail -n 3 | cut -c 1-60
echo "# threads, decades, comparison"
bench -n 140000 --codec qsgd --codec topk --device cpu/scalar:threads=3
json '(j["device"], [r["bytes"] for r in j["rows"]])' <out.json
bench -n 100000 --decades --codec qsgd
json '[(d["count"], d["read_ns"] > 0, [r["encode_ns"] > 0 and r["decode_add_ns"] > 0 for r in d["rows"]]) for d in j["decades"]]' <out.json
bench -n 9999 --decades --codec qsgd
bench --decades --compare
bench -n 5000 --codec none --codec qsgd --codec fp16 --compare
echo "# ours and theirs are held to the same floors"
json 'all(abs(r["encode_x_floor"] * j["floors_ms"]["read"] / r["encode_ms"] - 1) < 1e-9 for r in j["rows"])' <out.json
json 'all(abs(r["decode_add_x_floor"] * j["floors_ms"]["scale"] / r["decode_add_ms"] - 1) < 1e-9 for r in j["rows"])' <out.json
json '{abs(r["x_floor"] * j["floors_ms"][{"R": "read", "S": "scale", "A": "accumulate"}[r["floor"]]] / r["ms"] - 1) < 1e-9 for r in j["compare"] if r["ms"]} <= {True}' <out.json
json '[sorted(r) == ["bits_per_element", "floor", "ms", "name", "note", "x_floor"] for r in j["compare"]][:1]' <out.json
json '{n for n in ("numpy", "torch", "piquant", "hivemind", "zstd") if not any(n in r["name"] for r in j["compare"])}' <out.json
json 'all(r["ms"] or r["note"] for r in j["compare"])' <out.json
(PATH=$(dirname "$(command -v tersegrad)") && bench -n 5000 --codec none --compare)
tersegrad bench --devices | grep -x cpu/scalar
tersegrad bench --devices --json | json '"cpu/scalar" in j["devices"]'
tersegrad bench -n 1 --seconds 0 --codec none --nonfinite trust --json | json 'j["rows"][0]["bytes"]'
