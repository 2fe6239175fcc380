"""Optimizer steps inside a backward pass, one parameter at a time: see step_in_backward in __init__.pyi.

Only optimizers that are known to update each parameter from its own gradient alone are taken apart so: torch.optim's, by exact type.
Wrappers are known by exact type, too, and what they do around the step is done here.

Invariant: outside of a hook the optimizer's groups are as the program made them, whatever is raised.
"""

import inspect
import threading

import torch
from torch.optim import optimizer as torchs

from . import _core
from ._guard import Failure

_remedy = "call backward() and the optimizer's step() instead"
_rules = {getattr(torch.optim, name) for name in ("Adadelta", "Adafactor", "Adagrad", "Adam", "Adamax", "AdamW", "ASGD", "Muon", "NAdam",
                                                  "RAdam", "RMSprop", "Rprop", "SGD", "SparseAdam") if hasattr(torch.optim, name)}
_wrappers = {
    ("torch.distributed.optim.zero_redundancy_optimizer", "ZeroRedundancyOptimizer"): "optim",
    ("accelerate.optimizer", "AcceleratedOptimizer"): "optimizer",
    ("lightning.pytorch.core.optimizer", "LightningOptimizer"): "optimizer",
    ("pytorch_lightning.core.optimizer", "LightningOptimizer"): "optimizer",
    ("lightning.fabric.wrappers", "_FabricOptimizer"): "optimizer",
    ("lightning_fabric.wrappers", "_FabricOptimizer"): "optimizer",
}


def _own_class(optimizer):
    """Lightning's wrappers make themselves a class of their own and the wrapped optimizer's."""
    kind = type(optimizer)
    made = len(kind.__bases__) == 2 and "step" not in vars(kind) and kind.__name__ in (
        prefix + kind.__bases__[1].__name__ for prefix in ("Lightning", "Fabric"))
    return kind.__bases__[0] if made else kind


def _inside(optimizer):
    """What a known wrapper wraps; None: it is none."""
    kind = _own_class(optimizer)
    name = _wrappers.get((kind.__module__, kind.__qualname__))
    return None if name is None else getattr(optimizer, name)


def _steps_by_its_class(optimizer):
    """A scheduler puts a counter around step(), which is no other step."""
    kind, own = type(optimizer), vars(optimizer).get("step")
    return (inspect.unwrap(kind.step).__module__.startswith("torch.optim.")
            and (own is None or hasattr(own, "_wrapped_by_lr_sched") and getattr(own, "__wrapped__", None) is kind.step))


def _has_hooks(optimizer):
    return bool(optimizer._optimizer_step_pre_hooks or optimizer._optimizer_step_post_hooks
                or torchs._global_optimizer_pre_hooks or torchs._global_optimizer_post_hooks)


def _refuse(optimizer, per_parameter):
    name = type(optimizer).__name__
    if isinstance(optimizer, torch.optim.LBFGS):
        raise Failure("LBFGS looks at all gradients together and cannot step in backward; call its step() afterwards.")
    wrapped = next((word for word in ("optim", "optimizer") if hasattr(getattr(optimizer, word, None), "param_groups")), None)
    if wrapped is not None:
        raise Failure(f"step_in_backward: a {name} wraps another optimizer, and what its own step() does would be left out; {_remedy}.")
    if per_parameter:
        return
    if _has_hooks(optimizer):
        raise Failure("step_in_backward: this optimizer has hooks around its step(), which would be called for each parameter; "
                      f"{_remedy}, or say per_parameter=True where they may be.")
    if type(optimizer) not in _rules or not _steps_by_its_class(optimizer):
        raise Failure(f"step_in_backward: the step() of a {name} may look at more than one parameter's gradient; {_remedy}, or say "
                      "per_parameter=True where it updates each parameter from its own gradient alone.")


def _refuse_wrapper(wrapper):
    if getattr(wrapper, "scaler", None) is not None:
        raise Failure(f"step_in_backward: this optimizer's gradients are scaled until its step(); {_remedy}.")
    if getattr(wrapper, "_overlap_with_ddp", False):
        raise Failure("step_in_backward: this ZeroRedundancyOptimizer steps in the Reducer's hooks already; call backward() alone.")


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
                          f"step one parameter at a time; {_remedy}.")
    parameter.grad = None


def _step_within(optimizer, backward):
    stepped, one_at_a_time = set(), threading.Lock()  # autograd has a thread for each device

    def hook_of(group):
        def hook(parameter):
            with one_at_a_time:
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


def step_in_backward(optimizer, backward, *, per_parameter=False):
    wrapper, inner = optimizer, _inside(optimizer)
    if inner is None:
        _refuse(optimizer, per_parameter)
        return _step_within(optimizer, backward)
    _refuse_wrapper(wrapper)
    gradients = getattr(wrapper, "gradient_state", None)  # Accelerate's: a pass that only accumulates has no step
    if gradients is not None and not gradients.sync_gradients:
        backward()
        return None
    shares = hasattr(wrapper, "_sync_params")  # among ranks; a scheduler changes the wrapper's groups
    if shares:
        wrapper._sync_param_groups(wrapper.param_groups, inner.param_groups)
    step_in_backward(inner, backward, per_parameter=per_parameter)
    if shares:
        wrapper._sync_param_groups(inner.param_groups, wrapper.param_groups)
        wrapper._sync_params()
        wrapper.zero_grad()
    return None
