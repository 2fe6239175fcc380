"""Optimizers of PyPI on one small model."""

import contextlib
import importlib
import inspect

packages = ("torch.optim", "pytorch_optimizer", "torch_optimizer", "schedulefree", "lion_pytorch", "prodigyopt", "adabelief_pytorch",
            "came_pytorch")
too_large = ("pytorch_optimizer.Kron",)  # a plain step takes gigabytes and minutes
source = "pytorch-optimizer torch-optimizer pytorch_ranger schedulefree lion-pytorch prodigyopt"


def cases():
    import torch

    found = {}
    for package in packages:
        with contextlib.suppress(ImportError), contextlib.redirect_stdout(None):
            for name, one in sorted(vars(importlib.import_module(package)).items()):
                if inspect.isclass(one) and issubclass(one, torch.optim.Optimizer) and not inspect.isabstract(one):
                    found.setdefault(one, f"{package}.{name}")
    names = [name for name in found.values() if not name.endswith(".Optimizer") and name not in too_large]
    if all(name.startswith("torch.optim") for name in names):
        raise ImportError("no package of optimizers is installed")
    return names


def make(name, device):
    import torch
    from torch import nn

    package, _, one = name.rpartition(".")
    model = nn.Sequential(*[layer for _ in range(4) for layer in (nn.Linear(192, 192), nn.Tanh())]).to(device)
    optimizer = getattr(importlib.import_module(package), one)(list(model.parameters()), lr=1e-3)
    if hasattr(optimizer, "train"):  # schedulefree's
        optimizer.train()

    def step(i):
        x = torch.randn(64, 192, generator=torch.Generator().manual_seed(i)).to(device)
        optimizer.zero_grad()
        loss = (model(x) - x).square().mean()
        loss.backward()
        optimizer.step()
        return loss

    return [model, optimizer], step
