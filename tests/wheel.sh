#!/usr/bin/env bash
# The Python package as users get it: source distribution, wheel from it, repaired to a manylinux tag, installed into a
# clean environment that has numpy alone; then beside torch.
set -u
cd "$(dirname "$0")/.." || exit 1
. tests/report.sh

python=$PWD/.venv/bin/python
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# Builds from a copy of what git knows, so that nothing of the clone's build/ gets in by chance.
git ls-files -z | tar --null -T - -c | tar -x -C "$work" --one-top-level=clone
cd "$work" || exit 1
expect "builds a source distribution" "$python" -m build --no-isolation --sdist --outdir dist clone
tar -xzf dist/tersegrad-*.tar.gz
expect "builds a wheel from it" "$python" -m build --no-isolation --wheel -C cmake.define.TERSEGRAD_CUDA=OFF --outdir dist tersegrad-*/
PATH=$(dirname "$python"):$PATH
expect "the wheel is repaired to a manylinux tag" "$python" -m auditwheel repair -w repaired dist/*.whl
expect "the tag names no version of Python" compgen -G 'repaired/tersegrad-*-py3-none-manylinux*.whl'

"$python" -m venv clean
# numpy is taken from where it is already; nothing is downloaded.
expect "the wheel installs" clean/bin/python -m pip -q --disable-pip-version-check install --no-deps --no-index repaired/*.whl
"$python" -c 'import numpy, os; print(os.path.dirname(os.path.dirname(numpy.__file__)))' >clean/numpy
mkdir site && ln -s "$(cat clean/numpy)"/numpy* site/
cat >try.py <<'PYTHON'
import numpy, tersegrad
library = tersegrad._library.find()
assert "site-packages" in str(library), library
gradient = numpy.arange(100, dtype=numpy.float32)
assert tersegrad.decode(tersegrad.encode(gradient, "topk:k=3")).nonzero()[0].tolist() == [97, 98, 99]
from tersegrad import _command
assert "site-packages" in str(_command.find()), _command.find()
assert _command.ask("plan", "--codec=qsgd")[0]["recommended"]["codec"]
PYTHON
expect "it encodes, decodes and predicts, with its own library and command" env PYTHONPATH=site clean/bin/python try.py

# torch and pytest of .venv come after the environment's own packages, so that what is imported is the wheel.
"$python" -c 'import os, torch; print(os.path.dirname(os.path.dirname(torch.__file__)))' >torch.pth
mv torch.pth clean/lib/python3*/site-packages/
cat >try_torch.py <<'PYTHON'
import sys, tersegrad.torch
assert tersegrad.torch.__file__.startswith(sys.prefix), tersegrad.torch.__file__
PYTHON
expect "it has tersegrad.torch" clean/bin/python try_torch.py
expect "a test of the hook passes with it" env TERSEGRAD_INSTALLED=1 clean/bin/python -m pytest -q -p no:cacheprovider \
    clone/python/tests/test_torch.py -k contract
finish
