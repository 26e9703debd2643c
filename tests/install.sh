#!/usr/bin/env bash
# Installs into an empty folder and uses what lies there as a stranger would, with pkg-config and CMake, shared and
# static; then uninstalls.
set -u
cd "$(dirname "$0")/.." || exit 1
. tests/report.sh
unset PKG_CONFIG_PATH PKG_CONFIG_LIBDIR
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

cat >"$work/consumer.c" <<'C'
#include <stdio.h>
#include <string.h>
#include <tersegrad.h>

int main(void) {
    tg_spec spec;
    tg_error error;
    if (tg_spec_parse("qsgd:levels=7,bucket=512", &spec, &error) != TG_OK) {
        fprintf(stderr, "%s\n", error.message);
        return 1;
    }
    printf("%s\n", tg_version());
    return strcmp(tg_version(), TG_VERSION_TEXT) != 0;
}
C

# install ARGUMENT...: this tree, with these settings of make.
install_tree() {
    ${MAKE:-make} --no-print-directory -s install "$@"
}

# ---- PREFIX, pkg-config ----
prefix=$work/prefix
expect "make install PREFIX=" install_tree PREFIX="$prefix"
export PKG_CONFIG_PATH=$prefix/lib/pkgconfig
read -ra flags < <(pkg-config --cflags --libs tersegrad)
expect "compiles with pkg-config" gcc -o "$work/shared" "$work/consumer.c" "${flags[@]}"
expect "runs with the shared library" env LD_LIBRARY_PATH="$prefix/lib" "$work/shared"
expect "is linked with it" sh -c "readelf -d '$work/shared' | grep -q 'libtersegrad.so.0'"
expect "compiles with the static library" gcc -o "$work/static" "$work/consumer.c" \
    "-I$(pkg-config --variable=includedir tersegrad)" "$prefix/lib/libtersegrad.a"
expect "runs with the static library" "$work/static"
version=$(sed -n 's/^#define TG_VERSION_TEXT "\(.*\)"/\1/p' include/tersegrad.h)
expect "pkg-config knows the version" test "$(pkg-config --modversion tersegrad)" = "$version"
expect "the installed command runs" "$prefix/bin/tersegrad" --version
for mpi in openmpi mpich; do
    [ ! -e "build/mpi-$mpi.so" ] || expect "the module for $mpi is installed" test -s "$prefix/lib/tersegrad/mpi-$mpi.so"
done
expect "the manual page is installed" test -s "$prefix/share/man/man1/tersegrad.1"
expect "the completion is installed" test -s "$prefix/share/bash-completion/completions/tersegrad"
expect "the completion for zsh is installed" test -s "$prefix/share/zsh/site-functions/_tersegrad"

# ---- CMake, from a tree that was moved after it was installed ----
mv "$prefix" "$work/moved"
cat >"$work/CMakeLists.txt" <<'CMAKE'
cmake_minimum_required(VERSION 3.13)
project(consumer C)
find_package(tersegrad 0.1 REQUIRED)
add_executable(with_shared consumer.c)
target_link_libraries(with_shared tersegrad::tersegrad)
add_executable(with_static consumer.c)
target_link_libraries(with_static tersegrad::static)
CMAKE
expect "CMake finds the package" cmake -S "$work" -B "$work/cmake" -DCMAKE_PREFIX_PATH="$work/moved"
expect "CMake builds with it" cmake --build "$work/cmake"
expect "the CMake program runs, shared" "$work/cmake/with_shared"
expect "the CMake program runs, static" "$work/cmake/with_static"
sed -i 's/tersegrad 0.1/tersegrad 0.99/' "$work/CMakeLists.txt"
expect "CMake refuses another version" sh -c "! cmake -S '$work' -B '$work/other' -DCMAKE_PREFIX_PATH='$work/moved'"

# ---- DESTDIR and a library folder of one's own, as a packager uses them ----
expect "make install DESTDIR=" install_tree DESTDIR="$work/stage" PREFIX=/usr LIBDIR=/usr/lib/somewhere
expect "the staged .pc names the final place" grep -qx 'libdir=/usr/lib/somewhere' \
    "$work/stage/usr/lib/somewhere/pkgconfig/tersegrad.pc"
expect "nothing staged knows the stage" sh -c "! grep -rqF '$work' '$work/stage'"
expect "CMake finds the header from a deep library folder" sh -c "sed -i 's/0.99/0.1/' '$work/CMakeLists.txt' &&
    cmake -S '$work' -B '$work/deep' -Dtersegrad_DIR='$work/stage/usr/lib/somewhere/cmake/tersegrad' &&
    cmake --build '$work/deep' && '$work/deep/with_shared'"

# ---- and away again: nothing is left of it, and nothing else is touched ----
left() {
    find "$1" ! -type d -printf '%P\n'
    find "$1" -type d -name '*tersegrad*' -printf '%P/\n'
}
mv "$work/moved" "$prefix"
touch "$prefix/lib/another.so" "$prefix/bin/another"
expect "make uninstall PREFIX=" ${MAKE:-make} --no-print-directory -s uninstall PREFIX="$prefix"
expect "leaves nothing but what is not ours" test "$(left "$prefix" | sort | paste -sd' ')" = "bin/another lib/another.so"
expect "make uninstall DESTDIR=" ${MAKE:-make} --no-print-directory -s uninstall DESTDIR="$work/stage" PREFIX=/usr LIBDIR=/usr/lib/somewhere
expect "leaves nothing on the stage" test -z "$(left "$work/stage")"
finish
