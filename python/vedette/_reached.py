"""The tensors that are reached from a module, an optimizer or a tensor, as lists of (tensor, name, kind) for vedette._core.

Invariant: what comes out has memory that this process has, or is of a kind whose memory cannot be seen, which the core says.
"""

import collections

import torch

from . import _core

_most_depth = 6  # of containers in containers


def local(tensor):
    """The tensor whose memory this process has: a DTensor's part, or the tensor itself."""
    return getattr(tensor, "_local_tensor", tensor)


def _is_there(tensor):
    return isinstance(tensor, torch.Tensor) and not torch.nn.parameter.is_lazy(tensor) and tensor.device.type != "meta"


def _parts(tensor, name, kind):
    """The tensors inside of a wrapper (quantized weights, jagged tensors), or the tensor itself."""
    if not _is_there(tensor):
        return
    tensor = local(tensor)
    if not hasattr(type(tensor), "__tensor_flatten__"):
        yield tensor, name, kind
        return
    for inner in tensor.__tensor_flatten__()[0]:
        yield from _parts(getattr(tensor, inner), f"{name}.{inner}", kind)


def of_tensor(tensor, name, kind="weight"):
    yield from _parts(tensor, name, kind)
    if _is_there(tensor) and tensor.is_leaf and tensor.grad is not None:
        yield from _parts(tensor.grad, name + ".grad", "gradient")


def _in_containers(value, name, kind, depth=0):
    if isinstance(value, torch.Tensor):
        yield from _parts(value, name, kind)
    elif depth < _most_depth and isinstance(value, dict):
        for key, inner in list(value.items()):
            yield from _in_containers(inner, f"{name}.{key}" if isinstance(key, (str, int)) else name, kind, depth + 1)
    elif depth < _most_depth and isinstance(value, (list, tuple, set, collections.deque)):
        for inner in list(value):
            yield from _in_containers(inner, name, kind, depth + 1)


def _not_there_yet(tensors, known):
    """Of attributes: what has memory of its own, beside these storages, that has not been moved."""
    return (each for each in tensors if _core.storage_of(each[0]) not in known and not _core.owns(each[0]))


def of_module(module, name):
    prefix = name + "." if name else ""
    own, known = type(module).__name__, set()
    for found in (module.named_parameters(), module.named_buffers()):
        for key, tensor in found:
            called = prefix + (key if "." in key else f"{own}.{key}" if not name else key)
            for each in of_tensor(tensor, called):
                known.add(_core.storage_of(each[0]))
                yield each
    for path, part in module.named_modules():
        for key, value in list(vars(part).items()):
            if key not in ("_parameters", "_buffers", "_modules"):
                yield from _not_there_yet(_in_containers(value, prefix + (path + "." if path else "") + key, "constant"), known - {0})


def levels_of(optimizer):
    """An optimizer, and those that it wraps: Accelerate, Lightning and ZeroRedundancyOptimizer do, Lookahead and SAM."""
    found, new = [], [optimizer]
    while new:
        one = new.pop(0)
        if any(one is other for other in found):
            continue
        found.append(one)
        new += [value for value in getattr(one, "__dict__", {}).values() if hasattr(value, "param_groups") and hasattr(value, "state")]
    return found


def of_optimizer(optimizer, names):
    known = {_core.storage_of(local(parameter)) for group in optimizer.param_groups for parameter in group["params"]}
    state = getattr(optimizer, "state", None)
    for parameter, values in list(state.items()) if isinstance(state, dict) else ():
        for each in _in_containers(values, names.get(id(parameter), "parameter"), "optimizer"):
            known.add(_core.storage_of(each[0]))
            yield each
    groups = [{**group, "params": ()} for group in optimizer.param_groups]
    others = {**getattr(optimizer, "__dict__", {}), "param_groups": groups, "state": ()}
    for key, value in others.items():
        yield from _not_there_yet(_in_containers(value, f"{type(optimizer).__name__}.{key}", "optimizer"), known - {0})
