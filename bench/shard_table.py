#!/usr/bin/env python3
"""Is a step slower or faster with --shard-optimizer (ZeRO-1), for two ranks that share one disk?

Runs `train --ranks 2` with and without it, alternating, each job in processes of its own and with the same budget for each rank. Prints
medians over the rounds of the slower rank's median step, their spread, and the bytes that both ranks moved in a step that ran by a plan.

    bench/shard_table.py --slow /data --model mlp --batch 64 --fast-memory 64MiB --rounds 10 --steps 12
"""
import argparse
import json
import os
import pathlib
import platform
import statistics
import subprocess
import sys
import tempfile
import time

root = pathlib.Path(__file__).resolve().parent.parent
build = pathlib.Path(os.environ.get("VEDETTE_BUILD", root / "build/release"))
kinds = {"DataParallel": [], "with shard_optimizer": ["--shard-optimizer"]}


def train(options, words):
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "result.json")
        command = [build / "examples/train", "--ranks", "2", "--model", options.model, "--batch", str(options.batch), "--steps", str(options.steps),
                   "--threads", "1", "--fast-memory", options.fast_memory, "--slow", f"nvme:{options.slow}", "--json", path, *words]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode != 0:
            sys.exit(done.stderr)
        ranks = json.loads(pathlib.Path(path).read_text())
    first = max(rank["planned_from"] for rank in ranks)
    if first >= options.steps:
        sys.exit("no step ran by a plan: --steps is too small")
    moved = [sum(one) for one in zip(*(rank[key] for rank in ranks for key in ("step_bytes_in", "step_bytes_out")))]
    return {"step_ms": max(statistics.median(rank["step_ns"][first:]) for rank in ranks) / 1e6,
            "moved_mib": statistics.median(moved[first:]) / 2**20,
            "state_mib": [rank["optimizer_state_bytes"] / 2**20 for rank in ranks], "losses": [rank["losses"] for rank in ranks]}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="mlp")
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--fast-memory", default="64MiB", help="of each rank")
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--slow", default=".", help="the folder of the slow tier")
    parser.add_argument("--json")
    options = parser.parse_args()
    print(f"{platform.node()}, Linux {platform.release()}, {os.cpu_count()} processors, load {os.getloadavg()[0]:.1f}, "
          f"{time.strftime('%Y-%m-%d %H:%M')}; {options.model}, batch {options.batch}, 2 ranks of {options.fast_memory}")
    told = {kind: [] for kind in kinds}
    for number in range(options.rounds):
        for kind in list(kinds)[:: 1 if number % 2 == 0 else -1]:
            told[kind].append(train(options, kinds[kind]))
        print(f"round {number + 1} of {options.rounds}", file=sys.stderr)
    print("| | optimizer state of each rank, MiB | moved in a step, both ranks, MiB | step, ms | x DataParallel |\n|---|---|---|---|---|")
    of = {kind: [one["step_ms"] for one in runs] for kind, runs in told.items()}
    for kind, runs in told.items():
        ratios = [usual / ms for usual, ms in zip(of["DataParallel"], of[kind])]
        print(f"| {kind} | {', '.join(f'{mib:.1f}' for mib in runs[0]['state_mib'])} | {statistics.median(r['moved_mib'] for r in runs):.0f} | "
              f"{statistics.median(of[kind]):.1f} ({min(of[kind]):.1f} to {max(of[kind]):.1f}) | "
              f"{statistics.median(ratios):.3f} ({min(ratios):.3f} to {max(ratios):.3f}) |")
    equal = all(one["losses"] == told["DataParallel"][0]["losses"] for runs in told.values() for one in runs)
    print(f"losses of all runs equal, bit by bit: {'yes' if equal else 'NO'}")
    if options.json:
        pathlib.Path(options.json).write_text(json.dumps(told) + "\n")


if __name__ == "__main__":
    main()
