# Help for the program and for every command, the version, and what happens without arguments.
. "$TOOLS/lib.sh"
try tersegrad --version
try tersegrad
try tersegrad --help
try tersegrad help encode
for command in $(tersegrad --help | sed -n 's/^  \([a-z]*\)  .*/\1/p' | grep -vx help); do
    try tersegrad $command --help
done
try tersegrad encode --bogus --help | head -n 2
try tersegrad help --help | head -n 2
try tersegrad help frob
try tersegrad encod
try tersegrad --versoin
try tersegrad frob
