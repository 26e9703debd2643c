# A training that is interrupted or fails keeps what was reached: table, log, page and checkpoint, and says how to go on.
. "$TOOLS/lib.sh"
cat >interrupt.py <<'END'
"""Starts a training that would take for ever, interrupts it in its second run, and tells what it left."""
import json, os, signal, subprocess

options = ["tersegrad", "train", "--data", "synthetic:rows=2000,test=200,features=20,classes=4", "--model", "mlp:16", "--workers", "3",
           "--momentum", "0.9", "--codec", "qsgd", "--codec", "topk:density=0.05"]

def hashes(*more):
    done = subprocess.run(options + list(more) + ["--json"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=False)
    return [run["weights_hash"] for run in json.loads(done.stdout)["runs"]]

steps = 3000
# The log is a pipe: the training is never more than its buffer ahead of what is read here, so it cannot end before the signal.
os.mkfifo("log")
process = subprocess.Popen(options + ["--steps", str(steps), "--checkpoint", "c.ckpt", "--every", "1000000", "--log", "log", "--report",
                                      "page.html"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
with open("log", encoding="utf-8") as log:
    for text in log:
        last = json.loads(text)
        if last.get("run") == 1 and last["step"] == 5:
            process.send_signal(signal.SIGINT)
out, err = process.communicate()
print("exit", process.returncode, "in run", last["run"], "before its end" if last["step"] < steps else "at its end")
print("table:", [line.split()[0] for line in out.splitlines() if line.startswith("  ")][:3])
print("the table says where it stopped:", "stopped after step %d of %s" % (last["step"], steps) in out)
print([line.replace(str(last["step"]) + " of", "N of") for line in err.splitlines()[-2:]])
print("page:", "Training ended early: interrupted" in open("page.html", encoding="utf-8").read())
print("resumed to the same weights:", hashes("--steps", str(steps), "--resume", "c.ckpt") == hashes("--steps", str(steps)))
END
try python3 interrupt.py
echo "# what later runs had done stays in the checkpoints of earlier ones"
cat >later.py <<'END'
"""Goes on with two runs of 50 steps, in the same checkpoint, and interrupts the first."""
import json, os, signal, subprocess

train = ["tersegrad", "train", "--data", "syn-256"]
both = train + ["--codec", "none", "--codec", "topk:density=0.1", "--checkpoint", "both.ckpt"]
subprocess.run(both + ["--steps", "50"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True)
os.mkfifo("both")
process = subprocess.Popen(both + ["--steps", "3000", "--resume", "both.ckpt", "--log", "both"], stdout=subprocess.DEVNULL,
                           stderr=subprocess.DEVNULL)
with open("both", encoding="utf-8") as log:
    for text in log:
        last = json.loads(text)
        if last.get("step") == 60:
            process.send_signal(signal.SIGINT)
print("exit", process.wait(), "in run", last["run"])
subprocess.run(train + ["--resume", "both.ckpt", "--steps", "3000", "--log", "rest"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
               check=True)
with open("rest", encoding="utf-8") as log:
    steps = [json.loads(text) for text in log][1:]
print("the first run goes on after its last step:", steps[0]["step"] == last["step"] + 1)
print("the second from step", min(step["step"] for step in steps if step["run"] == 1))
END
try python3 later.py
echo "# without a checkpoint; as JSON"
cat >bare.py <<'END'
import json, os, signal, subprocess

os.mkfifo("bare")
process = subprocess.Popen(["tersegrad", "train", "--data", "syn-256", "--codec", "none", "--steps", "100000000", "--log", "bare", "--json"],
                           stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
with open("bare", encoding="utf-8") as log:
    for number, _ in enumerate(log):
        if number == 5:
            process.send_signal(signal.SIGINT)
out, err = process.communicate()
result = json.loads(out)
print(process.returncode, result["stopped"].split(" after")[0], [(r["stopped"], r["steps"] > 0, r["final_loss"] is not None) for r in result["runs"]])
print(err.splitlines()[-1])
END
try python3 bare.py
echo "# a run that fails after one that did not"
python3 -c 'for i in range(40): print("%g 1:%g 2:%g" % (3e38 if i == 7 else i % 5, 100 if i == 7 else i % 3, i % 7 / 7))' >overflow.txt
# Every gradient is finite; with what the step before left out, it is not.
for _ in $(seq 40); do echo '2e38 1:1 2:0.9 3:0.8 4:0.7'; done >huge.txt
tersegrad train --data huge.txt --model linear --workers 1 --batch 1 --lr 1e-12 --codec none --codec topk:density=0.25 --feedback none \
    --feedback ef --steps 9 --json 2>err.txt | json '[(r["codec"], r["steps"], r["stopped"]) for r in j["runs"]]'
grep -o 'step 1 was not applied' err.txt
tersegrad train --data overflow.txt --model linear --workers 2 --batch 2 --steps 40 --lr 0.01 --codec none --checkpoint f.ckpt --every 1 \
    --report failed.html --log failed.jsonl >table.txt 2>err.txt
echo "-> $?"
grep -c 'none' table.txt
grep -o 'stopped after step.*' table.txt
cut -c 1-70 err.txt
grep -c 'Training ended early' failed.html
echo "# divergence is called that"
tersegrad train --data syn-256 --lr 1e12 --steps 4 --codec none 2>/dev/null | grep -o 'none *diverged'
tersegrad train --data syn-256 --lr 1e12 --steps 4 --codec none --json 2>/dev/null | json '[r["diverged"] for r in j["runs"]]'
# A loss that is not finite ends its run alone: the next one begins.
tersegrad train --data syn-256 --lr 1e9 --steps 400 --codec topk:density=0.5 --codec none --json 2>err.txt | json '[(r["codec"], r["diverged"], r["stopped"], r["final_loss"], r["steps"] < 400) for r in j["runs"]]'
grep -o '^[a-z].*diverged (try a smaller --lr)' err.txt
# Also in the first step of all, and where QSVRG takes its full gradient.
for _ in $(seq 32); do echo '1 1:3e38 2:3e38'; echo '0 1:-3e38 2:3e38'; done >first.txt
tersegrad train --data first.txt --model mlp:8 --workers 2 --batch 8 --steps 5 --codec none --codec qsgd --json 2>err.txt |
    json '[(r["codec"], r["diverged"], r["final_loss"], r["steps"]) for r in j["runs"]]'
tersegrad train --data first.txt --model mlp:8 --workers 2 --batch 8 --steps 5 --codec none --codec qsgd 2>err.txt | grep -o 'qsgd *diverged'
tersegrad train --data synthetic:rows=32,features=16,noise=0.1 --model linear --workers 2 --batch 16 --steps 60 --lr 1e12 --algorithm qsvrg \
    --codec none --codec qsgd --json 2>err.txt | json '[(r["codec"], r["diverged"], r["stopped"]) for r in j["runs"]]'
