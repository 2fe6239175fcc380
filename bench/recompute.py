#!/usr/bin/env python3
"""How much faster is a step where the policy may recompute instead of move? With the slow tier bounded, and at the disk's own speed.

    recompute.py [--models resnet18:25,bert:25:4:60:16] [--speeds 0.2,0.5,0] [--rounds 3] [--steps 20] [--counted 6] [--slow DIRECTORY] [--json FILE] [--results FILE]

A model's name is followed by the share of the plain run's peak that is the budget, and may be followed by the samples a step, and by --steps and --counted
of its own: steps of several lengths try their plans each on its own. A speed is in GB/s, both
directions together (--slow nvme:DIRECTORY@0.2GB/s); 0 is the disk as it is. In every round a run without and one with --recompute follow each other for each
speed, in turn first, each in a process of its own. Of each run the last `--counted` steps count: by then the policy has tried its plans and keeps one. Printed are
medians with quartiles over all rounds, what a step moved and recomputed, and whether all losses are those of the plain run. "Faster by" is the median over pairs:
the same step of the two runs of a round, since steps of one model are of several lengths.
"""
import argparse
import json
import os
import platform
import statistics
import subprocess
import tempfile
import time


def train(args, folder, model, batch, steps, *more):
    result = os.path.join(folder, "result.json")
    command = [args.train, "--model", model, "--batch", batch, "--steps", str(steps), "--threads", str(args.threads), "--json", result, *more]
    if args.small:
        command.append("--small")
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=args.timeout)
    with open(result) as file:
        return json.load(file)


def quartiles(values):
    return statistics.quantiles(values, n=4) if len(values) > 1 else values * 3


class Cell:
    """All runs of one kind: with or without recomputation, at one speed."""

    def __init__(self):
        self.runs, self.begins = [], 0

    def last(self, key, scale):
        return [value * scale for run in self.runs for value in run[key][self.begins:]]

    def faster_than(self, other):
        """Percent that the other cell's steps take longer: the median over steps of one number in runs of one round."""
        ratios = [theirs / ours for ours, theirs in zip(self.last("step_ns", 1), other.last("step_ns", 1))]
        return 100 * (statistics.median(ratios) - 1)

    def mean(self, key, scale):
        return statistics.mean(self.last(key, scale))

    def row(self):
        low, median, high = quartiles(self.last("step_ns", 1e-6))
        mib = 1 / 2**20
        return {"step_ms": round(median, 1), "quartiles_ms": [round(low, 1), round(high, 1)], "waits_ms": round(self.mean("step_stall_ns", 1e-6), 1),
                "in_mib": round(self.mean("step_bytes_in", mib), 1), "out_mib": round(self.mean("step_bytes_out", mib), 1),
                "recomputed_mib": round(self.mean("step_bytes_recomputed", mib), 1), "ops_again": round(self.mean("step_ops_recomputed", 1), 1),
                "recompute_ms": round(self.mean("step_recompute_ns", 1e-6), 1)}


def compare(args, folder, words):
    name, share, batch, steps, counted = (words.split(":") + [""] * 4)[:5]
    share, batch, steps, counted = share or "25", batch or "0", int(steps or args.steps), int(counted or args.counted)
    plain = train(args, folder, name, batch, steps, "--plain")
    budget = plain["peak_bytes"] * int(share) // 100
    cells = {(speed, again): Cell() for speed in args.speeds for again in (False, True)}
    for number in range(args.rounds):
        for speed in args.speeds:
            for again in ((False, True), (True, False))[number % 2]:
                slow = args.slow if speed == "0" else f"{args.slow}@{speed}GB/s"
                more = ["--recompute"] if again else []
                cell = cells[speed, again]
                cell.begins = steps - counted
                cell.runs.append(train(args, folder, name, batch, steps, "--fast-memory", str(budget), "--slow", slow, "--chunk", args.chunk, *more))
    print(f"{name}{' batch ' + batch if batch != '0' else ''} at {share} %, {budget / 2**20:.0f} of {plain['peak_bytes'] / 2**20:.0f} MiB", flush=True)
    rows = []
    for speed in args.speeds:
        without, again = cells[speed, False].row(), cells[speed, True].row()
        equal = all(run["losses"] == plain["losses"] for cell in (cells[speed, False], cells[speed, True]) for run in cell.runs)
        gain = cells[speed, True].faster_than(cells[speed, False])
        for kind, row in (("without", without), ("with", again)):
            print(f"  {speed + ' GB/s' if speed != '0' else 'as it is':9} {kind:8} {row['step_ms']:9.1f} ms ({row['quartiles_ms'][0]:.1f} to {row['quartiles_ms'][1]:.1f}), "
                  f"waits {row['waits_ms']:.1f}, in {row['in_mib']:.1f}, out {row['out_mib']:.1f} MiB; "
                  f"{row['ops_again']:.0f} ops again make {row['recomputed_mib']:.1f} MiB in {row['recompute_ms']:.1f} ms")
        print(f"  {'':9} faster by {gain:+.1f} %, losses equal: {'yes' if equal else 'NO'}", flush=True)
        rows.append({"model": name, "batch": int(batch), "steps": steps, "counted": counted, "share": int(share), "budget_bytes": budget, "gb_per_s": float(speed), "faster_percent": round(gain, 1),
                     "losses_equal": equal, "without": without, "with": again})
    return rows


def main():
    root = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "build", "release")
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", default="resnet18:25,bert:25:4:60:16")
    parser.add_argument("--speeds", default="0.2,0.5,0", type=lambda text: text.split(","))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--counted", type=int, default=6)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--chunk", default="2MiB")
    parser.add_argument("--slow", default="nvme:.", help="nvme:DIRECTORY, or host")
    parser.add_argument("--small", action="store_true", help="the models' small shapes, for a test of this bench")
    parser.add_argument("--timeout", type=float, default=1800, help="seconds a run")
    parser.add_argument("--train", default=os.path.join(root, "examples", "train"))
    parser.add_argument("--json")
    parser.add_argument("--results", metavar="FILE", help="write the rows with what made them, as bench/results/recompute.json has them")
    args = parser.parse_args()
    print(f"{platform.machine()}, {os.cpu_count()} processors, load {os.getloadavg()[0]:.1f}")
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for words in args.models.split(","):
            rows += compare(args, folder, words)
    print(f"load {os.getloadavg()[0]:.1f} at the end")
    if args.json:
        with open(args.json, "w") as file:
            json.dump(rows, file, indent=1)
    if args.results:
        source = (f"bench/recompute.py --models {args.models} --speeds {','.join(args.speeds)} --rounds {args.rounds} --steps {args.steps} --counted {args.counted}, "
                  f"{time.strftime('%d %B %Y')}, {os.cpu_count()} processors, load {os.getloadavg()[0]:.1f} at the end")
        with open(args.results, "w") as file:
            json.dump({"about": "How much faster a step is where the policy may recompute instead of move", "source": source, "rows": rows}, file, indent=1)
            file.write("\n")


if __name__ == "__main__":
    main()
