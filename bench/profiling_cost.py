#!/usr/bin/env python3
"""What does the profiling step cost? Its time against a plain step, for each kind of tick.

Runs `train` in processes of their own, alternating: plain, then the profiling step (the second one) with operands (nothing is
tracked: the floor), layers and ops, at each share of the peak. Prints medians over the rounds and their spread, of the step's
time and of the processor time of its threads (waiting threads of libtorch count there): on a busy machine only the latter is
worth reading.

    bench/profiling_cost.py --train build/examples/train --slow nvme:DIR --models resnet18 gpt --shares 100 25 --rounds 5
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile

TICKS = ("operands", "layers", "ops")
CLOCKS = ("step_ns", "step_cpu_ns")


def train(program, arguments):
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "result.json")
        subprocess.run([program, *arguments, "--json", path], check=True, stdout=subprocess.DEVNULL)
        with open(path, encoding="utf-8") as file:
            return json.load(file)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--train", default="build/examples/train")
    parser.add_argument("--slow", default="nvme:.")
    parser.add_argument("--policy", default="sentinel")
    parser.add_argument("--models", nargs="+", default=["resnet18", "gpt"])
    parser.add_argument("--shares", nargs="+", type=int, default=[100, 25], help="fast memory, percent of the peak")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--small", action="store_true")
    options = parser.parse_args()

    for model in options.models:
        common = ["--model", model] + (["--small"] if options.small else [])
        plain, profiled = [], {}
        for _ in range(options.rounds):
            result = train(options.train, common + ["--plain", "--steps", "4"])
            peak = result["peak_bytes"]
            plain.append([statistics.median(result[key][1:]) / 1e6 for key in CLOCKS])
            for share in options.shares:
                for ticks in TICKS:
                    steps = train(options.train, common + ["--steps", "2", "--profile", ticks, "--policy", options.policy, "--slow",
                                                           options.slow, "--fast-memory", str(peak * share // 100)])
                    profiled.setdefault((share, ticks), []).append([steps[key][1] / 1e6 for key in CLOCKS])
        floor = [statistics.median(column) for column in zip(*plain)]
        print(f"{model}, peak {peak / 2**20:.0f} MiB, {options.rounds} rounds; load {os.getloadavg()[0]:.1f}")
        print("| fast memory | ticks | step, ms | x plain | processor time, ms | x plain |")
        print("|---|---|---|---|---|---|")
        rows = {("", "plain"): plain, **{(f"{share} %", ticks): times for (share, ticks), times in profiled.items()}}
        for (share, ticks), times in rows.items():
            cells = ""
            for column, base in zip(zip(*times), floor):
                middle = statistics.median(column)
                cells += f" {middle:.0f} ({min(column):.0f} to {max(column):.0f}) | {middle / base:.2f} |"
            print(f"| {share} | {ticks} |{cells}")
        print(flush=True)


if __name__ == "__main__":
    sys.exit(main())
