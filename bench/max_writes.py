#!/usr/bin/env python3
"""What a bound on the writes to the disk costs, and whether it holds: the kernel counts them.

    max_writes.py [--model resnet18] [--share 25] [--of 0.25] [--steps 200] [--slow nvme:DIRECTORY] [--small] [--json FILE]

Trains plain, then under a guard in --share percent of the peak, then once more with max_writes at --of of the bytes a day that the second run wrote while it
followed its plan. The bytes are write_bytes of /proc/PID/io, read every 20 ms until the process ends; the first row's are what a training writes anyway.
"""
import argparse
import json
import statistics
import tempfile
import time

from training import Training, add_arguments

MIB, DAY = 1 << 20, 86400


def written(pid):
    with open(f"/proc/{pid}/io", encoding="ascii") as io:
        return next(int(line.split()[1]) for line in io if line.startswith("write_bytes"))


def run(args, folder, steps, *more):
    training = Training(args, folder, args.model, steps, *more)
    process = training.process
    samples = [(time.monotonic(), 0)]
    while process.poll() is None:
        try:
            samples.append((time.monotonic(), written(process.pid)))
        except (OSError, StopIteration):
            break
        time.sleep(0.02)
    found = training.end()
    found["samples"] = samples
    return found


def per_second(samples):
    """Of the second half of the run, where its plan is settled."""
    first, last = samples[len(samples) // 2], samples[-1]
    return (last[1] - first[1]) / (last[0] - first[0])


def of_all(samples):
    return (samples[-1][1] - samples[0][1]) / (samples[-1][0] - samples[0][0])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_arguments(parser)
    parser.add_argument("--model", default="resnet18")
    parser.add_argument("--share", type=int, default=25, help="percent of the plain run's peak")
    parser.add_argument("--of", type=float, default=0.25, help="of what is written without a bound")
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--json")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        plain = run(args, folder, args.steps, "--plain")
        guard = ["--fast-memory", str(plain["peak_bytes"] * args.share // 100), "--slow", args.slow]
        free = run(args, folder, args.steps, *guard)
        bound = args.of * per_second(free["samples"])
        bounded = run(args, folder, args.steps, *guard, "--max-writes", f"{bound * DAY / 1e9:.0f}GB/day")
    rows = []
    for name, found in (("plain", plain), ("guarded", free), (f"guarded, {args.of:g} of its writes", bounded)):
        rows.append({"run": name, "step_ms": round(statistics.median(found["step_ns"]) / 1e6, 1), "written_mib": round(found["samples"][-1][1] / MIB),
                     "tb_a_day": round(per_second(found["samples"]) * DAY / 1e12, 2), "equal_losses": found["losses"] == plain["losses"]})
        print("{run:>28}: {step_ms:8.1f} ms a step, {written_mib} MiB written, {tb_a_day} TB a day; losses equal: {equal_losses}".format(**rows[-1]))
    print(f"the bound is {bound * DAY / 1e12:.3f} TB a day; with it the whole run wrote {of_all(bounded['samples']) * DAY / 1e12:.3f}; "
          f"its price is {rows[2]['step_ms'] / rows[1]['step_ms']:.2f} x the step's time")
    if args.json:
        with open(args.json, "w", encoding="utf-8") as file:
            json.dump(rows, file, indent=1)


if __name__ == "__main__":
    main()
