# The readers of `tersegrad train` on files: each format, gzipped and not, and what is wrong with bad ones.
. "$TOOLS/lib.sh"
python3 - <<'END'
import gzip, os, random, struct
rng = random.Random(1)
rows = [[rng.gauss(0, 1) for _ in range(6)] for _ in range(400)]
w = [1.0, -2.0, 0.5, 0.0, 3.0, -1.0]
score = [sum(a * b for a, b in zip(w, row)) for row in rows]

def libsvm(name, labels, rows):
    lines = ["%s %s" % (y, " ".join("%d:%.6g" % (i + 1, v) for i, v in enumerate(row) if v)) for y, row in zip(labels, rows)]
    (gzip.open if name.endswith(".gz") else open)(name, "wt").write("\n".join(lines) + "\n")
libsvm("real.txt", ["%.6g" % s for s in score[:300]], rows)
libsvm("real.txt.t", ["%.6g" % s for s in score[300:]], rows[300:])
libsvm("two.gz", ["+1" if s > 0 else "-1" for s in score], rows)
libsvm("three.txt", [str(1 + (s > -1) + (s > 1)) for s in score], rows)

def npy(name, values, shape, descr="<f4", letter="f"):
    header = "{'descr': '%s', 'fortran_order': False, 'shape': %s, }" % (descr, shape)
    header += " " * (-(10 + len(header) + 1) % 64) + "\n"
    open(name, "wb").write(b"\x93NUMPY\x01\0" + struct.pack("<H", len(header)) + header.encode() + struct.pack("<%d%s" % (len(values), letter), *values))
flat = [v for row in rows for v in row]
npy("x.npy", flat, (400, 6)); npy("y.npy", score, (400,)); npy("class.npy", [float(s > 0) for s in score], (400,))
npy("xt.npy", flat[:60], (10, 6)); npy("yt.npy", score[:10], (10,)); npy("flat.npy", flat, (2400,)); npy("short.npy", score[:9], (9,))
npy("int.npy", [int(s > 0) for s in score], (400,), "<i8", "q"); npy("bool.npy", [s > 0 for s in score], (400,), "|b1", "?")
npy("digits.npy", [0] * 7 + [2**24 + 1] * 393, (400,), "<i8", "q")
npy("narrow.npy", flat[:50], (10, 5)); npy("nan.npy", [float("nan")] + score[1:], (400,))

def idx(name, dims, data):
    (gzip.open if name.endswith(".gz") else open)(name, "wb").write(bytes([0, 0, 8, len(dims)]) + struct.pack(">%dI" % len(dims), *dims) + data)
def images(folder, count, prefix, ending):
    labels = [i % 3 for i in range(count)]
    idx("%s/%s-images-idx3-ubyte%s" % (folder, prefix, ending), [count, 2, 2], b"".join(bytes([200 * (k == c) for k in range(4)]) for c in labels))
    idx("%s/%s-labels-idx1-ubyte%s" % (folder, prefix, ending), [count], bytes(labels))
for folder, ending in (("idx", ""), ("idxgz", ".gz"), ("odd", ""), ("turned", "")):
    os.mkdir(folder)
    images(folder, 90, "train", ending); images(folder, 30, "t10k", ending)
idx("odd/t10k-labels-idx1-ubyte", [29], bytes(29))
idx("turned/t10k-images-idx3-ubyte", [30, 4, 1], bytes(120))
os.mkdir("wide"); idx("wide/train-images-idx3-ubyte.gz", [1, 8192, 8193], bytes(8192 * 8193)); idx("wide/train-labels-idx1-ubyte", [1], b"\0")
os.mkdir("half"); images("half", 90, "train", "")
os.mkdir("cifar"); os.mkdir("badcifar"); os.mkdir("gapcifar")
batch = b"".join(bytes([i % 2]) + bytes([255 * (i % 2)]) * 3072 for i in range(20))
for i in (1, 2): open("cifar/data_batch_%d.bin" % i, "wb").write(batch)
open("cifar/test_batch.bin", "wb").write(batch[:3073 * 4])
open("badcifar/data_batch_1.bin", "wb").write(batch[:-1])
for i in (1, 3): open("gapcifar/data_batch_%d.bin" % i, "wb").write(batch)
open("cut.gz", "wb").write(open("two.gz", "rb").read()[:-50])
END
# What it is taken for, and whether it learns it: data [options]
learn() {
    data=$1
    shift
    tersegrad train --data "$data" --steps 300 --workers 2 --batch 16 --codec none "$@" 2>/dev/null >table.txt || echo "-> $?"
    sed -n '1s/; .* parameters.*//p' table.txt
    tersegrad train --data "$data" --steps 300 --workers 2 --batch 16 --codec none "$@" --json 2>/dev/null |
        json '[("learned" if (r["accuracy"] or 0) > 0.9 or r["final_loss"] < 1e-3 else r["final_loss"]) for r in j["runs"]]'
}
learn real.txt
learn two.gz
learn two.gz --model logistic
learn three.txt
learn three.txt --model softmax --lr 2
tersegrad train --data three.txt --model linear:bias --steps 300 --codec none --json 2>/dev/null |
    json '[(0.01 < r["final_loss"] < 0.2, r["accuracy"]) for r in j["runs"]]'
learn x.npy,y.npy,xt.npy,yt.npy
learn x.npy,class.npy
learn x.npy,int.npy
for classes in class int bool; do
    tersegrad train --data x.npy,$classes.npy --steps 20 --json 2>/dev/null | json '[r["weights_hash"] for r in j["runs"]]'
done | sort -u | wc -l
learn idx
learn idxgz
learn cifar --lr 0.001
echo "# wrong files"
printf '1 1:2\n1 3:1 2:1\n' >order.txt
cp order.txt synapse.txt # no synthetic data
printf '\n# nothing\n' >nothing.txt
printf '1\n2\n' >labels.txt
for data in order.txt synapse.txt nothing.txt labels.txt cut.gz half odd turned wide badcifar gapcifar x.npy x.npy,short.npy flat.npy,y.npy x.npy,y.npy,xt.npy \
    x.npy,y.npy,narrow.npy,yt.npy x.npy,nan.npy x.npy,digits.npy x.npy,missing.npy two.gz,y.npy x.npy,y.npy,xt.npy,yt.npy,x.npy,y.npy; do
    try tersegrad train --data $data --steps 1
done
