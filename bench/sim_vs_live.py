#!/usr/bin/env python3
"""Does the simulator say how fast training inside a budget will be? Predicted and measured ratio to plain training, for each model.

    sim_vs_live.py [--models mlp,resnet18:25,gpt:50:4,recommender:50::64KiB] [--share 50] [--rounds 3] [--steps 16] [--counted N] [--slow DIRECTORY] [--speed GB/s] [--recompute] [--keep FOLDER]

A model's name may be followed by the share of the plain run's peak that is the budget, by the samples a step, and by the size of a chunk. Plain runs, runs inside all
the memory they need (a quarter more than the plain run's peak, nothing moves), runs inside the budget, and a look at the disk (`vedette doctor`)
take turns, each in a process of its own. Measured is the ratio of the medians of plain and planned steps (so 1 is as fast as plain), over the
steps that ran by a plan, or the last N of a run, with quartiles: a session tries plans without recomputation in a kind's first eight steps. Of a model whose steps are of several kinds, the ratio of the sums of the kinds' medians.

Predicted is what `vedette replay` says of the step as the runs with all their memory saw it (its tensors in chunks, its ops' least times scaled so
that they add up to the median step) on the machine that doctor measured, after as many steps as ran. So what the prediction knows are the disk
and runs in which nothing moves. It is a prediction: nothing of a run inside the budget goes into it. Where steps look rows up in tables, the runs with
all their memory tell which chunks each of their latest steps touched, these steps are replayed in a row, and the median one counts (the first brings
what the others find).
Wanted: within 10 percent. The quartiles say what the machine allows one to tell.

--recompute lets policies drop and recompute tensors, live and in the replay. --speed bounds the disk, both directions together, in both.

--keep leaves all that was measured in FOLDER; `--again FOLDER` predicts anew from there without running anything.
"""
import argparse
import json
import os
import re
import statistics
import subprocess
import tempfile


class Model:
    """A model's name, budget and batch, and where its runs leave what they measured."""

    def __init__(self, words, args, folder):
        self.name, share, batch, chunk = (words.split(":") + ["", "", ""])[:4]
        self.share, self.batch, self.chunk = int(share or args.share), int(batch or 0), chunk or "2MiB"
        self.folder = os.path.join(folder, words.replace(":", "-"))
        os.makedirs(self.folder, exist_ok=True)

    def file(self, kind, number, ending="json"):
        return os.path.join(self.folder, f"{kind}{number}.{ending}")

    def runs(self, kind, args):
        found = []
        for number in range(args.rounds):
            if os.path.exists(self.file(kind, number)):
                with open(self.file(kind, number)) as file:
                    found.append(json.load(file))
        return found

    def traces(self):
        """The kinds of steps that the last run with all its memory had plans for."""
        found = []
        while os.path.exists(self.file("all", 0, f"trace.{len(found)}")):
            found.append(self.file("all", 0, f"trace.{len(found)}"))
        return found


def run_train(args, model, kind, number, steps, *more):
    command = [args.train, "--model", model.name, "--batch", str(model.batch), "--steps", str(steps), "--json", model.file(kind, number), *more]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    with open(model.file(kind, number)) as file:
        return json.load(file)


def chunks(peak, percent):
    return str(peak * percent // 100 // (2 << 20) * (2 << 20))


def run(args, model):
    slow = "nvme:" + args.slow + (f"@{args.speed}GB/s" if args.speed else "")
    guarded = ["--policy", args.policy, "--slow", slow, "--profile", "operands", "--chunk", model.chunk] + (["--recompute"] if args.recompute else [])
    for number in range(args.rounds):
        peak = run_train(args, model, "plain", number, args.plain_steps, "--plain")["peak_bytes"]
        run_train(args, model, "all", number, args.plain_steps + 2, *guarded, "--fast-memory", chunks(peak, 125), "--planned-traces", model.file("all", 0, "trace"))
        run_train(args, model, "planned", number, args.steps, *guarded, "--fast-memory", chunks(peak, model.share))
        subprocess.run([args.vedette, "doctor", "--slow", args.slow, "--chunk", model.chunk, "--machine", model.file("machine", number)], check=True, stdout=subprocess.DEVNULL)


def quartiles(values):
    return statistics.quantiles(values, n=4) if len(values) > 1 else values * 3


def steady(runs, kinds, counted):
    """Quartiles in ms: of each kind of step, over the steps that ran by a plan, the last `counted` of a run unless that is 0."""
    found = [[] for _ in range(kinds)]
    for each in runs:
        begin = min(max(each["planned_from"], 3), len(each["step_ns"]) - 1)
        if counted:
            begin = max(begin, len(each["step_ns"]) - counted)
        for number, ns in enumerate(each["step_ns"][begin:], begin):
            found[number % kinds].append(ns * 1e-6)
    return [quartiles(values) for values in found if values], sum(map(len, found))


def mean(rows, which=1):
    return sum(row[which] for row in rows) / len(rows)


def machine_of(model, args):
    """The median disk of all rounds."""
    machines = model.runs("machine", args)
    for number, link in enumerate(machines[0]["links"]):
        link["bytes_per_s"] = round(statistics.median(each["links"][number]["bytes_per_s"] for each in machines))
        if args.speed:  # as a session has it that opens there: each direction's share, and what it gets alone
            alone = min(link.get("alone_bytes_per_s", link["bytes_per_s"]), round(float(args.speed) * 1e9))
            link.update(bytes_per_s=min(link["bytes_per_s"], alone // 2), alone_bytes_per_s=alone, bus=1)
    machines[0]["can_recompute"] = args.recompute
    path = model.file("machine", "")
    with open(path, "w") as file:
        json.dump(machines[0], file)
    rates = ", ".join(f"{link['from']} to {link['to']} {link['bytes_per_s'] / 1e9:.2f} GB/s" for link in machines[0]["links"])
    return path, rates


def replayed(args, model, machine, step_ms, steps):
    """The mean step in ms as the simulator has it, and what the last one moved; of all kinds of steps, ops scaled by one factor."""
    traces, rows_of = [], []
    for path in model.traces():
        with open(path) as file:
            traces.append(json.load(file))
        rows_of.append(path + ".rows")
    total_ms = sum(op["ns"] for trace in traces for op in trace["ops"]) * 1e-6 / len(traces)
    times, words = [], ""
    budget = model.runs("planned", args)[0]["budget_bytes"]
    for trace, rows in zip(traces, rows_of):
        for op in trace["ops"]:
            op["ns"] = max(1, round(op["ns"] * step_ms / total_ms))
        path = model.file("scaled", "", "trace")
        with open(path, "w") as file:
            json.dump(trace, file)
        command = [args.vedette, "replay", path, "--fast", str(budget), "--machine", machine, "--policy", args.policy, "--steps", str(steps)]
        told = subprocess.run(command + (["--rows", rows] if os.path.exists(rows) else []), capture_output=True, text=True)
        if told.returncode != 0:
            return None, told.stderr.strip()
        step = re.search(r"^steps +median ([0-9.]+) ms", told.stdout, re.M) or re.search(r"^step +([0-9.]+) ms", told.stdout)
        times.append(float(step.group(1)))
        words = re.search(r"moved +(.*)", told.stdout).group(1)
    return statistics.mean(times), words


def report(args, model):
    runs = {kind: model.runs(kind, args) for kind in ("plain", "all", "planned")}
    kinds = max(1, len(model.traces()))
    peak, budget = runs["plain"][0]["peak_bytes"], runs["planned"][0]["budget_bytes"]
    shortest = min(len(each["losses"]) for some in runs.values() for each in some)
    equal = len({tuple(each["losses"][:shortest]) for some in runs.values() for each in some}) == 1
    machine, rates = machine_of(model, args)
    print(f"{model.name}: {f'batch {model.batch}, ' if model.batch else ''}chunks of {model.chunk}, {kinds} kind(s) of steps, budget {budget / 2**20:.0f} of {peak / 2**20:.0f} MiB, "
          f"losses equal: {'yes' if equal else 'NO'}; {rates}")
    at = {}
    for kind in ("plain", "all", "planned"):
        rows, count = steady(runs[kind], kinds, args.counted)
        at[kind] = mean(rows)
        print(f"  {kind:8} {at[kind]:9.1f} ms ({mean(rows, 0):.1f} to {mean(rows, 2):.1f}), {count} steps")
    live = runs["planned"][0]
    print(f"  a step moved {statistics.median(live['step_bytes_in'][4:]) / 2**20:.0f} MiB in, {statistics.median(live['step_bytes_out'][4:]) / 2**20:.0f} out, "
          f"and waited {statistics.median(live['step_stall_ns'][4:]) * 1e-6:.1f} ms")
    predicted, how = replayed(args, model, machine, at["all"], len(live["step_ns"]))
    if predicted is None:
        print(f"  not predicted: {how}")
        return
    measured, told = at["plain"] / at["planned"], at["plain"] / predicted
    off = 100 * (told / measured - 1)
    print(f"  x plain  measured {measured:.3f}, predicted {told:.3f} ({predicted:.1f} ms): off by {off:+.1f} %, {'within' if abs(off) <= 10 else 'NOT WITHIN'} 10 %; "
          f"a step would move {how}", flush=True)


def main():
    root = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "build", "release")
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", default="mlp,dcgan,lstm:70,resnet18:25,vgg16,mobilenetv2,gpt:25:4,bert:50:4,recommender")
    parser.add_argument("--share", type=int, default=50)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=16, help="of a run inside the budget")
    parser.add_argument("--plain-steps", type=int, default=0, help="of a plain run; one with all its memory takes two more (default: as --steps)")
    parser.add_argument("--counted", type=int, default=0, help="of the last N steps of a run (default: all that ran by a plan)")
    parser.add_argument("--slow", default=".")
    parser.add_argument("--speed", help="GB/s that the disk is bounded to; not given: as it is")
    parser.add_argument("--recompute", action="store_true", help="tensors may be dropped and recomputed")
    parser.add_argument("--policy", default="vedette")
    parser.add_argument("--train", default=os.path.join(root, "examples", "train"))
    parser.add_argument("--vedette", default=os.path.join(root, "vedette"))
    parser.add_argument("--keep", metavar="FOLDER")
    parser.add_argument("--again", metavar="FOLDER")
    args = parser.parse_args()
    args.plain_steps = args.plain_steps or args.steps
    print(f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} processors")
    with tempfile.TemporaryDirectory() as folder:
        for words in args.models.split(","):
            model = Model(words, args, args.again or args.keep or folder)
            if not args.again:
                run(args, model)
            report(args, model)
    print(f"load {os.getloadavg()[0]:.1f} at the end")


if __name__ == "__main__":
    main()
