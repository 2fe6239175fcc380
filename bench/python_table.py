#!/usr/bin/env python3
"""How fast does a Python loop train in a quarter of its memory, against plain PyTorch, beside the same loop in C++?

ResNet-18 and the GPT of examples/models, written in Python with the same sizes on made-up data, and examples/train. In every round each
language runs plain, guarded and guarded with step_in_backward, each in a process of its own, in an order that turns by one from round to
round. A number is a median over the rounds of medians over the steps that ran by a plan (plain: as many), with the spread of the rounds'
ratios behind it. Losses of a language's plain and guarded runs are compared bit by bit.

    bench/python_table.py --slow /data --rounds 10 --steps 12 --json python_table.json
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
kinds = {"plain": [], "guarded": [], "early": ["--step-in-backward"]}  # and examples/train's words


def models():
    """By name: the model, its batch and its optimizer, as examples/models/{resnet18,gpt}.cc have them."""
    import torch
    from torch import nn
    from torch.nn import functional

    class Basic(nn.Module):
        def __init__(self, inward, outward, stride):
            super().__init__()
            self.conv1, self.bn1 = nn.Conv2d(inward, outward, 3, stride, 1, bias=False), nn.BatchNorm2d(outward)
            self.conv2, self.bn2 = nn.Conv2d(outward, outward, 3, 1, 1, bias=False), nn.BatchNorm2d(outward)
            self.short = nn.Sequential() if stride == 1 and inward == outward else nn.Sequential(
                nn.Conv2d(inward, outward, 1, stride, bias=False), nn.BatchNorm2d(outward))

        def forward(self, x):
            return torch.relu(self.bn2(self.conv2(self.bn1(self.conv1(x)).relu_())) + self.short(x))

    class ResNet(nn.Module):
        def __init__(self, width=64):
            super().__init__()
            self.conv1, self.bn1 = nn.Conv2d(3, width, 3, 1, 1, bias=False), nn.BatchNorm2d(width)
            stages = [(width, width, 1), (width, 2 * width, 2), (2 * width, 4 * width, 2), (4 * width, 8 * width, 2)]
            self.layers = nn.Sequential(*[block for i, o, s in stages for block in (Basic(i, o, s), Basic(o, o, 1))])
            self.fc = nn.Linear(8 * width, 10)

        def forward(self, x):
            return self.fc(self.layers(self.bn1(self.conv1(x)).relu_()).mean((2, 3)))

    def images(generator):
        images = functional.pad(torch.randn(64, 1, 28, 28, generator=generator), (2, 2, 2, 2))
        return images.expand(-1, 3, -1, -1).contiguous(), torch.randint(0, 10, (64,), generator=generator)

    import training  # python/tests

    def gpt():
        return training.GPT(layers=9, heads=12, width=768, context=256, symbols=96, dropout=0.0)

    return {"resnet18": (ResNet, images, lambda p: torch.optim.Adam(p, lr=1e-3)),
            "gpt": (gpt, lambda g: training.text(g, batch=8, length=256, symbols=96), lambda p: torch.optim.AdamW(p, lr=3e-4))}


def cell(options):
    """One training in this process, told in JSON."""
    import torch
    import vedette
    from training import Run

    torch.set_num_threads(options.threads)
    make, batch, optimizer = models()[options.cell[0]]
    kind, budget = options.cell[1], int(options.cell[2])
    if kind == "peak":
        with vedette.Guard("16GiB", slow="host", policy="on-demand") as guard:
            Run(make, batch, optimizer, lambda: guard).steps(2)
            return {"peak_bytes": guard.counters.peak_bytes}
    guard = None if kind == "plain" else vedette.Guard(budget, slow=f"nvme:{options.slow}")
    run = Run(make, batch, optimizer, (lambda: guard) if guard else None)
    times, phases = [], []
    for _ in range(options.steps):
        began = time.perf_counter_ns()
        run.steps(1, in_backward=kind == "early")
        times.append(time.perf_counter_ns() - began)
        phases.append(guard.phase if guard else "plain")
    told = {"step_ns": times, "planned_from": max((i + 1 for i, phase in enumerate(phases) if phase not in ("plain", "planned")), default=0),
            "losses": run.losses, "faults": run.faults, "parameters": sum(p.numel() for p in run.model.parameters())}
    if guard:
        guard.close()
    return told


def run_python(options, model, kind, budget):
    command = [sys.executable, __file__, "--cell", model, kind, str(budget), "--slow", options.slow, "--steps", str(options.steps),
               "--threads", str(options.threads)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(done.stderr)
    return json.loads(done.stdout.splitlines()[-1])


def run_train(options, model, kind, budget):
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "result.json")
        words = ["--model", model, "--steps", str(options.steps), "--threads", str(options.threads), "--json", path, *kinds[kind]]
        words += ["--plain"] if kind == "plain" else ["--fast-memory", str(budget), "--slow", f"nvme:{options.slow}"]
        own = {key: value for key, value in os.environ.items() if key not in ("LD_PRELOAD", "LD_LIBRARY_PATH")}
        done = subprocess.run([build / "examples/train", *words], env=own, capture_output=True, text=True)
        if done.returncode != 0:
            sys.exit(done.stderr)
        return json.loads(pathlib.Path(path).read_text())


def median_ms(told, first):
    return statistics.median(told["step_ns"][min(first, len(told["step_ns"]) - 1):]) / 1e6


def spread(values):
    return f"{statistics.median(values):.3f} ({min(values):.3f} to {max(values):.3f})"


def measure(options, model):
    peak = run_python(options, model, "peak", 0)["peak_bytes"]
    budget = int(peak * options.share / 100)
    cells = [(language, kind) for language in ("Python", "C++") for kind in kinds]
    rounds = []
    for number in range(options.rounds):
        turn = number % len(cells)
        told = {(language, kind): (run_python if language == "Python" else run_train)(options, model, kind, budget)
                for language, kind in cells[turn:] + cells[:turn]}
        rounds.append(told)
        print(f"round {number + 1} of {options.rounds}, {model}", file=sys.stderr)
    print(f"\n{model}: peak {peak / 2**20:.0f} MiB (Python), budget {budget / 2**20:.0f} MiB, {options.rounds} rounds of {options.steps} steps")
    print("| loop | plain, ms | guarded, x plain | with step_in_backward, x plain | faults of a guarded run | losses equal |\n|---|---|---|---|---|---|")
    for language in ("Python", "C++"):
        of = [{kind: told[language, kind] for kind in kinds} for told in rounds]
        first = max([3] + [one[kind]["planned_from"] for one in of for kind in kinds])
        plain = [median_ms(one["plain"], first) for one in of]
        ratios = {kind: [ms / median_ms(one[kind], first) for ms, one in zip(plain, of)] for kind in ("guarded", "early")}
        equal = all(one[kind]["losses"] == one["plain"]["losses"] for one in of for kind in kinds)
        faults = [sum(told) if isinstance(told := one["guarded"]["faults"], list) else told for one in of]
        print(f"| {language} | {statistics.median(plain):.1f} | {spread(ratios['guarded'])} | {spread(ratios['early'])} | "
              f"{min(faults)} to {max(faults)} | {'yes' if equal else 'NO'} |", flush=True)
    return {"model": model, "peak_bytes": peak, "budget_bytes": budget,
            "rounds": [{f"{language} {kind}": told for (language, kind), told in one.items()} for one in rounds]}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", default=["resnet18", "gpt"])
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--share", type=float, default=25, help="fast memory, percent of the peak")
    parser.add_argument("--slow", default=".", help="the folder of the slow tier")
    parser.add_argument("--json")
    parser.add_argument("--cell", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if pathlib.Path(sys.prefix).resolve() != (root / ".venv").resolve():
        python = root / ".venv/bin/python"
        os.execv(python, [python, *sys.argv])
    sys.path[:0] = [str(build / "python"), str(root / "python/tests"), str(root / "scripts")]
    import export_torchscript

    export_torchscript.start_again_with_stand_ins()
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    if options.cell:
        print(json.dumps(cell(options)))
        return
    print(f"{platform.node()}, Linux {platform.release()}, {os.cpu_count()} processors, load {os.getloadavg()[0]:.1f}, "
          f"{time.strftime('%Y-%m-%d %H:%M')}")
    tables = [measure(options, model) for model in options.models]
    if options.json:
        pathlib.Path(options.json).write_text(json.dumps(tables) + "\n")


if __name__ == "__main__":
    main()
