"""torch.compile under a guard of a quarter of the memory: the bits of the compiled plain run, by a plan and without page faults. Inductor's
fused kernels are ops of the step, with their names."""

import collections
import gc
import json
import os
import pathlib
import subprocess
import sys
import unittest

import torch
import vedette
from torch import nn
from training import GPT, Run, chunk, folder, text

# What is compiled stays in the build, and is not compiled again.
os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", str(pathlib.Path(vedette.__file__).parents[1] / "inductor"))


def reason_not_to_compile():
    try:
        torch.compile(lambda x: x + 1)(torch.ones(8))
    except Exception as failure:  # no C++ compiler, or a package that inductor imports is missing
        return f"torch.compile does not work here: {str(failure).splitlines()[0]}"
    return None


not_here = reason_not_to_compile()


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(*[layer for _ in range(4) for layer in (nn.Linear(256, 256), nn.GELU())], nn.Linear(256, 10))

    def forward(self, x):
        return self.layers(x).softmax(-1).log()


class Mixed(Net):
    """In bfloat16 by autocast, inside of what is compiled."""

    def forward(self, x):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = self.layers(x)
        return y.float().softmax(-1).log()


class Scaled(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(1 << 16))

    def forward(self, x):
        return torch.tanh(x * self.scale + torch.sin(x)) * 1.1


class Pointwise(nn.Module):
    """No matrix product: between loss and optimizer all ops are kernels that torch.compile made."""

    def __init__(self):
        super().__init__()
        self.blocks = nn.Sequential(*[Scaled() for _ in range(12)])

    def forward(self, x):
        return self.blocks(x).view(-1, 64)


def compile_blocks(model):
    for block in model.blocks:
        block.compile()
    return model


def rows(generator):
    return torch.randn(512, 256, generator=generator), torch.randint(0, 10, (512,), generator=generator)


def flat(generator):
    return torch.randn(1 << 16, generator=generator), torch.randint(0, 64, (1 << 10,), generator=generator)


@unittest.skipIf(not_here, not_here)
class Compiled(unittest.TestCase):
    def compare(self, make, batch, compiled=torch.compile, share=0.25):
        """Of each op's name how often it is in the step that was profiled."""

        def train(guard=None, count=8):
            torch._dynamo.reset()
            gc.collect()  # compiled code and its model hold each other
            run = Run(make, batch, guard=guard)
            return run.steps(count, forward=compiled(run.model))

        plain = train()
        with vedette.Guard("1GiB", slow="host", chunk=chunk, policy="on-demand") as guard:
            train(lambda: guard, count=3)
            peak = guard.counters.peak_bytes
            torch._dynamo.reset()
            gc.collect()
        with folder() as place:
            recording, budget = f"{place}/run.vedette", int(share * peak)
            with vedette.Guard(budget, slow=f"nvme:{place}", chunk=chunk, record=recording) as guard:
                run = train(lambda: guard)
                print(f"{self.id()}: {guard.phase} in {budget >> 10} of {peak >> 10} KiB, faults of each step {run.faults}, in "
                      f"{guard.counters.bytes_in >> 10} KiB", flush=True)
                self.assertEqual(run.losses, plain.losses)
                self.assertEqual(run.state(), plain.state())
                self.assertEqual(guard.phase, "planned")
                self.assertEqual(sum(run.faults[5:]), 0, run.faults)
                self.assertGreater(guard.counters.bytes_in, peak)
                del run
            trace = f"{place}/trace.json"
            command = [sys.executable, "-m", "vedette", "export", "--to", "trace", recording, "-o", trace]
            subprocess.run(command, check=True, capture_output=True)
            return collections.Counter(op["name"] for op in json.loads(pathlib.Path(trace).read_text())["ops"])

    def kernels(self, ops):
        return sum(count for name, count in ops.items() if name.startswith("cpp_fused_"))

    def test_matrix_products_and_what_is_fused_around_them(self):
        self.assertGreater(self.kernels(self.compare(Net, rows)), 5)

    def test_autocast_and_recomputation(self):
        """Recomputed ops run as they ran: with the kernels that were compiled, and in autocast's types."""

        def train(guard=None):
            torch._dynamo.reset()
            gc.collect()
            run = Run(Mixed, rows, guard=guard)
            return run.steps(8, forward=torch.compile(run.model))

        plain = train()
        for recompute in ("planned", "always"):
            with folder() as place, vedette.Guard("4MiB", slow=f"nvme:{place}", chunk=chunk, recompute=recompute) as guard:
                run = train(lambda: guard)
                print(f"{recompute}: {guard.phase}, {guard.counters.bytes_recomputed >> 10} KiB recomputed", flush=True)
                self.assertEqual(run.losses, plain.losses)
                self.assertEqual(run.state(), plain.state())
                self.assertGreater(guard.counters.bytes_in + guard.counters.bytes_recomputed, 0)
                del run

    def test_kernels_alone(self):
        self.assertGreater(self.kernels(self.compare(Pointwise, flat, compile_blocks)), 20)

    def test_a_gpt_with_dropout(self):
        # Inductor's threads sum an embedding's gradient by atomic additions: with two of them two plain runs differ.
        with torch._inductor.config.patch("cpp.threads", 1):
            self.assertGreater(self.kernels(self.compare(GPT, text)), 10)


if __name__ == "__main__":
    unittest.main()
