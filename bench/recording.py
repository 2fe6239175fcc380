#!/usr/bin/env python3
"""What does recording a run cost its steady steps, and how large is the file?

Two runs of `train` in processes of their own, one with --record and one without, take turns: a block of steps of the one, a block of the
other, in changing order, so that whatever else the machine does meets both alike. Compared are the steps that ran a plan: their time, and
the processor time of all threads (which a busy machine disturbs less); the first of each block, which finds the other's bytes in the caches,
aside. Prints medians, their spread over the pairs of blocks, the median of the pairs' ratios with the interval that holds it in 95 of 100
such runs, and the recording's size, also scaled to 1,000 steps.

    bench/recording.py --train build/release/examples/train --slow nvme:DIR --model resnet18 --batch 16 --share 25 --pairs 20 --block 6
"""
import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile

CLOCKS = ("step_ns", "step_cpu_ns")
UNTIL_PLANNED = 6                    # steps before the first block: warm-up, profiling, the plan's first


class Run:
    """A paced run of `train`: steps(n) lets it take n steps and waits for them."""

    def __init__(self, command, result):
        self.result = result
        self.process = subprocess.Popen([*command, "--paced", "--json", result], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def steps(self, count):
        for _ in range(count):
            self.process.stdin.write("s")
            self.process.stdin.flush()
            for line in self.process.stdout:
                if line == "stepped\n":
                    break
            else:
                sys.exit("train has ended, see above")

    def end(self):
        self.process.stdin.close()
        self.process.stdout.read()
        if self.process.wait() != 0:
            sys.exit("train has failed, see above")
        with open(self.result, encoding="utf-8") as file:
            return json.load(file)


def peak(options, folder):
    path = os.path.join(folder, "plain.json")
    subprocess.run([options.train, *model(options), "--plain", "--steps", "2", "--json", path], check=True, stdout=subprocess.DEVNULL)
    with open(path, encoding="utf-8") as file:
        return json.load(file)["peak_bytes"]


def model(options):
    return ["--model", options.model, "--batch", str(options.batch)] + (["--small"] if options.small else [])


def interval(values):
    """Of the median, by drawing the values again 2,000 times."""
    draw = random.Random(1)
    medians = sorted(statistics.median(draw.choices(values, k=len(values))) for _ in range(2000))
    return medians[50], medians[1949]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--train", default="build/release/examples/train")
    parser.add_argument("--slow", default="nvme:.")
    parser.add_argument("--model", default="resnet18")
    parser.add_argument("--batch", type=int, default=0, help="samples a step; 0: the model's own")
    parser.add_argument("--policy", default="vedette")
    parser.add_argument("--share", type=int, default=25, help="fast memory, percent of the peak")
    parser.add_argument("--pairs", type=int, default=20, help="of blocks")
    parser.add_argument("--block", type=int, default=6, help="steps of a block")
    parser.add_argument("--small", action="store_true")
    options = parser.parse_args()

    with tempfile.TemporaryDirectory() as folder:
        budget = peak(options, folder)
        steps = UNTIL_PLANNED + options.pairs * options.block
        command = [options.train, *model(options), "--steps", str(steps), "--slow", options.slow, "--policy", options.policy, "--profile", "operands",
                   "--fast-memory", str(budget * options.share // 100)]
        recording = os.path.join(folder, "run.vedette")
        runs = {False: Run(command, os.path.join(folder, "not.json")), True: Run([*command, "--record", recording], os.path.join(folder, "recorded.json"))}
        for run in runs.values():
            run.steps(UNTIL_PLANNED)
        for pair in range(options.pairs):
            for recorded in ((False, True), (True, False))[pair % 2]:
                runs[recorded].steps(options.block)
        results = {recorded: run.end() for recorded, run in runs.items()}
        size = os.path.getsize(recording)

    for result in results.values():
        if not 0 <= result["planned_from"] < UNTIL_PLANNED:
            sys.exit(f"the plan came at step {result['planned_from']}, after the first block began")
    print(f"{options.model}, batch {options.batch or 'of the model'}, {options.share} % of {budget / 2**20:.0f} MiB, {options.pairs} pairs of blocks of "
          f"{options.block} steps, load {os.getloadavg()[0]:.1f}")
    print("| | step, ms | processor time, ms |\n|---|---|---|")
    blocks = {recorded: {clock: [statistics.median(result[clock][begin + 1:begin + options.block]) / 1e6
                                 for begin in range(UNTIL_PLANNED, steps, options.block)] for clock in CLOCKS} for recorded, result in results.items()}
    for recorded, name in ((False, "not recorded"), (True, "recorded")):
        cells = [f"{statistics.median(of):.1f} ({min(of):.1f} to {max(of):.1f})" for of in (blocks[recorded][clock] for clock in CLOCKS)]
        print(f"| {name} | {' | '.join(cells)} |")
    cells = []
    for clock in CLOCKS:
        ratios = [100 * (r / p - 1) for p, r in zip(blocks[False][clock], blocks[True][clock])]
        low, high = interval(ratios)
        cells.append(f"{statistics.median(ratios):+.2f} % ({low:+.2f} to {high:+.2f})")
    print(f"| overhead, pair by pair | {' | '.join(cells)} |")
    print(f"file: {size / 1e6:.1f} MB, {size / steps / 1e3:.0f} kB a step, {size / steps / 1e3:.0f} MB per 1,000 steps")


if __name__ == "__main__":
    sys.exit(main())
