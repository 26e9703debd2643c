# Files that are no .npy, or not one that can be read: exit code 1 and a message that says why.
. "$TOOLS/lib.sh"
bad() {
    echo "# $1"
    tersegrad encode none in.npy out.tg
    echo "-> $?"
}
good="{'descr': '<f4', 'fortran_order': False, 'shape': (2,), }"
bad "missing"
mkdir in.npy
bad "a directory"
rmdir in.npy
: >in.npy
bad "empty"
echo "not an array" >in.npy
bad "wrong magic"
npy make in.npy '<f4' 1 2 3
npy cut in.npy 6
bad "magic alone"
npy make in.npy '<f4' 1 2 3
npy cut in.npy 9
bad "cut in the length"
npy make in.npy '<f4' 1 2 3
npy cut in.npy 40
bad "cut in the header"
npy make in.npy '<f4' 1 2 3
npy cut in.npy 139
bad "cut in the data"
npy header in.npy "$good" 0000803f0000803f00
bad "a byte too many"
npy make in.npy '<f4' 1 2
npy patch in.npy 6 04
bad "version 4"
npy make in.npy '<f4' 1 2
npy patch in.npy 8 ffff
bad "a header length past the end"
npy make in.npy '<f4' --fortran --shape '(2, 2)' 1 2 3 4
bad "Fortran order"
npy make in.npy '<i4' 1 2 3
bad "integers"
npy header in.npy "{'descr': '<c8', 'fortran_order': False, 'shape': (1,), }" 0000000000000000
bad "complex numbers"
npy header in.npy "{'descr': [('x', '<f4')], 'fortran_order': False, 'shape': (1,), }" 00000000
bad "records"
npy header in.npy "{'descr': '<f4', 'fortran_order': False, 'shape': (18446744073709551615, 18446744073709551615), }"
bad "more elements than can be counted"
npy header in.npy "{'descr': '<f4', 'fortran_order': False, 'shape': (4611686018427387905,), }"
bad "more elements than bytes"
npy header in.npy "{'descr': '<f4', 'fortran_order': False, 'shape': (-1,), }"
bad "a negative shape"
npy header in.npy "{'descr': '<f4', 'fortran_order': False, 'shape': (2), }"
bad "a shape that is a number"
npy header in.npy "{'descr': '<f4', 'fortran_order': False, 'shape': [2], }"
bad "a shape that is a list"
npy header in.npy "{'descr': '<f4', 'fortran_order': Maybe, 'shape': (2,), }"
bad "neither True nor False"
npy header in.npy "{'descr': '<f4', 'shape': (2,), }" 0000803f0000803f
bad "a key that is missing"
npy header in.npy "{'descr': '<f4', 'descr': '<f4', 'fortran_order': False, 'shape': (2,), }" 0000803f0000803f
bad "a key that comes twice"
npy header in.npy "{'descr': '<f4', 'fortran_order': False, 'shape': (2,), 'more': 1, }" 0000803f0000803f
bad "a key that is unknown"
npy header in.npy "$good {" 0000803f0000803f
bad "more after the dictionary"
npy header in.npy "{'descr': '<f4', 'fortran_order': False, 'shape': (2,)" 0000803f0000803f
bad "a dictionary that does not end"
npy header in.npy "{'descr': '<f4" 0000803f0000803f
bad "a text that does not end"
npy header in.npy "{'descr': '$(printf '\033[31m')', 'fortran_order': False, 'shape': (2,), }" 0000803f0000803f
bad "an escape sequence"
ls
