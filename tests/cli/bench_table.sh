# bench/table.py: no frame spends fewer bits on indices than log2 C(d,k), and bits against the limit are never below 1.
. "$TOOLS/lib.sh"
cat >limits.py <<'END'
import importlib.util, shutil, sys
spec = importlib.util.spec_from_file_location("table", sys.argv[1])
table = importlib.util.module_from_spec(spec)
spec.loader.exec_module(table)
bench = table.Bench(shutil.which("tersegrad"), "cpu", 100000, 0, 1)
bench.run([table.topk(d) for d in table.DENSITIES] + [table.MAX + ",coding=entropy", table.L2 + ",coding=entropy"])
for operation, _, _, figures in table.lines(None):
    if operation.startswith("index bits") or operation.endswith(": bits"):
        print(operation, [figure >= 1 for figure in figures(bench)])
END
python3 limits.py "$SHARE/../bench/table.py"
