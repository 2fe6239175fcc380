"""estimate(): one step of a callable as a trace, by the operators that torch dispatches; `vedette fits` answers. On meta tensors
nothing is computed: shapes, lifetimes and operands are all that counts."""

import json
import pathlib
import subprocess
import tempfile
import time

import torch
from torch._subclasses.fake_tensor import DataDependentOutputException, FakeTensor
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from .__main__ import find_tool
from ._guard import Failure
from ._sizes import bytes_of, word_of

_overwrites = {"aten::zero_", "aten::fill_", "aten::copy_", "aten::normal_", "aten::uniform_", "aten::bernoulli_", "aten::random_"}
# What these save for backward is the library's own, and torch's shapes of it are empty.
_unknown_scratch = {"aten::mkldnn_rnn_layer", "aten::_cudnn_rnn", "aten::miopen_rnn"}


def _tool():
    tool, is_there = find_tool()
    if not is_there:
        raise Failure(f"{tool} is missing from this installation; install the package again.", "unavailable")
    return tool


class _Known:
    """A storage that an operator of the step has touched."""

    __slots__ = ("alive", "bytes", "index", "kind", "name", "persistent", "shape")

    def __init__(self, tensor, index, persistent, name):
        storage = tensor.untyped_storage()
        self.index, self.persistent, self.name = index, persistent, name
        self.alive = StorageWeakRef(storage)
        self.bytes = storage.nbytes()
        self.kind = "constant" if persistent else "activation"
        whole = tensor.numel() * tensor.element_size() == self.bytes
        self.shape = list(tensor.shape) if whole else []


class _Recorder(TorchDispatchMode):
    def __init__(self):
        super().__init__()
        self.known, self.living, self.ops, self.parameters = [], {}, [], {}
        self.in_backward = self.has_been_backward = False

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        self._bury()
        began = time.perf_counter_ns()
        result = function(*args, **kwargs)
        self._note(function, args, kwargs, result, time.perf_counter_ns() - began)
        return result

    def _bury(self):
        """What has died since the last operator did so after it."""
        dead = [key for key, known in self.living.items() if not known.persistent and known.alive.expired()]
        for key in dead:
            known = self.living.pop(key)
            if self.ops:
                self.ops[-1]["frees"].append(known.index)

    def _storage(self, tensor, born, name):
        if not isinstance(tensor, torch.Tensor) or tensor.layout != torch.strided or tensor.numel() == 0:
            return None
        key = tensor.untyped_storage()._cdata
        if key not in self.living:
            known = _Known(tensor, len(self.known), not born, name)
            self.known.append(known)
            self.living[key] = known
        if tensor.requires_grad and tensor.is_leaf and self.living[key].persistent:
            self.living[key].kind = "weight"
            self.parameters.setdefault(key, tensor)
        return self.living[key]

    def _phase(self, writes):
        backward = torch._C._current_graph_task_id() != -1
        if self.in_backward and not backward:
            for parameter in self.parameters.values():
                if parameter.grad is not None:
                    known = self.living.get(parameter.grad.untyped_storage()._cdata)
                    if known is not None:
                        known.kind = "gradient"
        self.in_backward = backward
        self.has_been_backward = self.has_been_backward or backward
        if backward:
            return "backward"
        # Before its backward pass a step writes buffers, which count batches for instance.
        return "optimizer" if self.has_been_backward and any(known.persistent for known in writes) else "forward"

    def _note(self, function, args, kwargs, result, nanoseconds):
        schema, name = function._schema, function._schema.name
        given = list(zip(schema.arguments, args)) + [(each, kwargs[each.name]) for each in schema.arguments if each.name in kwargs]
        reads, writes = set(), set()
        for argument, value in given:
            written = argument.alias_info is not None and argument.alias_info.is_write
            for tensor in tree_leaves(value):
                known = self._storage(tensor, False, f"input {len(self.known)}")
                if known is None:
                    continue
                if written:
                    writes.add(known)
                if not written or not (argument.is_out or name in _overwrites):
                    reads.add(known)
        for tensor in tree_leaves(result):
            before = len(self.known)
            known = self._storage(tensor, True, f"{name} {len(self.ops)}")
            if len(self.known) > before:
                writes.add(known)
        if not writes:
            return  # a view
        phase = self._phase(writes)
        if phase == "optimizer":
            for known in reads | writes:
                if known.persistent and known.kind == "constant":
                    known.kind = "optimizer"
        self.ops.append({"id": len(self.ops), "name": name, "layer": None, "phase": phase, "ns": max(1, nanoseconds),
                         "reads": sorted(each.index for each in reads), "writes": sorted(each.index for each in writes),
                         "workspace_bytes": 0, "frees": []})

    def trace(self, name, device):
        self._bury()
        for op in self.ops:
            op["frees"].sort()
        return {"format": "vedette-trace-1", "name": name, "source": "vedette.estimate", "device": device, "notes": [],
                "tensors": [{"id": each.index, "name": each.name, "bytes": each.bytes, "kind": each.kind, "persistent": each.persistent,
                             **({"shape": each.shape} if each.shape else {})} for each in self.known],
                "ops": self.ops}


def estimate(step, *, card=None, memory=None, host=None, disk=None, trace=None, step_ms=None):
    options = []
    if step_ms is not None:
        if isinstance(step_ms, bool) or not isinstance(step_ms, (int, float)):
            raise TypeError(f"step_ms: {step_ms!r} is no time; write a number of milliseconds.")
        options += ["--step", f"{step_ms}ms"]
    for option, value in (("card", card), ("memory", memory), ("host", host), ("disk", disk)):
        if value is not None:
            size = str(bytes_of(option, value)) if option in ("memory", "host") else word_of(option, value, "'h100', '2GB/s'")
            options += ["--" + option, size]
    try:
        step()  # optimizers make their state in their first step
        with _Recorder() as recorder:
            step()
    except (NotImplementedError, RuntimeError) as error:
        if "meta tensor" not in str(error) and not isinstance(error, DataDependentOutputException):
            raise
        raise Failure(f"the step needs numbers that tensors without data do not have ({str(error).splitlines()[0]}); take tensors with data, or "
                      "leave out what looks at them.") from error
    if not recorder.ops:
        raise Failure("the step ran no operator; give a callable that trains one step.", "malformed_input")
    on_meta = any(parameter.is_meta or isinstance(parameter, FakeTensor) for parameter in recorder.parameters.values())
    if on_meta and card is None:
        raise Failure("nothing is computed on tensors without data, so no operator has a time: name a card, card='h100'.", "malformed_input")
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(trace) if trace is not None else pathlib.Path(folder) / "step.json"
        path.write_text(json.dumps(recorder.trace(getattr(step, "__name__", "step"), "meta" if on_meta else "cpu")))
        done = subprocess.run([_tool(), "fits", path, "--json", *options], capture_output=True, text=True)
    if done.returncode:
        raise Failure(done.stderr.strip().removeprefix("vedette: ").removeprefix("vedette fits: "), "infeasible")
    answer = json.loads(done.stdout)
    not_known = sorted({op["name"] for op in recorder.ops} & _unknown_scratch) if on_meta else []
    return {**answer, "not_known": not_known} if not_known else answer
