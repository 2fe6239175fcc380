#!/usr/bin/env python3
"""Is the advice of a report right? For each model every line of advice is tried, and the predicted change stands beside the measured one.

    advice.py [--models resnet18:25,gpt:25:4,mlp:50] [--rounds 5] [--steps 16] [--slow DIRECTORY] [--small] [--json FILE] [--train PROGRAM] [--vedette PROGRAM]

A model's name may be followed by the percent of the plain run's peak that is the budget, and by the samples a step. A run is recorded, `vedette report --json` advises
from that recording, and then runs as recorded and runs with the change take turns, each in a process of its own; so nothing that was changed had a part in its prediction.
Measured is the change of the median over all steps that ran by a plan, predicted is the line's step over the recorded median. Wanted: within 5 points. Quartiles of both
say what the machine allows one to tell: a line whose intervals overlap is "not told apart". --small takes shapes for tests, whose times say nothing; it shows that the
script runs.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile


def run(args, folder, name, batch, words, record=None):
    result = os.path.join(folder, "run.json")
    command = [args.train, "--model", name, "--steps", str(args.steps), "--slow", "nvme:" + args.slow, "--json", result, *words]
    if batch:
        command += ["--batch", batch]
    if args.small:
        command.append("--small")
    if record:
        command += ["--record", record]
    ran = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    if ran.returncode != 0:
        sys.exit(f"advice.py: {' '.join(command)}: {ran.stderr.strip()[-400:]}")
    with open(result) as file:
        return json.load(file)


def planned_steps(result):
    begin = min(max(result["planned_from"], 3), len(result["step_ns"]) - 1)
    return [ns * 1e-6 for ns in result["step_ns"][begin:]]


FLAGS = {"step_in_backward": ["--step-in-backward"], "recompute": ["--recompute"]}


def words_of(base, line):
    """The command line with the change; what a line does not change it repeats."""
    words = dict(base)
    if line["change"] in ("more_memory", "less_memory"):
        words["--fast-memory"] = str(line["budget_bytes"])
    elif line["change"] == "chunk":
        words["--chunk"] = str(line["chunk_bytes"])
    elif line["change"] == "policy":
        words["--policy"] = line["policy"]
    return [word for pair in words.items() for word in pair] + FLAGS.get(line["change"], [])


def flat(words):
    return [word for pair in words.items() for word in pair]


def quartiles(values):
    return statistics.quantiles(values, n=4) if len(values) > 1 else values * 3


def try_model(args, spec, folder, rows):
    name, share, batch = (spec.split(":") + ["", ""])[:3]
    plain = run(args, folder, name, batch, ["--plain"])
    chunk = 64 << 10 if args.small else 2 << 20
    base = {"--fast-memory": str(max(8 * chunk, plain["peak_bytes"] * int(share or 25) // 100 // chunk * chunk)), "--chunk": str(chunk)}
    recording = os.path.join(folder, name + ".vedette")
    recorded = run(args, folder, name, batch, flat(base), recording)
    told = subprocess.run([args.vedette, "report", recording, "--json"], capture_output=True, text=True)
    if told.returncode != 0:
        sys.exit(f"advice.py: vedette report: {told.stderr.strip()}")
    report = json.loads(told.stdout)["run"]
    lines = report["advised"]["lines"]
    print(f"{name}: budget {int(base['--fast-memory']) / 2**20:.0f} of {plain['peak_bytes'] / 2**20:.0f} MiB, recorded step {report['headline']['median_step_ns'] / 1e6:.1f} ms, "
          f"{len(lines)} lines of advice {report['advised']['note']}", flush=True)
    steps = {None: planned_steps(recorded)}
    for _ in range(args.rounds):
        steps[None] += planned_steps(run(args, folder, name, batch, flat(base)))
        for number, line in enumerate(lines):
            steps.setdefault(number, []).extend(planned_steps(run(args, folder, name, batch, words_of(base, line))))
    before = quartiles(steps[None])
    for number, line in enumerate(lines):
        after = quartiles(steps[number])
        predicted = 100 * (line["step_ns"] / report["waterfall"]["step_ns"] - 1)
        measured = 100 * (after[1] / before[1] - 1)
        rows.append({"model": name, "change": line["change"], "sentence": line["sentence"], "predicted_percent": predicted, "measured_percent": measured, "before_ms": before, "after_ms": after,
                     "overlap": before[0] <= after[2] and after[0] <= before[2], "within_5_points": abs(predicted - measured) <= 5})


def main():
    root = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "build", "release")
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", default="resnet18:25,gpt:25:4,mlp:50")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=16)
    parser.add_argument("--slow", default=".")
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--json")
    parser.add_argument("--train", default=os.path.join(root, "examples", "train"))
    parser.add_argument("--vedette", default=os.path.join(root, "vedette"))
    args = parser.parse_args()
    load, rows = os.getloadavg()[0], []
    with tempfile.TemporaryDirectory() as folder:
        for spec in args.models.split(","):
            try_model(args, spec, folder, rows)
    print(f"\nload {load:.1f} before, {os.getloadavg()[0]:.1f} after, on {os.cpu_count()} processors\n")
    print("| model | advice | predicted | measured | quartiles before, after ms | |\n|---|---|---|---|---|---|")
    for row in rows:
        verdict = "not told apart" if row["overlap"] else "within 5 points" if row["within_5_points"] else "**off**"
        print(f"| {row['model']} | {row['sentence']} | {row['predicted_percent']:+.1f} % | {row['measured_percent']:+.1f} % | "
              f"{row['before_ms'][0]:.1f} to {row['before_ms'][2]:.1f}, {row['after_ms'][0]:.1f} to {row['after_ms'][2]:.1f} | {verdict} |")
    if args.json:
        with open(args.json, "w") as file:
            json.dump({"command": "bench/advice.py", "small": args.small, "load": load, "rows": rows}, file, indent=1)


if __name__ == "__main__":
    main()
