# Where encode and decode write: default names, -o, several inputs, --force, --quiet, and that no input is ever overwritten.
. "$TOOLS/lib.sh"
sample a.npy 100
sample b.npy 200
cp a.npy a.copy
echo "# default names, one input or several; back again"
try tersegrad encode none a.npy
try tersegrad encode none a.npy b.npy
echo "# what exists is kept, unless --force is given; other inputs are still done"
rm b.tg
try tersegrad encode fp16 a.npy b.npy
try tersegrad encode -f none a.npy b.npy
rm a.npy b.npy
try tersegrad decode a.tg b.tg
cmp a.npy a.copy && echo "a.npy is back"
try tersegrad decode a.tg
try tersegrad decode --force --quiet a.tg
echo "# -o, with either order of options and operands"
try tersegrad encode none -o x.frame a.npy
try tersegrad encode none a.npy -o y.tg -q
try tersegrad decode x.frame -o x.npy -q
cmp x.npy a.copy && echo "x.npy is a.npy"
try tersegrad encode none a.npy b.npy -o z.tg
try tersegrad encode none a.npy -o x.frame
try tersegrad encode none a.npy x.frame --force
echo "# the second of two names may be the output where its ending says so"
try tersegrad encode none a.npy w.tg
try tersegrad encode none a.npy w.tg
try tersegrad decode w.tg w.npy
try tersegrad decode w.tg w.npy
echo "# an input is never overwritten, not even with --force, not through a link"
try tersegrad encode none a.npy -o a.npy --force
ln -s a.npy link.tg
try tersegrad encode none a.npy link.tg --force
ln a.npy hard.tg
try tersegrad encode none a.npy hard.tg --force
try tersegrad decode a.tg -o ./a.tg --force
cmp a.npy a.copy && echo "a.npy is as it was"
echo "# two inputs with one output"
mkdir dir
cp a.npy dir/c.npy
cp a.npy c
try tersegrad encode none c c.npy
try tersegrad decode x.frame
echo "# standard input goes to standard output"
try_line 'tersegrad encode none <a.npy - | tersegrad decode - | cmp - a.npy'
try_line 'tersegrad encode none -q a.npy -o - | tersegrad decode -q - -o - | cmp - a.npy'
try_line 'tersegrad encode none - -o s.tg -q <a.npy'
try_line 'tersegrad encode none - a.npy <b.npy'
echo "# one that fails does not stop the others"
echo nonsense >bad.npy
rm -f a.tg b.tg
try tersegrad encode none a.npy bad.npy missing.npy b.npy
ls a.tg b.tg bad.tg missing.tg
echo "# JSON"
tersegrad encode none a.npy -f --json | json '(j["input"], j["output"], j["count"])'
tersegrad encode none a.npy b.npy -f --json | json '[(f["input"], f["output"], f["count"]) for f in j["files"]]'
tersegrad decode a.tg b.tg -f --json | json '[(f["input"], f["output"], f["count"]) for f in j["files"]]'
try tersegrad encode none a.npy --json -o -
echo "# --quiet says nothing that is not an error"
npy make wide.npy '<f8' 1 2
try tersegrad encode none wide.npy
try tersegrad encode none wide.npy -f -q
try tersegrad encode none wide.npy -q
