#!/usr/bin/env python3
"""Does the simulator say how fast training inside a budget will be? Predicted and measured ratio to plain training, for each model.

    sim_vs_live.py [--models mlp,resnet18,lstm:70,gpt] [--share 50] [--rounds 3] [--steps 16] [--slow DIRECTORY]

For each model: plain runs, runs inside all the memory they need (a quarter more than the plain run's peak, nothing moves) and runs inside
`--share` percent of it (or what stands behind the model's name) take turns, each in a process of its own. Measured is the ratio of the medians
of plain and planned steps (so 1 is as fast as plain), over the steps that ran by a plan, with quartiles. Predicted is what `vedette replay` says
of the profiled step on `--machine this-machine`, the disk measured just then, with the op times scaled so that the step with all its memory
takes what the runs with all their memory took: a simulator of moves does not know that the arena spares plain training's page faults.
So what the prediction knows of the machine is its disk and the two runs in which nothing moves.
Wanted: within 10 percent. The quartiles say what the machine allows one to tell.
"""
import argparse
import json
import os
import re
import statistics
import subprocess
import tempfile


def run_train(args, model, folder, *more):
    result = os.path.join(folder, "run.json")
    small = ["--small"] if model in args.small else []
    subprocess.run([args.train, "--model", model, "--steps", str(args.steps), "--json", result, *small, *more], check=True, stdout=subprocess.DEVNULL)
    with open(result) as file:
        return json.load(file)


def steady(run):
    steps = run["step_ns"]
    return [ns * 1e-6 for ns in steps[min(max(run["planned_from"], 3), len(steps) - 1):]]


def quartiles(values):
    return statistics.quantiles(values, n=4) if len(values) > 1 else values * 3


def scaled(path, step_ms):
    """The trace with its op times scaled to sum up to `step_ms`."""
    with open(path) as file:
        trace = json.load(file)
    total = sum(op["ns"] for op in trace["ops"])
    for op in trace["ops"]:
        op["ns"] = max(1, round(op["ns"] * step_ms * 1e6 / total))
    out = path + ".scaled"
    with open(out, "w") as file:
        json.dump(trace, file)
    return out, len(trace["ops"]), total * 1e-6


def replayed(args, trace, budget):
    told = subprocess.run([args.vedette, "replay", trace, "--fast", str(budget), "--machine", "this-machine", "--slow", args.slow, "--policy", args.policy],
                          capture_output=True, text=True)
    if told.returncode != 0:
        return None, told.stderr.strip()
    return float(re.search(r"([0-9.]+) % of ideal", told.stdout).group(1)) / 100, re.search(r"moved +(.*)", told.stdout).group(1)


def measure(args, model, share, folder):
    trace = os.path.join(folder, "step.json")
    peak = run_train(args, model, folder, "--plain")["peak_bytes"]
    budget, all_of_it = (peak * percent // 100 // (2 << 20) * (2 << 20) for percent in (share, 125))
    guarded = ["--policy", args.policy, "--slow", "nvme:" + args.slow, "--profile", "operands"]
    plain, whole, planned, equal = [], [], [], True
    for _ in range(args.rounds):
        runs = [run_train(args, model, folder, "--plain"), run_train(args, model, folder, *guarded, "--fast-memory", str(all_of_it)),
                run_train(args, model, folder, *guarded, "--fast-memory", str(budget), "--trace", trace)]
        for steps, run in zip((plain, whole, planned), runs):
            steps += steady(run)
            equal = equal and run["losses"] == runs[0]["losses"]
    at, with_all, to = quartiles(plain), quartiles(whole), quartiles(planned)
    file, ops, profiled_ms = scaled(trace, with_all[1])
    predicted, how = replayed(args, file, budget)
    ratio = at[1] / to[1]
    print(f"{model}: {ops} ops, budget {budget / 2**20:.0f} of {peak / 2**20:.0f} MiB, losses equal: {'yes' if equal else 'NO'}")
    print(f"  plain    {at[1]:9.1f} ms ({at[0]:.1f} to {at[2]:.1f}), {len(plain)} steps; the profiled step's ops {profiled_ms:.1f} ms")
    print(f"  all      {with_all[1]:9.1f} ms ({with_all[0]:.1f} to {with_all[2]:.1f}), {len(whole)} steps: {at[1] / with_all[1]:.3f} x plain")
    print(f"  planned  {to[1]:9.1f} ms ({to[0]:.1f} to {to[2]:.1f}), {len(planned)} steps")
    if predicted is None:
        print(f"  not predicted: {how}")
        return
    predicted *= at[1] / with_all[1]
    off = 100 * (predicted / ratio - 1)
    print(f"  x plain  measured {ratio:.3f}, predicted {predicted:.3f}: off by {off:+.1f} %, {'within' if abs(off) <= 10 else 'NOT WITHIN'} 10 %; a step would move {how}", flush=True)


def main():
    root = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "build", "release")
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", default="mlp,resnet18,lstm:70,gpt", help="with the share behind the name where it is not --share")
    parser.add_argument("--small", default="", help="of these, the shapes for tests (of which half may be fewer than the eight chunks that a session takes)")
    parser.add_argument("--share", type=int, default=50)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=16)
    parser.add_argument("--slow", default=".")
    parser.add_argument("--policy", default="vedette")
    parser.add_argument("--train", default=os.path.join(root, "examples", "train"))
    parser.add_argument("--vedette", default=os.path.join(root, "vedette"))
    args = parser.parse_args()
    args.small = args.small.split(",")
    print(f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} processors")
    with tempfile.TemporaryDirectory() as folder:
        for model in args.models.split(","):
            name, _, share = model.partition(":")
            measure(args, name, int(share or args.share), folder)
    print(f"load {os.getloadavg()[0]:.1f} at the end")


if __name__ == "__main__":
    main()
