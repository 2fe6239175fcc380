#!/usr/bin/env python3
"""What does recording a run cost its steady steps, and how large is the file?

Runs `train` alternately without and with --record, in processes of their own and in changing order, and compares the steps that ran a plan:
their time, and the processor time of all threads (which a busy machine disturbs less). Prints medians over the rounds, their spread, the
median of the rounds' own ratios, and the recording's size, also scaled to 1,000 steps.

    bench/recording.py --train build/release/examples/train --slow nvme:DIR --model resnet18 --share 25 --rounds 7 --steps 12
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile

CLOCKS = ("step_ns", "step_cpu_ns")


def train(program, arguments, folder):
    path = os.path.join(folder, "result.json")
    subprocess.run([program, *arguments, "--json", path], check=True, stdout=subprocess.DEVNULL)
    with open(path, encoding="utf-8") as file:
        return json.load(file)


def steady(result):
    """The median of each clock over the steps that ran a plan, the first of them (leftovers of the profile) aside."""
    first = max(0, result["planned_from"]) + 1
    return [statistics.median(result[key][first:]) / 1e6 for key in CLOCKS]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--train", default="build/release/examples/train")
    parser.add_argument("--slow", default="nvme:.")
    parser.add_argument("--model", default="resnet18")
    parser.add_argument("--policy", default="vedette")
    parser.add_argument("--share", type=int, default=25, help="fast memory, percent of the peak")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--small", action="store_true")
    options = parser.parse_args()

    with tempfile.TemporaryDirectory() as folder:
        common = ["--model", options.model] + (["--small"] if options.small else [])
        peak = train(options.train, common + ["--plain", "--steps", "2"], folder)["peak_bytes"]
        common += ["--steps", str(options.steps), "--slow", options.slow, "--policy", options.policy, "--profile", "operands",
                   "--fast-memory", str(peak * options.share // 100)]
        recording = os.path.join(folder, "run.vedette")
        times = {False: [], True: []}
        for turn in range(options.rounds):
            for recorded in ((False, True), (True, False))[turn % 2]:
                extra = ["--record", recording] if recorded else []
                times[recorded].append(steady(train(options.train, common + extra, folder)))
        size = os.path.getsize(recording)

    print(f"{options.model}, {options.share} % of {peak / 2**20:.0f} MiB, {options.steps} steps, {options.rounds} rounds; load {os.getloadavg()[0]:.1f}")
    print("| | step, ms | processor time, ms |")
    print("|---|---|---|")
    for recorded, name in ((False, "not recorded"), (True, "recorded")):
        cells = [f"{statistics.median(c):.1f} ({min(c):.1f} to {max(c):.1f})" for c in zip(*times[recorded])]
        print(f"| {name} | {' | '.join(cells)} |")
    ratios = [[r / p - 1 for p, r in zip(plain, recorded)] for plain, recorded in zip(times[False], times[True])]
    cells = [f"{100 * statistics.median(c):+.1f} % ({100 * min(c):+.1f} to {100 * max(c):+.1f})" for c in zip(*ratios)]
    print(f"| overhead, round by round | {' | '.join(cells)} |")
    print(f"file: {size / 1e6:.1f} MB, {size / options.steps / 1e3:.0f} kB a step, {size / options.steps / 1e3:.0f} MB per 1,000 steps")


if __name__ == "__main__":
    sys.exit(main())
