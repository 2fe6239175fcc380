"""Programs of other people, plain and guarded: the losses and the last numbers of both have equal bits, or a sentence says why not.

  PYTHONPATH=build/release/python .venv/bin/python tests/suites/run.py optimizers --packages FOLDER --many 100 --percent 50

A suite is a file of this folder with `source`, what pip gets; cases(), all names; and make(name), which gives (modules and optimizers to
watch, a function of the step's number that returns the loss). Of its cases --many are drawn by --seed. FOLDER is where
`pip install --no-deps --target FOLDER` put the source; without the source all is skipped, with the reason. Each case is a process, so that
one that ends or hangs is a row, too. --device cuda runs on a GPU, or on the simulated one by scripts/with_simulated_gpu.
Prints a table. The status is 1 where a case has other bits, ends its process, or takes longer than --seconds.
"""

import argparse
import collections
import contextlib
import importlib
import json
import os
import pathlib
import random
import signal
import sys
import tempfile
import time
import warnings

steps = 6
chunk = 64 << 10
fewest_chunks = {"cpu": 12, "cuda": 16}


def train(suite, name, device, guard=None):
    """The loss of each step, and the bytes of everything that was trained."""
    import torch

    torch.manual_seed(1)
    watched, step = suite.make(name, device)
    if guard:
        for each in watched:
            guard.watch(each)
    losses = []
    for i in range(steps):
        with guard.step() if guard else contextlib.nullcontext():
            losses.append(step(i).item())
    numbers = [t.detach().cpu().contiguous().view(torch.uint8).numpy().tobytes() if t.dim() else t.item()
               for m in watched if isinstance(m, torch.nn.Module) for t in m.state_dict().values()]
    return repr(losses), numbers


def run_case(suite, name, device, percent):
    """A verdict, the peak and the budget in bytes."""
    import torch
    import vedette

    torch.set_num_threads(1)
    try:
        plain, again = train(suite, name, device), train(suite, name, device)
    except Exception as failure:  # it wants other arguments, or a closure
        return "left out: " + f"{type(failure).__name__}: {failure}".splitlines()[0][:90], 0, 0
    if plain != again:
        return "left out: two plain runs differ", 0, 0
    place = {"cpu": {"chunk": chunk}, "cuda": {"fast": "gpu:0"}}[device]

    def guarded(budget):
        with vedette.Guard(budget, slow="host", on_message=lambda _: None, **place) as guard:
            return train(suite, name, device, guard), guard.counters

    try:
        same, counters = guarded(1 << 30)
        peak = counters.peak_bytes
        budget = max(peak * percent // 100 // chunk, fewest_chunks[device]) * chunk
        less, counters = guarded(budget)
    except vedette.Failure as sentence:
        return f"refused: {sentence}"[:120], 0, 0
    verdict = "equal bits" if same == plain == less else "OTHER BITS"
    return verdict + ("" if counters.bytes_in else ", nothing moved"), peak, budget


def run_all(suite, chosen, options):
    """Each in a child, which has what this process has imported."""
    for name in chosen:
        with tempfile.NamedTemporaryFile("r") as row:
            sys.stdout.flush()
            child = os.fork()
            if child == 0:
                with open(os.devnull, "w") as nowhere, open(row.name, "w") as to, contextlib.redirect_stdout(nowhere):
                    json.dump(run_case(suite, name, options.device, options.percent), to)
                os._exit(0)
            ended, until = (0, 0), time.monotonic() + options.seconds
            while ended[0] == 0 and time.monotonic() < until:
                time.sleep(0.02)
                ended = os.waitpid(child, os.WNOHANG)
            if ended[0] == 0:
                os.kill(child, signal.SIGKILL)
                os.waitpid(child, 0)
                yield name, f"TAKES more than {options.seconds} s", 0, 0
            elif ended[1] != 0:
                yield name, f"ENDS with status {os.waitstatus_to_exitcode(ended[1])}", 0, 0
            else:
                yield (name, *json.load(row))


def main():
    suites = sorted(file.stem for file in pathlib.Path(__file__).parent.glob("*.py") if file.stem != "run")
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("suite", choices=suites)
    parser.add_argument("--packages", default="")
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--many", type=int, default=10)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--percent", type=int, default=50)
    parser.add_argument("--seconds", type=int, default=120)
    options = parser.parse_args()
    sys.path += filter(None, [options.packages])
    warnings.simplefilter("ignore")
    importlib.import_module("vedette")  # which a case's process has of this one
    suite = importlib.import_module(options.suite)
    try:
        names = suite.cases()
    except ImportError as missing:
        print(f"skipped: {missing}; pip install --no-deps --target FOLDER {suite.source}, and name it by --packages FOLDER")
        return 0
    chosen = sorted(random.Random(options.seed).sample(names, min(options.many, len(names))))
    print(f"| {options.suite}, {options.device} | peak, KiB | budget, KiB | verdict |\n|---|---|---|---|")
    verdicts = collections.Counter()
    for name, verdict, peak, budget in run_all(suite, chosen, options):
        print(f"| {name} | {peak >> 10} | {budget >> 10} | {verdict} |", flush=True)
        verdicts[verdict.split(":")[0].split(",")[0]] += 1
    print(f"\n{len(chosen)} of {len(names)} cases, seed {options.seed}, {options.percent} %: {dict(verdicts)}")
    return 1 if any(verdict.split()[0] in ("OTHER", "ENDS", "TAKES") for verdict in verdicts) else 0


if __name__ == "__main__":
    sys.exit(main())
