"""Optimizer steps inside a backward pass, one parameter at a time: see step_in_backward in __init__.pyi.

Invariant: outside of a hook the optimizer's groups are as the program made them, whatever is raised.
"""

import torch

from . import _core
from ._guard import Failure, _innermost


def _refuse(optimizer):
    if isinstance(optimizer, torch.optim.LBFGS):
        raise Failure("LBFGS looks at all gradients together and cannot step in backward; call its step() afterwards.")
    if optimizer._optimizer_step_pre_hooks or optimizer._optimizer_step_post_hooks:
        raise Failure("step_in_backward: this optimizer has hooks around its step(), which would be called for each parameter; "
                      "call backward() and the optimizer's step() instead.")


def _step_one(optimizer, group, parameter):
    """As the optimizer's own step() would do it among all others."""
    groups = optimizer.param_groups
    alone = {**group, "params": [parameter]}
    optimizer.param_groups = [alone]
    try:
        with _core.OptimizerStep():
            optimizer.step()
    finally:
        optimizer.param_groups = groups
    for key, value in alone.items():
        if key != "params" and group.get(key) is not value:
            raise Failure(f"step_in_backward: {type(optimizer).__name__} changes '{key}' of a whole group in a step, and cannot "
                          "step one parameter at a time; call backward() and the optimizer's step() instead.")
    parameter.grad = None


def step_in_backward(optimizer, backward):
    optimizer = _innermost(optimizer)
    _refuse(optimizer)
    stepped = set()

    def hook_of(group):
        def hook(parameter):
            if id(parameter) in stepped:
                raise Failure("a parameter's gradient came in two parts, and the first has stepped the optimizer already; step "
                              "after backward where a pass accumulates gradients more than once.")
            stepped.add(id(parameter))
            _step_one(optimizer, group, parameter)

        return hook

    handles = []
    try:
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                if not parameter.requires_grad or not parameter.is_leaf:
                    continue
                _core.refuse_other_hooks(parameter)
                handles.append(parameter.register_post_accumulate_grad_hook(hook_of(group)))
        backward()
    finally:
        for handle in handles:
            handle.remove()
    if any(parameter.grad is not None for group in optimizer.param_groups for parameter in group["params"]):
        optimizer.step()  # what this pass did not reach, and an earlier one did
    optimizer.zero_grad()
