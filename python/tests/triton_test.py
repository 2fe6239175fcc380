"""Triton's kernels under a guard of GPU memory, on the simulated GPU: inductor's, those of the program's own, and those of its own inside
of compiled graphs have the plain run's bits at half of the memory, by a plan. Wrapper code, autotuner, JITFunction and launchers are the
installed packages' own; the compiled kernel below cuLaunchKernel is interpreted (triton_device.py)."""

import contextlib
import functools
import importlib.util
import os
import pathlib
import sys
import tempfile
import time
import unittest

import on_simulated_gpu
import torch
import vedette

steps = 8
phases = set()  # of the guarded steps: on a busy machine a plan comes late, and the last step may not be the one that follows it


def train(layers, guard=None, compiled=True, optimizer=None, count=steps):
    torch._dynamo.reset()
    torch.manual_seed(1)
    model = torch.nn.Sequential(*layers()).to("cuda")
    optimizer = (optimizer or torch.optim.Adam)(model.parameters(), lr=1e-3)
    if guard:
        guard.watch(model)
        guard.watch(optimizer)
    forward = torch.compile(model) if compiled else model
    losses = []
    for step in range(count):
        with guard.step() if guard else contextlib.nullcontext():
            x = torch.randn(64, model[0].in_features, generator=torch.Generator().manual_seed(step)).to("cuda")
            loss = (forward(x) - x).square().mean()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            losses.append(loss.item())
            del loss, x
        if guard:
            phases.add(guard.phase)
        if guard and guard.phase != "planned":
            time.sleep(0.5)  # the plan is made beside the program, which on a busy machine would have ended before
    return losses, [parameter.detach().cpu().numpy().tobytes() for parameter in model.parameters()]


def compare(layers, share=0.5, train=train, launches=2 * steps, **how):
    """The guard that had a share of the memory, and what it said."""
    import triton_device

    began = time.monotonic()
    plain = train(layers, **how)
    with vedette.Guard("256MiB", fast="gpu:0", slow="host") as guard:
        assert train(layers, guard, **how) == plain
        peak = guard.counters.peak_bytes
    triton_device.launches.clear()
    phases.clear()
    said = []
    with vedette.Guard(int(share * peak), fast="gpu:0", slow="host", on_message=said.append) as guard:
        assert train(layers, guard, **how) == plain, "other bits"
        print(f"{guard.phase}, {guard.budget >> 10} of {peak >> 10} KiB, in {guard.counters.bytes_in >> 10} KiB, ops {guard.counters.ops}, "
              f"launches {triton_device.launches}, {said}, {time.monotonic() - began:.0f} s", flush=True)
        assert "planned" in phases | {guard.phase} and guard.counters.bytes_in > 0
        assert guard.counters.resident_max_bytes <= guard.budget
    assert triton_device.races() == 0
    assert triton_device.launches.total() >= launches
    return guard, said


def layers_of(middle, width=128, blocks=4):
    from torch import nn

    return lambda: [layer for _ in range(blocks) for layer in (nn.Linear(width, width), middle(), nn.LayerNorm(width))]


def start(**how):
    """Graphs are compiled anew in each process, and then found in inductor's cache: the interpreter has seen their kernels."""
    import triton_device

    os.environ["TORCHINDUCTOR_CACHE_DIR"] = tempfile.mkdtemp(dir=sys.argv[1])
    triton_device.interpret(**how)


def compiled_training():
    from torch import nn

    start()
    compare(layers_of(nn.GELU))


def what_kernels_of_inductor_write_in_place():
    from torch import nn

    start()
    compare(layers_of(nn.ReLU, blocks=3), compiled=False, optimizer=functools.partial(compiled_adam, foreach=False))


def own_kernels():
    from triton_kernels import Adam, Silu

    start()
    compare(layers_of(Silu, width=256), compiled=False, optimizer=Adam)


def own_kernels_in_compiled_graphs():
    from triton_kernels import Silu

    start()
    compare(layers_of(Silu))


def tensors_inside_of_arguments():
    from triton_kernels import LinkedLayer

    start()
    compare(layers_of(LinkedLayer), compiled=False)


def trees_of_graphs():
    """mode="reduce-overhead" of a part of the model, whose weights stay where its graphs have them; all else moves."""
    import graph_test

    start()
    graph_test.width = graph_test.rows = 128  # kernels are interpreted
    replays, replay = [], torch.cuda.CUDAGraph.replay
    torch.cuda.CUDAGraph.replay = lambda graph: (replays.append(graph), replay(graph))

    def train_graphed(layers, guard=None):
        return graph_test.train(guard, functools.partial(torch.compile, mode="reduce-overhead"))

    compare(None, train=train_graphed, launches=2)
    assert len(replays) >= 3 * 16, f"{len(replays)} replays in three runs of ten steps, two of which warm up and record"


def a_custom_operator():
    from triton_kernels import Plus

    start()
    compare(layers_of(Plus), compiled=False, share=0.35)
    recording = f"{sys.argv[1]}/run.vedette"
    with vedette.Guard("64MiB", fast="gpu:0", slow="host", record=recording) as guard:
        train(layers_of(Plus), guard, compiled=False, count=3)
    for name in (b"plus_what_lies_beside", b"silu_aside", b"silu_aside_backward"):
        assert b"vedette_test::" + name in pathlib.Path(recording).read_bytes(), f"{name} is no op"


def a_launcher_that_is_not_known():
    """A tensor whose address it asks for stays where it is."""
    import warnings

    from triton.runtime.jit import JITFunction
    from triton_kernels import Silu
    from vedette import _launches

    launch = JITFunction.run.__wrapped__
    del JITFunction.run
    JITFunction.start = launch
    JITFunction.__getitem__ = lambda self, grid: lambda *args, **named: self.start(*args, grid=grid, warmup=False, **named)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        _launches.announce_launches()
    assert len([each for each in said if "their addresses" in str(each.message)]) == 1, said
    start()
    compare(layers_of(Silu), compiled=False)


def kernels_of_which_nothing_is_known():
    """As where Triton's kernels say in another way which arguments they have: all tensors count as written."""
    from triton.runtime.jit import JITFunction
    from triton_kernels import Silu
    from vedette import _launches

    def describe(kernel, args, named):
        raise AttributeError("it has no arg_names")

    JITFunction.run = _launches._as_op(JITFunction.run.__wrapped__, describe)
    start()
    _, said = compare(layers_of(Silu), compiled=False)
    assert len(said) == 1 and "in a way that vedette does not know" in said[0], said


def compiled_adam(parameters, lr, foreach=True):
    """Its kernels take all parameters with their gradients and states in one launch, or those of one parameter each."""
    optimizer = torch.optim.Adam(parameters, lr=lr, capturable=True, foreach=foreach)
    optimizer.step = torch.compile(optimizer.step)
    return optimizer


def a_compiled_optimizer():
    from torch import nn

    start()
    how = {"optimizer": compiled_adam, "compiled": False}
    layers = layers_of(nn.ReLU, blocks=2)
    plain = train(layers, **how)
    with vedette.Guard("256MiB", fast="gpu:0", slow="host") as guard:
        assert train(layers, guard, **how) == plain
        peak = guard.counters.peak_bytes
    import triton_device

    said = []
    triton_device.launches.clear()
    with vedette.Guard(peak // 2, fast="gpu:0", slow="host", on_message=said.append) as guard:
        assert train(layers, guard, **how) == plain, "other bits"
        print(guard.phase, guard.budget, peak, guard.counters.bytes_in, triton_device.launches, said)
        assert guard.counters.resident_max_bytes <= guard.budget
    assert any(name.startswith("triton_for_") for name in triton_device.launches)
    assert len([sentence for sentence in said if "beside the budget" in sentence]) == 1, said
    assert triton_device.races() == 0


def kernels_that_are_timed():
    """In a budget that has no room for a twentieth of what that takes."""
    from torch import nn
    from triton_kernels import twice

    start(autotune=True)
    said = []
    with vedette.Guard("2MiB", fast="gpu:0", slow="host", on_message=said.append) as guard:
        train(layers_of(nn.GELU, blocks=1), guard, count=2)
        with guard.step():
            x = torch.randn(100_000, device="cuda")
            out = torch.empty_like(x)
            twice(x, out)
            assert torch.equal(out, 2 * x)
        assert guard.counters.resident_max_bytes <= guard.budget
    import triton_device

    print(said, triton_device.launches)
    said = [sentence for sentence in said if "fits" not in sentence]
    assert len(said) == 1 and "times kernels inside of the guard" in said[0], said
    assert max(triton_device.launches.values()) > 10 and triton_device.races() == 0


def kernels_called_with_addresses():
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(pathlib.Path(vedette.__file__).parents[1] / "inductor")
    torch._inductor.config.cpp_wrapper = True
    double = torch.compile(lambda x: (2 * x + 1).relu())
    with vedette.Guard("2MiB", fast="gpu:0", slow="host", on_message=lambda sentence: print(sentence, flush=True)) as guard:
        with guard.step():
            double(torch.randn(64, 128, device="cuda"))  # ends the process: nothing interprets the kernel


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


class Processes(on_simulated_gpu.Processes):
    imports = ("torch", "torch._inductor.compile_fx", "torch._dynamo", "triton", "vedette")

    @classmethod
    def setUpClass(cls):
        if importlib.util.find_spec("triton") is None:
            raise unittest.SkipTest("Triton is not installed: scripts/setup.sh --tests installs it (1 GB)")
        build = pathlib.Path(os.environ["PYTHONPATH"].split(os.pathsep)[0]).parent
        cls.environment = {
            "TRITON_LIBCUDA_PATH": str(build / "src/simulated_gpu/lib"), "TRITON_CACHE_DIR": str(build / "triton"),
            "TORCHINDUCTOR_COMPILE_THREADS": "1", "TRITON_DEFAULT_FP_FUSION": "1"}
        super().setUpClass()


class WithTriton(Processes):
    functions = (tensors_inside_of_arguments, a_custom_operator, trees_of_graphs, a_launcher_that_is_not_known, kernels_of_which_nothing_is_known,
                 a_compiled_optimizer, kernels_that_are_timed, kernels_called_with_addresses, compiled_training,
                 what_kernels_of_inductor_write_in_place, own_kernels, own_kernels_in_compiled_graphs,
                 compiled_training_without_the_hook, own_kernels_without_the_hook)

    def test_a_compiled_training_has_equal_bits(self):
        self.run_there(compiled_training)

    def test_graphs_of_reduce_overhead_have_equal_bits(self):
        self.run_there(trees_of_graphs)

    def test_kernels_of_ones_own_have_equal_bits(self):
        self.run_there(own_kernels)

    def test_kernels_of_ones_own_inside_of_compiled_graphs_have_equal_bits(self):
        self.run_there(own_kernels_in_compiled_graphs)

    def test_a_launch_with_all_parameters_exceeds_the_budget_and_runs(self):
        self.run_there(a_compiled_optimizer)

    def test_kernels_are_timed_beside_the_budget(self):
        self.run_there(kernels_that_are_timed)

    def test_tensors_in_tuples_and_descriptors_have_equal_bits(self):
        self.run_there(tensors_inside_of_arguments)

    def test_a_custom_operator_whose_kernel_no_hook_sees_has_equal_bits(self):
        self.run_there(a_custom_operator)

    def test_tensors_of_a_launcher_that_is_not_known_stay_in_place(self):
        self.run_there(a_launcher_that_is_not_known)

    def test_kernels_that_are_called_with_addresses_are_told_of_before_the_first_launch(self):
        told = self.told[kernels_called_with_addresses.__name__]
        self.assertRegex(told, "(?s)made with cpp_wrapper calls kernels with addresses.*the kernel triton_.* is launched, which the simulation")
        runner = torch._C._aoti.AOTIModelPackageLoader
        self.assertTrue(hasattr(runner.run, "__wrapped__") and hasattr(runner.boxed_run, "__wrapped__"))

    def test_what_kernels_of_inductor_write_in_place_has_equal_bits(self):
        self.run_there(what_kernels_of_inductor_write_in_place)

    def test_all_tensors_of_a_kernel_of_which_nothing_is_known_count_as_written(self):
        self.run_there(kernels_of_which_nothing_is_known)

    def test_without_the_hook_none_of_it_works(self):
        for what in (compiled_training_without_the_hook, own_kernels_without_the_hook):
            told = self.told[what.__name__]
            print(told[-300:])
            self.assertNotIn("the same bits\n", told)
            self.assertRegex(told, "simulated GPU: race|other bits|where no tensor of the call lies|cannot be accessed from Triton")
            self.assertFalse(told.endswith("status 0\n"))


if __name__ == "__main__":
    on_simulated_gpu.run_each(globals())
