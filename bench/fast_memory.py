#!/usr/bin/env python3
"""Does a training keep its bits, its size and its speed while its fast memory changes?

    fast_memory.py [--models resnet18,gpt] [--steps 200] [--every-ms 100] [--least 20] [--slow nvme:DIRECTORY] [--small] [--json FILE]
    fast_memory.py --speed [--models resnet18,gpt] [--sizes 50,30] [--rounds 5] ...

The first form trains each model plain, and once more in the plain run's peak while another process gives it a random size of --least to 100 percent of that
every --every-ms (as `vedette set` does). Each answer is checked against the kernel: anonymous memory of the process beside what it had before its guard and the
size. With --speed a training changes to a size after ten steps, another one is opened with it; medians of the steps from the tenth after that on, alternating, of
as many rounds as --rounds, and each of the two against itself.
"""
import argparse
import json
import os
import random
import socket
import statistics
import subprocess
import sys
import tempfile
import time

MIB = 1 << 20


def anonymous(pid):
    with open(f"/proc/{pid}/status", encoding="ascii") as status:
        return next(int(line.split()[1]) << 10 for line in status if line.startswith("RssAnon:"))


def ask(pid, size):
    """The size that fast memory has then, in bytes; None where the process does not listen yet, or no longer."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as asks:
        try:
            asks.connect(f"\0vedette.size.{pid}".encode())
            asks.send(str(size).encode())
            answer = asks.recv(512).decode()
        except OSError:
            return None
    found = answer.split("(")
    return int(found[1].split()[0]) if answer.startswith("fast memory is") and len(found) > 1 else None


class Trains:
    def __init__(self, args, folder):
        self.args, self.folder = args, folder

    def start(self, model, steps, *more):
        self.result = os.path.join(self.folder, "result.json")
        command = [self.args.train, "--model", model, "--steps", str(steps), "--threads", str(self.args.threads), "--json", self.result, *more]
        command += ["--small"] * self.args.small + ["--made-up-data"] * self.args.made_up_data + ["--chunk", self.args.chunk]
        return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env={**os.environ, "VEDETTE_PRESSURE": "1"})

    def finish(self, process):
        if process.wait() != 0:
            sys.exit(f"{' '.join(process.args)}: status {process.returncode}")
        with open(self.result, encoding="utf-8") as file:
            return json.load(file)

    def run(self, *what):
        return self.finish(self.start(*what))


def changes(args, trains, model):
    plain = trains.run(model, args.steps, "--plain")
    peak = plain["peak_bytes"]
    process = trains.start(model, args.steps, "--fast-memory", str(peak), "--slow", args.slow)
    chosen = random.Random(1)
    before, over, met, asked = None, [], 0, 0
    while process.poll() is None:
        size = chosen.randrange(peak * args.least // 100, peak)
        if before is None:
            before = anonymous(process.pid)  # until the guard is there
        try:
            now = ask(process.pid, size)
            if now is not None:
                over.append(anonymous(process.pid) - before - now)
                asked, met = asked + 1, met + (now <= size)
            else:
                before = None
        except (OSError, StopIteration):
            break
        time.sleep(args.every_ms / 1000)
    guarded = trains.finish(process)
    same = plain["losses"] == guarded["losses"]
    row = {"model": model, "steps": args.steps, "peak_mib": round(peak / MIB), "changes": asked, "met": met, "most_beyond_mib": round(max(over, default=0) / MIB, 1),
           "equal_losses": same, "plain_s": round(sum(plain["step_ns"]) / 1e9, 1), "guarded_s": round(sum(guarded["step_ns"]) / 1e9, 1)}
    print("{model}: {steps} steps, peak {peak_mib} MiB; {changes} changes, {met} met when the call returned, at most {most_beyond_mib} MiB beyond; losses equal: "
          "{equal_losses}; {plain_s} s plain, {guarded_s} s".format(**row), flush=True)
    return row


def speed(args, trains, model):
    settle = 10
    steps = 3 * settle + args.counted
    peak = trains.run(model, 3, "--plain")["peak_bytes"]

    def opened(size):
        return statistics.median(trains.run(model, steps, "--fast-memory", str(size), "--slow", args.slow)["step_ns"][-args.counted:])

    def changed(size):
        process = trains.start(model, steps, "--fast-memory", str(peak), "--slow", args.slow)
        # by the clock: a step of the plain run is known, and ten of them have passed
        while ask(process.pid, peak) is None and process.poll() is None:
            time.sleep(0.05)
        time.sleep(settle * args.step_ms / 1000)
        ask(process.pid, size)
        return statistics.median(trains.finish(process)["step_ns"][-args.counted:])

    rows = []
    for share in map(int, args.sizes.split(",")):
        size = peak * share // 100
        pairs = []
        for number in range(args.rounds):
            first, second = (opened, changed) if number % 2 == 0 else (changed, opened)
            times = {first: first(size), second: second(size)}
            pairs.append((times[opened], times[changed], opened(size)))
        ratio = statistics.median(change / open_ for open_, change, _ in pairs)
        itself = sorted(again / open_ for open_, _, again in pairs)
        rows.append({"model": model, "share": share, "ratio": round(ratio, 3), "opened_against_itself": [round(itself[0], 3), round(itself[-1], 3)]})
        print("{model} at {share} %: a step after a change takes {ratio} x one of a session that was opened so; that against itself {opened_against_itself}".format(
            **rows[-1]), flush=True)
    return rows


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--train", default="build/release/examples/train")
    parser.add_argument("--models", default="resnet18,gpt")
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--every-ms", type=float, default=100)
    parser.add_argument("--least", type=int, default=20, help="percent of the peak")
    parser.add_argument("--slow", default="nvme:.")
    parser.add_argument("--chunk", default="2MiB")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--made-up-data", action="store_true")
    parser.add_argument("--speed", action="store_true")
    parser.add_argument("--sizes", default="50,30", help="percent of the peak")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--counted", type=int, default=10)
    parser.add_argument("--step-ms", type=float, default=1000, help="of a plain step, about")
    parser.add_argument("--json")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        trains = Trains(args, folder)
        rows = [(speed if args.speed else changes)(args, trains, model) for model in args.models.split(",")]
    if args.json:
        with open(args.json, "w", encoding="utf-8") as file:
            json.dump(rows, file, indent=1)


if __name__ == "__main__":
    main()
