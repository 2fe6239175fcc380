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
import tempfile
import time

from training import Training, add_arguments, train

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


def changes(args, folder, model):
    plain = train(args, folder, model, args.steps, "--plain")
    peak = plain["peak_bytes"]
    training = Training(args, folder, model, args.steps, "--fast-memory", str(peak), "--slow", args.slow)
    process = training.process
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
    guarded = training.end()
    same = plain["losses"] == guarded["losses"]
    row = {"model": model, "steps": args.steps, "peak_mib": round(peak / MIB), "changes": asked, "met": met, "most_beyond_mib": round(max(over, default=0) / MIB, 1),
           "equal_losses": same, "plain_s": round(sum(plain["step_ns"]) / 1e9, 1), "guarded_s": round(sum(guarded["step_ns"]) / 1e9, 1)}
    print("{model}: {steps} steps, peak {peak_mib} MiB; {changes} changes, {met} met when the call returned, at most {most_beyond_mib} MiB beyond; losses equal: "
          "{equal_losses}; {plain_s} s plain, {guarded_s} s".format(**row), flush=True)
    return row


def speed(args, folder, model):
    settle = 10
    steps = 3 * settle + args.counted
    peak = train(args, folder, model, 3, "--plain")["peak_bytes"]

    def opened(size):
        return statistics.median(train(args, folder, model, steps, "--fast-memory", str(size), "--slow", args.slow)["step_ns"][-args.counted:])

    def changed(size):
        training = Training(args, folder, model, steps, "--fast-memory", str(peak), "--slow", args.slow)
        process = training.process
        # by the clock: a step of the plain run is known, and ten of them have passed
        while ask(process.pid, peak) is None and process.poll() is None:
            time.sleep(0.05)
        time.sleep(settle * args.step_ms / 1000)
        ask(process.pid, size)
        return statistics.median(training.end()["step_ns"][-args.counted:])

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
    add_arguments(parser)
    parser.add_argument("--models", default="resnet18,gpt")
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--every-ms", type=float, default=100)
    parser.add_argument("--least", type=int, default=20, help="percent of the peak")
    parser.add_argument("--speed", action="store_true")
    parser.add_argument("--sizes", default="50,30", help="percent of the peak")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--counted", type=int, default=10)
    parser.add_argument("--step-ms", type=float, default=1000, help="of a plain step, about")
    parser.add_argument("--json")
    args = parser.parse_args()
    os.environ["VEDETTE_PRESSURE"] = "1"  # a guard listens to what other processes ask
    with tempfile.TemporaryDirectory() as folder:
        rows = [(speed if args.speed else changes)(args, folder, model) for model in args.models.split(",")]
    if args.json:
        with open(args.json, "w", encoding="utf-8") as file:
            json.dump(rows, file, indent=1)


if __name__ == "__main__":
    main()
