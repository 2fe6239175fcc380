#!/usr/bin/env python3
"""Trainings that share one memory by `vedette daemon`: do they keep their bits and the memory, and what does it cost?

    sharing.py together [--models bert,resnet18,mobilenetv2,lstm] [--part 2.5] [--policy pack,fair] [--steps 30] [--swap DIRECTORY] ...
    sharing.py disturbed [--stopped 40] ...
    sharing.py twelve [--policy srtf] [--seed 1] ...
    sharing.py alone [--model resnet18] [--rounds 10] ...

`together`: the models train at once in a memory cgroup of C and 134 MiB for each, where C is their peaks' sum through --part; then one after the other, each with
all of C; with --swap once more at once, unguarded, with a swap file there (root). The kernel says what was charged, and whether it killed one; leases are asked
for ten times a second. `disturbed`: the same at once, while the first is killed, the second stopped for --stopped seconds, and then the daemon killed. `twelve`:
twelve short jobs that arrive at random, and the same list in `vedette share`; mean completion times. `alone`: one training with the daemon and without,
alternating, and its own spread; round trips of a message.
"""
import argparse
import contextlib
import csv
import json
import os
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time

from training import Training, add_arguments, train

MIB = 1 << 20
BESIDE = 134 * MIB  # of libtorch and a session, for each training


class Group:
    """A memory cgroup of version 1 or 2; without privileges none."""

    def __init__(self, limit):
        with open("/proc/self/cgroup", encoding="ascii") as file:
            lines = [line.strip().split(":", 2) for line in file]
        first = next((path for _, names, path in lines if "memory" in names.split(",")), None)
        self.first = first is not None
        root = "/sys/fs/cgroup/memory" + first if self.first else "/sys/fs/cgroup" + os.path.dirname(next(p for _, n, p in lines if n == ""))
        self.folder = os.path.join(root, f"vedette-sharing-{os.getpid()}-{time.monotonic_ns()}")
        os.mkdir(self.folder)
        self.write("memory.limit_in_bytes" if self.first else "memory.max", limit)

    def write(self, name, value):
        with open(os.path.join(self.folder, name), "w", encoding="ascii") as file:
            file.write(str(value))

    def read(self, name):
        with open(os.path.join(self.folder, name), encoding="ascii") as file:
            return file.read()

    def join(self):  # of a child, before it is a program
        self.write("cgroup.procs", os.getpid())

    def most(self):
        return int(self.read("memory.max_usage_in_bytes" if self.first else "memory.peak"))

    def kills(self):
        words = self.read("memory.oom_control" if self.first else "memory.events").split()
        return int(words[words.index("oom_kill") + 1])

    def close(self):
        for _ in range(50):
            with contextlib.suppress(OSError):
                os.rmdir(self.folder)
                return
            time.sleep(0.1)


class Daemon:
    """Also asks every 100 ms who holds what."""

    def __init__(self, args, folder, memory, policy, *more):
        self.args, self.memory, self.socket, self.most = args, memory, os.path.join(folder, "daemon.sock"), 0
        self.holds = {}  # [process]: bytes
        self.process = subprocess.Popen([args.vedette, "daemon", "--memory", str(memory), "--policy", policy, "--socket", self.socket, *more],
                                        stdout=subprocess.PIPE, text=True)
        if not self.process.stdout.readline():
            sys.exit("the daemon has refused; its reason is above")
        self.over = threading.Event()
        self.thread = threading.Thread(target=self.watch)
        self.thread.start()

    def watch(self):
        while not self.over.wait(0.1):
            ran = subprocess.run([self.args.vedette, "jobs", "--json", "--socket", self.socket], capture_output=True, text=True, check=False)
            if ran.returncode == 0:
                self.holds = {job["pid"]: job["lease_bytes"] for job in json.loads(ran.stdout)["jobs"]}
                self.most = max(self.most, sum(self.holds.values()))

    def close(self):
        self.over.set()
        self.thread.join()
        self.process.terminate()
        self.process.wait()


@contextlib.contextmanager
def swap_file(folder, size):
    path = os.path.join(folder, "vedette-swap")
    with open(path, "wb") as file:
        os.posix_fallocate(file.fileno(), 0, size)
    os.chmod(path, 0o600)
    try:
        subprocess.run(["mkswap", path], check=True, stdout=subprocess.DEVNULL)
        subprocess.run(["swapon", path], check=True)
        try:
            yield
        finally:
            subprocess.run(["swapoff", path], check=True)
    finally:
        os.unlink(path)


class Together:
    """The models' plain runs, and the memory that they are to share."""

    def __init__(self, args, folder):
        self.args, self.folder, self.models = args, folder, args.models.split(",")
        self.plain = []
        for model in self.models:
            self.plain.append(Training(args, folder, model, args.steps, "--plain"))
            self.plain[-1].end()
        self.peaks = [each.found["peak_bytes"] for each in self.plain]
        self.memory = int(sum(self.peaks) / args.part)
        self.limit = self.memory + len(self.models) * BESIDE
        print(f"{len(self.models)} trainings of {args.steps} steps, peaks of {', '.join(f'{p / MIB:.0f}' for p in self.peaks)} MiB; C = {self.memory / MIB:.0f} MiB, "
              f"the cgroup's limit {self.limit / MIB:.0f} MiB; alone, plain: {', '.join(f'{p.seconds:.1f}' for p in self.plain)} s", flush=True)

    def start(self, number, group, *more):
        return Training(self.args, self.folder, self.models[number], self.args.steps, *more, in_child=group.join)

    def start_guarded(self, number, group, most, *more):
        return self.start(number, group, "--fast-memory", str(min(self.peaks[number], most)), "--slow", self.args.slow, *more)

    def start_all(self, group, daemon):
        return [self.start_guarded(i, group, self.peaks[i], "--share", daemon.socket) for i in range(len(self.models))]

    def report(self, name, began, runs, group, more=""):
        ended = [i for i, run in enumerate(runs) if run.process.returncode == 0]
        equal = sum(runs[i].found["losses"] == self.plain[i].found["losses"] for i in ended)
        print(f"{name:>22}: {time.monotonic() - began:7.1f} s, {len(ended)} of {len(runs)} ended, {equal} with equal losses, "
              f"at most {group.most() / MIB:.0f} MiB charged, {group.kills()} killed{more}", flush=True)
        group.close()

    def at_once(self, policy, disturb=None):
        group, daemon = Group(self.limit), Daemon(self.args, self.folder, self.memory, policy)
        began = time.monotonic()
        runs = self.start_all(group, daemon)
        if disturb:
            disturb(runs, daemon)
        for run in runs:
            run.end(may_fail=True)
        daemon.close()
        self.report(f"at once, {policy}", began, runs, group, f"; leases of {daemon.most / MIB:.0f} of {self.memory / MIB:.0f} MiB at most")


def together(args, folder):
    all_of_them = Together(args, folder)
    models, peaks, memory = all_of_them.models, all_of_them.peaks, all_of_them.memory
    for policy in args.policy.split(","):
        all_of_them.at_once(policy)
    group = Group(memory + BESIDE)
    began = time.monotonic()
    runs = []
    for i in range(len(models)):
        runs.append(all_of_them.start_guarded(i, group, memory))
        runs[-1].end(may_fail=True)
    all_of_them.report("one after the other", began, runs, group)
    if args.swap:
        with swap_file(args.swap, 2 * sum(peaks) + len(models) * BESIDE):
            group = Group(all_of_them.limit)
            began = time.monotonic()
            runs = [all_of_them.start(i, group, "--plain") for i in range(len(models))]
            for run in runs:
                run.end(may_fail=True)
            all_of_them.report("at once, kernel's swap", began, runs, group)


def disturbed(args, folder):
    def disturb(runs, daemon):
        def holds(number):
            return daemon.holds.get(runs[number].process.pid, 0)

        def wait_until(what, seconds=120):
            since = time.monotonic()
            while not what() and time.monotonic() - since < seconds:
                time.sleep(0.02)
            return time.monotonic() - since

        wait_until(lambda: all(holds(i) > 0 for i in range(2)))
        held = holds(0)
        runs[0].process.kill()
        print(f"the first is killed: its {held / MIB:.0f} MiB are given on after {wait_until(lambda: holds(0) == 0):.1f} s", flush=True)
        runs[1].process.send_signal(signal.SIGSTOP)
        time.sleep(1)
        held = holds(1)
        time.sleep(args.stopped)
        print(f"the second is stopped for {args.stopped:.0f} s: it held {held / MIB:.0f} MiB, and holds {holds(1) / MIB:.0f} in the end", flush=True)
        runs[1].process.send_signal(signal.SIGCONT)
        time.sleep(5)
        daemon.over.set()
        daemon.thread.join()
        daemon.process.kill()
        print(f"the daemon is killed; {sum(run.process.poll() is None for run in runs)} trainings go on", flush=True)

    all_of_them = Together(args, folder)
    for policy in args.policy.split(","):
        all_of_them.at_once(policy, disturb)


def twelve(args, folder):
    drawn = random.Random(args.seed)
    kinds, models = {}, args.models.split(",")
    for model in models:
        recording = os.path.join(folder, model + ".vedette")
        plain = Training(args, folder, model, 12, "--plain")
        peak = plain.end()["peak_bytes"]
        run = Training(args, folder, model, 12, "--fast-memory", str(2 * peak), "--slow", args.slow, "--record", recording)
        run.end()
        stepping = sum(run.found["step_ns"]) / 1e9
        kinds[model] = {"peak": peak, "recording": recording, "start": run.seconds - stepping, "step": statistics.median(run.found["step_ns"]) / 1e9}
    memory = int(sum(kind["peak"] for kind in kinds.values()) / len(kinds) * args.at_once)
    jobs, at = [], 0.0
    for n in range(12):
        model = drawn.choice(models)
        kind = kinds[model]
        seconds = drawn.uniform(*args.seconds)
        jobs.append({"name": f"{model}-{n}", "model": model, "steps": max(8, round(seconds / kind["step"])), "arrival": at})
        at += drawn.expovariate(1 / args.gap)
    daemon = Daemon(args, folder, memory, args.policy, "--quantum", "2")
    began, runs = time.monotonic(), []
    ends = {}

    def wait(run, job):
        run.end()
        ends[job["name"]] = time.monotonic() - began - job["arrival"]

    threads = []
    for job in jobs:
        time.sleep(max(0.0, job["arrival"] - (time.monotonic() - began)))
        run = Training(args, folder, job["model"], job["steps"], "--fast-memory", str(kinds[job["model"]]["peak"] * 9 // 8), "--slow", args.slow, "--share", daemon.socket)
        runs.append(run)
        threads.append(threading.Thread(target=wait, args=(run, job)))
        threads[-1].start()
    for thread in threads:
        thread.join()
    daemon.close()
    for run in runs:
        if run.process.returncode != 0:
            run.end()  # says why, and ends
    table = os.path.join(folder, "jobs.csv")
    with open(table, "w", newline="", encoding="utf-8") as file:
        rows = csv.writer(file)
        rows.writerow(["name", "iterations", "recording", "arrival_s", "start_s", "busy"])
        for job in jobs:
            kind = kinds[job["model"]]
            rows.writerow([job["name"], job["steps"], kind["recording"], job["arrival"], kind["start"], 1 / os.cpu_count()])
    ran = subprocess.run([args.vedette, "share", table, "--policy", args.policy, "--memory", str(memory), "--link", args.link, "--quantum", "2", "--json"],
                         capture_output=True, text=True, check=True)
    simulated = json.loads(ran.stdout)
    real = statistics.mean(ends.values())
    print(f"twelve jobs in {memory / MIB:.0f} MiB by {args.policy}: mean completion {real:.1f} s live; leases of {daemon.most / MIB:.0f} MiB at most")
    print("simulated:", json.dumps(simulated)[:600])
    if args.json:
        with open(args.json, "w", encoding="utf-8") as file:
            json.dump({"live": ends, "simulated": simulated}, file, indent=1)


def alone(args, folder):
    model = args.models.split(",")[0]
    peak = train(args, folder, model, 8, "--plain")["peak_bytes"]
    budget = ["--fast-memory", str(peak // 2), "--slow", args.slow]
    daemon = Daemon(args, folder, peak // 2, args.policy)
    ways = {"without": [], "with": ["--share", daemon.socket], "again": []}
    medians = {way: [] for way in ways}
    for _ in range(args.rounds):
        for way, more in ways.items():
            found = train(args, folder, model, args.steps, *budget, *more)
            medians[way].append(statistics.median(found["step_ns"][args.steps // 2:]))
    ping = subprocess.run([args.vedette, "jobs", "--socket", daemon.socket, "--ping", "10000"], capture_output=True, text=True, check=True)
    daemon.close()
    for way in ("with", "again"):
        ratios = [a / b for a, b in zip(medians[way], medians["without"])]
        print(f"{way:>6}: {statistics.median(ratios):.3f} of the step without ({min(ratios):.3f} to {max(ratios):.3f})")
    print(ping.stdout, end="")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["together", "disturbed", "twelve", "alone"])
    add_arguments(parser, threads=1)
    parser.add_argument("--vedette", default="build/release/vedette")
    parser.add_argument("--models", default="resnet18,mobilenetv2,bert,lstm")
    parser.add_argument("--part", type=float, default=2.5, help="of the sum of peaks, C is one such part")
    parser.add_argument("--policy", default="pack")
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--seconds", type=float, nargs=2, default=(10, 40), help="of a job of twelve")
    parser.add_argument("--gap", type=float, default=8, help="seconds between arrivals, in the mean")
    parser.add_argument("--at-once", type=float, default=2, help="mean peaks that the shared memory has")
    parser.add_argument("--link", default="1GB/s")
    parser.add_argument("--stopped", type=float, default=40, help="seconds")
    parser.add_argument("--swap", help="a folder for a swap file")
    parser.add_argument("--json")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        {"together": together, "disturbed": disturbed, "twelve": twelve, "alone": alone}[args.what](args, folder)


if __name__ == "__main__":
    main()
