# What .npy files may be: versions, byte orders, types, shapes.
. "$TOOLS/lib.sh"
show() {
    tersegrad encode -f none "$1" out.tg >/dev/null && tersegrad decode -f out.tg out.npy >/dev/null && npy show out.npy
}
for version in 1 2 3; do
    npy make in.npy '<f4' --version $version 1 2 3
    show in.npy
done
for dtype in '<f4' '>f4' '<f2' '>f2' '<f8' '>f8'; do
    npy make in.npy "$dtype" 0 -0 1 -1.5 0.333251953125 65504
    echo "$dtype"
    show in.npy
done
echo "shapes"
npy make in.npy '<f4' --shape '(2, 3)' 1 2 3 4 5 6
show in.npy
npy make in.npy '<f4' --shape '()' 7
show in.npy
npy make in.npy '<f4' --shape '(0,)'
show in.npy
npy make in.npy '<f4' --shape '(0, 5)'
show in.npy
npy make in.npy '<f4' --fortran --shape '(3,)' 1 2 3
show in.npy
npy make in.npy '<f4' --fortran --shape '(3, 1)' 1 2 3
show in.npy
npy make in.npy '<f4' --fortran --shape '(1, 1, 3)' 1 2 3
show in.npy
npy make in.npy '<f4' --fortran --shape '(0, 3, 2)'
show in.npy
npy make in.npy '<f4' --shape '(2L, 1L)' 1 2
show in.npy
npy header in.npy '{"shape":(1,),"descr":"<f4","fortran_order":False}' 0000803f
show in.npy
echo "float64 beyond float32"
npy make in.npy '<f8' 1e300 1
try tersegrad encode -f none in.npy out.tg
try tersegrad encode -f --nonfinite zero none in.npy out.tg
echo "dtypes of the output"
npy make in.npy '<f4' 1 1e6 1e-9
tersegrad encode -f none in.npy out.tg
try tersegrad decode -f --dtype f2 out.tg out.npy
npy show out.npy
npy make in.npy '<f2' 1 0.1
tersegrad encode -f none in.npy out.tg
try tersegrad decode -f out.tg out.npy
npy show out.npy
try tersegrad decode -f --dtype f4 out.tg out.npy
npy show out.npy
