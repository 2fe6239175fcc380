#!/usr/bin/env python3
"""The tables of docs/fits.md: what vedette predicts beside what was measured, on an H200 and in the memory of a CPU.

    fits_table.py [--package build/release/python]
    fits_table.py --cpu [--build build/release] [--keep FOLDER]

On an H200 (docs/gpu-facts.md): each model is built in a FakeTensorMode, nothing is computed, no memory is taken. `step_ms` is the plain step as it was
measured, with all memory.

--cpu: `vedette fits` from six steps of each model recorded here, where nothing moves, beside the live runs of bench/results/simulator.json. Of those it gets
the budget, the disk's speed and the time of a step with all memory, and nothing else. Recordings that are in FOLDER already are taken as they are.
"""
import argparse
import json
import os
import subprocess
import sys
import tempfile

here = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(here, "..", "scripts"))
import export_torchscript  # noqa: E402  the libraries that stand in for CUDA's, where these are not installed

GIB = 1 << 30


def decoder(torch, layers, heads, width, context, batch, symbols, bf16):
    nn = torch.nn

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
            self.attention, self.projection = nn.Linear(width, 3 * width), nn.Linear(width, width)
            self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

        def forward(self, x):
            n, length, _ = x.shape
            q, k, v = self.attention(self.norm1(x)).view(n, length, 3, heads, -1).permute(2, 0, 3, 1, 4).unbind()
            mixed = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + self.projection(mixed.transpose(1, 2).reshape(n, length, width))
            return x + self.down(nn.functional.gelu(self.up(self.norm2(x))))

    class Decoder(nn.Module):
        def __init__(self):
            super().__init__()
            self.token, self.position = nn.Embedding(symbols, width), nn.Embedding(context, width)
            self.blocks = nn.ModuleList(Block() for _ in range(layers))
            self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, symbols, bias=False)

        def forward(self, words):
            x = self.token(words) + self.position(torch.arange(words.shape[1]))
            for block in self.blocks:
                x = block(x)
            return self.head(self.norm(x))

    model = Decoder()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, foreach=False)
    words, following = (torch.randint(0, symbols, (batch, context)) for _ in range(2))

    def step():
        with torch.autocast("cpu", torch.bfloat16, enabled=bf16):
            loss = nn.functional.cross_entropy(model(words).flatten(0, 1), following.flatten())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()

    return step


# The model, its plain step in ms and its peak in GiB, and speeds by percent of the peak: moving alone, with recomputation.
MEASURED = [
    ("GPT-2 medium, float32, 16 x 1,024 tokens", dict(layers=24, heads=16, width=1024, context=1024, batch=16, symbols=50257, bf16=False), 845, 38.0,
     {50: (0.85, None), 30: (0.71, 0.89)}),
    ("a decoder of 24 layers, bf16, 16 x 1,024 tokens", dict(layers=24, heads=16, width=1024, context=1024, batch=16, symbols=50257, bf16=True), 172, 26.6, {}),
]


DISK = "2.4GB/s"  # of the live runs, 2.3 to 2.4 read and 2.6 written


def record(build, folder, name, batch):
    path = os.path.join(folder, f"{name}.vedette")
    if not os.path.exists(path):
        subprocess.run([os.path.join(build, "examples", "train"), "--model", name, "--batch", batch, "--steps", "6", "--fast-memory", "3GiB",
                        "--slow", f"nvme:{folder}", "--profile", "operands", "--record", path], check=True, capture_output=True)
    return path


def cpu_table(build, folder):
    with open(os.path.join(here, "results", "simulator.json")) as file:
        live = json.load(file)["tables"][0]
    print("| model | budget, MiB | share of the speed with all memory, measured | predicted | off | no plan passes | fragments |")
    print("|---|---|---|---|---|---|---|")
    for model, budget, _, whole_ms, step, *_ in live["rows"]:
        name, _, batch = model.partition(", batch ")
        mebibytes = budget.split()[0]
        done = subprocess.run([os.path.join(build, "vedette"), "fits", record(build, folder, name, batch or "0"), "--memory", f"{mebibytes}MiB",
                               "--disk", DISK, "--step", f"{whole_ms}ms", "--json"], capture_output=True, text=True)
        measured = whole_ms / float(step.split()[0])
        if done.returncode:
            print(f"| {model} | {budget} | {measured:.2f} | not predicted: {done.stderr.strip().removeprefix('vedette: ')} | | | |")
            continue
        found = json.loads(done.stdout)
        row = next(each for each in found["rows"] if each["memory_bytes"] == int(mebibytes) << 20)
        predicted = row["moving_alone"][0]
        print(f"| {model} | {budget} | {measured:.2f} | {predicted:.2f} | {100 * (predicted / measured - 1):+.0f} % | {row['bound'][0]:.2f} | "
              f"{100 * (found['with_fragments_bytes'] / found['peak_bytes'] - 1):.1f} % |")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--package", default=os.path.join(here, "..", "build", "release", "python"))
    parser.add_argument("--cpu", action="store_true")
    parser.add_argument("--build", default=os.path.join(here, "..", "build", "release"))
    parser.add_argument("--keep")
    args = parser.parse_args()
    if args.cpu:
        with tempfile.TemporaryDirectory() as place:
            return cpu_table(args.build, args.keep or place)
    export_torchscript.start_again_with_stand_ins()
    sys.path.insert(0, args.package)
    import torch
    import vedette
    from torch._subclasses.fake_tensor import FakeTensorMode

    print("| model | peak, GiB: predicted, measured | of the peak | moving alone: predicted, measured | with recomputation: predicted, measured |")
    print("|---|---|---|---|---|")
    for name, shape, step_ms, peak, speeds in MEASURED:
        with FakeTensorMode(allow_non_fake_inputs=True):
            found = vedette.estimate(decoder(torch, **shape), card="h200", step_ms=step_ms)
        head = f"| {name} | {found['peak_bytes'] / GIB:.1f}, {peak}"
        if not speeds:
            print(f"{head} | | | |")
        for percent, (moving, recomputing) in speeds.items():
            row = next(each for each in found["rows"] if round(100 * each["share_of_peak"]) == percent)
            cells = [f"{row[key][0]:.2f}, {measured if measured is not None else 'not run'}"
                     for key, measured in (("moving_alone", moving), ("with_recomputation", recomputing))]
            print(f"{head} | {percent} % | {cells[0]} | {cells[1]} |")
            head = "| | "


if __name__ == "__main__":
    main()
