"""The budget that a message names suffices: a training that is given it is planned, and no message names a larger one. A model with a
large operator, and a small one with each optimizer of torch.optim and of the packages below that are installed, which also have the
plain run's bits. VEDETTE_OPTIMIZERS adds a folder where packages lie.
"""

import contextlib
import importlib
import inspect
import os
import re
import signal
import sys
import unittest
import warnings

import torch
import vedette
from training import folder
from torch import nn
from torch.nn import functional as F

packages = ("torch.optim", "pytorch_optimizer", "torch_optimizer", "schedulefree", "lion_pytorch", "adabelief_pytorch", "came_pytorch",
            "prodigyopt")
too_large = ("pytorch_optimizer.Kron",)  # one step takes gigabytes and minutes
chunk = 64 << 10
sys.path += filter(None, [os.environ.get("VEDETTE_OPTIMIZERS")])


def optimizers():
    """(name, class) of every optimizer, each once."""
    found = {}
    for package in packages:
        with contextlib.suppress(ImportError), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            module = importlib.import_module(package)
            for name, one in sorted(vars(module).items()):
                if inspect.isclass(one) and issubclass(one, torch.optim.Optimizer) and one not in found and not inspect.isabstract(one):
                    found[one] = f"{package}.{name}"
    return [(name, one) for one, name in found.items() if not name.endswith(".Optimizer") and name not in too_large]


@contextlib.contextmanager
def at_most(seconds):
    """Of this process's own time: a few optimizers solve for minutes what a small model gives them."""

    def end(*_):
        raise TimeoutError(f"takes more than {seconds} s")

    before = signal.signal(signal.SIGVTALRM, end)
    signal.setitimer(signal.ITIMER_VIRTUAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)


def of_several_layers():
    return nn.Sequential(*[layer for _ in range(4) for layer in (nn.Linear(192, 192), nn.Tanh())])


def with_a_large_op():
    return nn.Sequential(nn.Conv2d(3, 32, 3, 1, 1), nn.BatchNorm2d(32), nn.ReLU(), nn.Conv2d(32, 64, 3, 2, 1), nn.BatchNorm2d(64),
                         nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10))


class Training:
    """Of `steps` steps, under a guard where there is a budget."""

    def __init__(self, make_model, make_optimizer, budget=None, steps=8):
        torch.manual_seed(1)
        self.said, self.faults = [], []
        with contextlib.ExitStack() as stack:
            slow = stack.enter_context(folder())
            guard = None if budget is None else stack.enter_context(
                vedette.Guard(budget, slow=f"nvme:{slow}", chunk=chunk, on_message=self.said.append))
            model = make_model()
            optimizer = make_optimizer(model.parameters())
            if guard:
                guard.watch(model)
                guard.watch(optimizer)
            if hasattr(optimizer, "train"):  # schedulefree's
                optimizer.train()
            for step in range(steps):
                before = guard.counters.faults if guard else 0
                with guard.step() if guard else contextlib.nullcontext():
                    optimizer.zero_grad()
                    loss = self.loss(model)
                    loss.backward()
                    optimizer.step()
                if guard:
                    self.phase = guard.phase
                    self.faults.append(guard.counters.faults - before)
            self.numbers = [p.detach().numpy().tobytes() for p in model.parameters()]
            self.peak = guard.counters.peak_bytes if guard else 0
            del model, optimizer, loss

    @staticmethod
    def loss(model):
        if isinstance(model[0], nn.Conv2d):
            return F.cross_entropy(model(torch.randn(32, 3, 32, 32)), torch.randint(0, 10, (32,)))
        x = torch.randn(64, 192)
        return (model(x) - x).square().mean()

    def named(self):
        """The largest budget that a message wants, in bytes; 0: none does."""
        return max((int(n) for s in self.said for n in re.findall(r"(?:at least|needs) [^;]*?\((\d+) bytes\)", s)), default=0)


class NamedBudgets(unittest.TestCase):
    def test_suffices_for_a_model_with_a_large_op(self):
        def adamw(parameters):
            return torch.optim.AdamW(parameters, lr=1e-3)

        small = Training(with_a_large_op, adamw, 11 << 20)
        self.assertGreater(small.named(), 11 << 20, small.said)
        given = Training(with_a_large_op, adamw, small.named())
        self.assertEqual(given.named(), 0, given.said)
        self.assertEqual(given.phase, "planned")
        self.assertEqual(sum(given.faults[5:]), 0, given.faults)

    def test_suffices_for_every_optimizer(self):
        threads = torch.get_num_threads()
        torch.set_num_threads(1)
        self.addCleanup(torch.set_num_threads, threads)
        ran, told, left_out, wrong = 0, 0, {}, []
        for name, one in optimizers():
            def make(parameters, one=one):
                return one(list(parameters), lr=1e-3)

            with warnings.catch_warnings(), contextlib.redirect_stdout(None):
                warnings.simplefilter("ignore")
                try:
                    with at_most(5):
                        plain, again = Training(of_several_layers, make), Training(of_several_layers, make)
                except Exception as refused:  # it wants other arguments, or a closure
                    left_out[name] = f"{type(refused).__name__}: {str(refused)[:80]}"
                    continue
                if plain.numbers != again.numbers:
                    left_out[name] = "two plain runs differ"
                    continue
                try:
                    peak = Training(of_several_layers, make, 256 << 20, steps=3).peak
                    half = Training(of_several_layers, make, peak // 2 // chunk * chunk)
                    given = Training(of_several_layers, make, half.named()) if half.named() else half
                except Exception as failure:
                    wrong.append(f"{name}: {type(failure).__name__}: {failure}")
                    continue
            ran += 1
            told += half is not given
            if half.numbers != plain.numbers or given.numbers != plain.numbers:
                wrong.append(f"{name}: other bits")
            if given.named():
                wrong.append(f"{name}: {half.named()} bytes were named, and then {given.named()}: {given.said}")
            elif given.phase != "planned" and half is not given:
                wrong.append(f"{name}: given {half.named()} bytes, it is {given.phase}: {given.said}")
            sys.stderr.write(f"{name}: peak {peak >> 10} KiB, named {half.named() >> 10}, faults {sum(given.faults[5:])}, {given.phase}\n")
        print(f"{ran} optimizers, of which {told} were told a budget; left out: {left_out}")
        self.assertEqual(wrong, [])


if __name__ == "__main__":
    unittest.main()
