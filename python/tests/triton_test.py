"""Triton's kernels under a guard of GPU memory, on the simulated GPU: inductor's, those of the program's own, and those of its own inside
of compiled graphs have the plain run's bits at half of the memory, by a plan. Wrapper code, autotuner, JITFunction and launchers are the
installed packages' own; the compiled kernel below cuLaunchKernel is interpreted (triton_device.py)."""

import contextlib
import importlib.util
import os
import pathlib
import sys
import tempfile
import time
import unittest

import on_simulated_gpu
import vedette

steps = 6


def train(layers, guard=None, compiled=True, optimizer=None):
    import torch

    torch._dynamo.reset()
    torch.manual_seed(1)
    model = torch.nn.Sequential(*layers()).to("cuda")
    optimizer = (optimizer or torch.optim.Adam)(model.parameters(), lr=1e-3)
    if guard:
        guard.watch(model)
        guard.watch(optimizer)
    forward = torch.compile(model) if compiled else model
    losses = []
    for step in range(steps):
        with guard.step() if guard else contextlib.nullcontext():
            x = torch.randn(64, model[0].in_features, generator=torch.Generator().manual_seed(step)).to("cuda")
            loss = (forward(x) - x).square().mean()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            losses.append(loss.item())
            del loss, x
    return losses, [parameter.detach().cpu().numpy().tobytes() for parameter in model.parameters()]


def compare(layers, share=0.5, **how):
    """The guard that had a share of the memory, and what it said."""
    import triton_device

    began = time.monotonic()
    plain = train(layers, **how)
    with vedette.Guard("256MiB", fast="gpu:0", slow="host") as guard:
        assert train(layers, guard, **how) == plain
        peak = guard.counters.peak_bytes
    triton_device.launches.clear()
    said = []
    with vedette.Guard(int(share * peak), fast="gpu:0", slow="host", on_message=said.append) as guard:
        assert train(layers, guard, **how) == plain, "other bits"
        print(f"{guard.phase}, {guard.budget >> 10} of {peak >> 10} KiB, in {guard.counters.bytes_in >> 10} KiB, ops {guard.counters.ops}, "
              f"launches {triton_device.launches}, {said}, {time.monotonic() - began:.0f} s", flush=True)
        assert guard.phase == "planned" and guard.counters.bytes_in > 0
        assert guard.counters.resident_max_bytes <= guard.budget
    assert triton_device.races() == 0
    assert triton_device.launches.total() >= 2 * steps
    return guard, said


def layers_of(middle, width=128):
    from torch import nn

    return lambda: [layer for _ in range(4) for layer in (nn.Linear(width, width), middle(), nn.LayerNorm(width))]


def start(**how):
    """Graphs are compiled anew in each process, and then found in inductor's cache: the interpreter has seen their kernels."""
    import triton_device

    os.environ["TORCHINDUCTOR_CACHE_DIR"] = tempfile.mkdtemp(dir=sys.argv[1])
    triton_device.interpret(**how)


def compiled_training():
    from torch import nn

    start()
    compare(layers_of(nn.GELU))


def own_kernels():
    from triton_kernels import Adam, Silu

    start()
    compare(layers_of(Silu, width=256), compiled=False, optimizer=Adam)


def own_kernels_in_compiled_graphs():
    from triton_kernels import Silu

    start()
    compare(layers_of(Silu))


def take_the_hook_out():
    from torch._inductor.runtime.triton_heuristics import CachingAutotuner
    from triton.runtime.jit import JITFunction

    for launcher in (CachingAutotuner, JITFunction):
        launcher.run = launcher.run.__wrapped__


def compiled_training_without_the_hook():
    take_the_hook_out()
    compiled_training()


def own_kernels_without_the_hook():
    take_the_hook_out()
    own_kernels()


class WithTriton(on_simulated_gpu.Processes):
    functions = (compiled_training, own_kernels, own_kernels_in_compiled_graphs, compiled_training_without_the_hook,
                 own_kernels_without_the_hook)
    imports = ("torch", "torch._inductor.compile_fx", "torch._dynamo", "triton", "vedette")

    @classmethod
    def setUpClass(cls):
        if importlib.util.find_spec("triton") is None:
            raise unittest.SkipTest("Triton is not installed: scripts/setup.sh --tests installs it (1 GB)")
        build = pathlib.Path(os.environ["PYTHONPATH"].split(os.pathsep)[0]).parent
        cls.environment = {
            "TRITON_LIBCUDA_PATH": str(build / "tests/simulated_gpu/lib"), "TRITON_CACHE_DIR": str(build / "triton"),
            "TORCHINDUCTOR_COMPILE_THREADS": "1", "TRITON_DEFAULT_FP_FUSION": "1"}
        super().setUpClass()

    def test_a_compiled_training_has_equal_bits(self):
        self.run_there(compiled_training)

    def test_kernels_of_ones_own_have_equal_bits(self):
        self.run_there(own_kernels)

    def test_kernels_of_ones_own_inside_of_compiled_graphs_have_equal_bits(self):
        self.run_there(own_kernels_in_compiled_graphs)

    def test_without_the_hook_none_of_it_works(self):
        for what in (compiled_training_without_the_hook, own_kernels_without_the_hook):
            told = self.told[what.__name__]
            print(told[-300:])
            self.assertNotIn("the same bits\n", told)
            self.assertRegex(told, "simulated GPU: race|other bits|where no tensor of the call lies|cannot be accessed from Triton")
            self.assertFalse(told.endswith("status 0\n"))


if __name__ == "__main__":
    on_simulated_gpu.run_each(globals())
