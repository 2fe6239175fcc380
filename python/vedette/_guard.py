"""Guard: see __init__.pyi for what its functions promise. What moves bytes is vedette._core; here Python's modules and optimizers
become lists of tensors, and words become sizes."""

import atexit
import sys
import weakref

import torch

from . import _core
from ._sizes import budget_of, bytes_of


class Failure(RuntimeError):
    """What vedette could not do, in one sentence with the remedy.

    `cause` is "unavailable", "unsupported", "out_of_memory", "malformed_input", "infeasible" or "system"; `errno` is 0 unless a
    system call failed.
    """

    def __init__(self, message, cause="unsupported", errno=0):
        super().__init__(message)
        self.cause = cause
        self.errno = errno

    def __reduce__(self):
        return type(self), (str(self), self.cause, self.errno)


Failure.__module__ = "vedette"
_core.raise_failures(Failure)


def _to_stderr():
    said = set()

    def say(sentence):
        if sentence not in said:
            said.add(sentence)
            print("vedette:", sentence, file=sys.stderr, flush=True)

    return say


def _nanoseconds(option, microseconds):
    if microseconds is None:
        return None
    if isinstance(microseconds, bool) or not isinstance(microseconds, (int, float)):
        raise TypeError(f"{option}: {microseconds!r} is no time; write a number of microseconds.")
    if not 0 <= microseconds < 1e9:
        raise ValueError(f"{option}: {microseconds} is no time; write microseconds, at least 0 and below 1e9.")
    return round(microseconds * 1000)


def _local(tensor):
    """The tensor whose memory this process has: a DTensor's part, or the tensor itself."""
    return getattr(tensor, "_local_tensor", tensor)


def _is_there(tensor):
    return isinstance(tensor, torch.Tensor) and not torch.nn.parameter.is_lazy(tensor) and tensor.device.type != "meta"


def _tensors_of_module(module, name):
    prefix = name + "." if name else ""
    own = type(module).__name__
    for found in (module.named_parameters(), module.named_buffers()):
        for key, tensor in found:
            if _is_there(tensor):
                yield _local(tensor), prefix + (key if "." in key else f"{own}.{key}" if not name else key), "weight"


def _innermost(optimizer):
    """The optimizer whose state it is: wrappers of Accelerate, Lightning and ZeroRedundancyOptimizer have it inside."""
    while True:
        inner = getattr(optimizer, "optim", None) or getattr(optimizer, "optimizer", None)
        if inner is None or not hasattr(inner, "param_groups"):
            return optimizer
        optimizer = inner


def _tensors_of_optimizer(optimizer, names):
    for parameter, state in optimizer.state.items():
        if not isinstance(state, dict):
            continue
        for key, tensor in state.items():
            if _is_there(tensor):
                yield _local(tensor), f"{names.get(id(parameter), 'parameter')}.{key}", "optimizer"


def _is_shared(tensor):
    return tensor.device.type == "cpu" and tensor.layout == torch.strided and tensor.is_shared()


def _private_files():
    """Ranges of addresses that are files which were mapped for this process alone."""
    ranges = []
    with open("/proc/self/maps") as maps:
        for line in maps:
            addresses, permissions, _, _, _, *path = line.split(maxsplit=5)
            if permissions.endswith("p") and path and path[0].startswith("/"):
                ranges.append(tuple(int(address, 16) for address in addresses.split("-")))
    return ranges


def _leave_mapped_files(tensors):
    """torch.load(mmap=True) gives slices of a mapped file, of which C++ cannot see what they are. Pages that are written become memory
    of this process, outside the budget. So these tensors get memory of their own; those that share a part still do."""
    strangers = [tensor for tensor, _, _ in tensors if tensor.device.type == "cpu" and tensor.layout == torch.strided
                 and tensor.numel() > 0 and not tensor.untyped_storage().resizable()]
    files = _private_files() if strangers else []
    copies = {}
    for tensor in strangers:
        first = tensor.data_ptr()
        if any(begin <= first < end for begin, end in files):
            part = first, tensor.dtype, tensor.shape, tensor.stride()
            if part not in copies:
                copies[part] = tensor.detach().clone()
            tensor.data = copies[part]


_open_guards = weakref.WeakSet()


@atexit.register
def _close_what_is_open():
    """A recording is whole and the slow tier's file is gone before the interpreter ends."""
    for guard in list(_open_guards):
        guard._give_up()


class Guard:
    """A budget of fast memory around a training loop. See vedette/__init__.pyi and docs/python.md."""

    def __init__(self, fast_memory=None, *, slow="nvme:.", policy="vedette", chunk="2MiB", warmup_steps=1, profile="layers",
                 tracker="best", on_message=None, seed=1, ranks=1, interference_percent=None, fault_us=None, checksums=False,
                 record="", recompute="off", fast="dram", table_memory=None):
        size, share = budget_of(fast_memory)
        self._say = on_message or _to_stderr()
        words = dict(slow=slow, policy=policy, chunk=bytes_of("chunk", chunk), warmup_steps=warmup_steps, profile=profile,
                     tracker=tracker, on_message=self._say, seed=seed, ranks=ranks,
                     interference_percent=interference_percent, fault_ns=_nanoseconds("fault_us", fault_us), checksums=checksums,
                     record=str(record), recompute=recompute, fast=fast,
                     table_memory=0 if table_memory is None else bytes_of("table_memory", table_memory))
        self._modules = []     # (weak reference, name)
        self._optimizers = []  # weak references
        self._names_change = False
        if str(fast).startswith("gpu"):
            from . import _storages  # it needs what stands here
            _storages.serve()
        self._core = _core.Guard(size, share, words)
        _open_guards.add(self)

    def _watch(self, tensors):
        tensors = list(tensors)
        for tensor, name, _ in tensors:
            if _is_shared(tensor):
                self._say(f"Tensor '{name}' is shared with other processes; it stays where it is, outside the budget.")
        tensors = [each for each in tensors if not _is_shared(each[0])]
        _leave_mapped_files(tensors)
        self._core.watch(tensors)

    def watch(self, what, name=""):
        if isinstance(what, torch.nn.Module):
            self._watch(_tensors_of_module(what, name))
            others = [each for each in self._modules if each[0]() is not None and each[0]() is not what]
            self._modules = others + [(weakref.ref(what), name)]
        elif isinstance(what, torch.Tensor):
            self._watch([(_local(what), name or "tensor", "weight")])
        elif hasattr(what, "param_groups"):
            optimizer = _innermost(what)
            self._watch_state(optimizer)
            self._optimizers.append(weakref.ref(optimizer))
            self._names_change = True
        else:
            raise TypeError(f"watch: a {type(what).__name__} is neither a torch.nn.Module nor an optimizer nor a tensor.")

    def _watch_state(self, optimizer):
        names = {id(parameter): (name + "." if name else "") + key for module, name in self._modules if module() is not None
                 for key, parameter in module().named_parameters()}
        self._watch(_tensors_of_optimizer(optimizer, names))

    def _watch_states(self):
        for optimizer in self._optimizers:
            if optimizer() is not None:
                self._watch_state(optimizer())

    def step(self):
        if self._names_change:  # optimizers make their state in their first step
            self._watch_states()
            self._names_change = self._core.phase == "warm-up"
        return self._core.step()

    def layer(self, name):
        return self._core.layer(name)

    def resident(self, tensor):
        return self._core.resident(_local(tensor))

    def bring_home(self):
        for module, name in self._modules:
            if module() is not None:
                self._watch(_tensors_of_module(module(), name))
        self._watch_states()
        self._core.bring_home()

    def close(self):
        self._core.close()
        _open_guards.discard(self)

    def _give_up(self):
        self._core.end_step()
        try:
            self.close()
        except Failure:
            pass

    def __enter__(self):
        return self

    def __exit__(self, *raised):
        self._core.end_step()
        self.close()

    def __repr__(self):
        return "<vedette.Guard, closed>" if self.is_closed else f"<vedette.Guard of {self.budget} bytes, {self.phase}>"

    is_closed = property(lambda self: self._core.is_closed)
    counters = property(lambda self: self._core.counters)
    phase = property(lambda self: self._core.phase)
    mechanism = property(lambda self: self._core.mechanism)
    budget = property(lambda self: self._core.budget)
    smallest_budget = property(lambda self: self._core.smallest_budget)


Guard.__module__ = "vedette"
