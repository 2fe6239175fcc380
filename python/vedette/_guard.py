"""Guard: see __init__.pyi for what its functions promise. What moves bytes is vedette._core; here Python's modules and optimizers
become lists of tensors, and words become sizes."""

import atexit
import builtins
import logging
import os
import sys
import weakref

import torch

from . import _compiled, _core, _shown
from ._exports import held_elsewhere, looks_free
from ._reached import levels_of, local, of_module, of_optimizer, of_tensor
from ._sizes import budget_of, bytes_of, count_of, path_of, slow_of, word_of


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


def _to_log(level):
    """To the logger "vedette" where the program has set up logging, and else to standard error; each sentence once."""
    said, logger = set(), logging.getLogger("vedette")

    def say(sentence):
        if sentence in said:
            return
        said.add(sentence)
        if logger.hasHandlers():
            logger.log(level, sentence)
        else:
            print("vedette:", sentence, file=sys.stderr, flush=True)

    return say


def _callable(option, function):
    if not callable(function):
        raise TypeError(f"{option}: {function!r} cannot be called; give a function that takes a sentence, or None.")
    return function


def _nanoseconds(option, microseconds):
    if microseconds is None:
        return None
    if isinstance(microseconds, bool) or not isinstance(microseconds, (int, float)):
        raise TypeError(f"{option}: {microseconds!r} is no time; write a number of microseconds.")
    if not 0 <= microseconds < 1e9:
        raise ValueError(f"{option}: {microseconds} is no time; write microseconds, at least 0 and below 1e9.")
    return round(microseconds * 1000)


def _is_shared(tensor):
    try:
        return tensor.device.type == "cpu" and tensor.layout == torch.strided and tensor.is_shared()
    except (NotImplementedError, RuntimeError):  # a subclass without a storage
        return False


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
mechanisms = set()  # of all guards that were opened: tensors may outlive theirs


def tell_guards_of_gpus(sentence):
    """Each is told once."""
    for guard in list(_open_guards):
        if guard._told is not None and sentence not in guard._told:
            guard._told.add(sentence)
            guard._say(sentence)


def current_guard():
    return next((guard for guard in list(_open_guards) if not guard.is_closed and not guard._core.is_off), None)


def _end_a_notebooks_own():
    """A cell that opens a guard and is run again would be refused by its own first run. Where nothing but one name of an interactive
    program holds the guard before, it is closed first."""
    if not hasattr(sys, "ps1") and not hasattr(builtins, "__IPYTHON__"):
        return
    guard = current_guard()
    if guard is None or guard._core.in_step:
        return
    names = [name for name, value in vars(sys.modules["__main__"]).items() if value is guard]
    fresh = object()  # held by a name of this function, as `guard` is
    if len(names) == 1 and sys.getrefcount(guard) == sys.getrefcount(fresh) + 1:
        guard._say(f"another guard is opened, so the one that {names[0]} names is closed")
        guard.close()


os.register_at_fork(after_in_child=_open_guards.clear)  # they are the parent's


@atexit.register
def _close_what_is_open():
    """A recording is whole and the slow tier's file is gone before the interpreter ends."""
    for guard in list(_open_guards):
        guard._give_up()
    _core.end_left_guards()


class Guard:
    """A budget of fast memory around a training loop. See vedette/__init__.pyi and docs/python.md."""

    __slots__ = ("_core", "_last_counters", "_last_progress", "_last_step", "_last_written", "_left_out", "_modules", "_names_change",
                 "_optimizers", "_say", "_told", "__weakref__")

    def __init__(self, fast_memory=None, *, slow="nvme:.", policy="vedette", chunk="2MiB", warmup_steps=1, profile="layers",
                 tracker="best", on_message=None, seed=1, ranks=1, interference_percent=None, fault_us=None, checksums=False,
                 record="", recompute=None, fast="dram", table_memory=None, enabled=True, verbose=True, on_progress=None,
                 max_writes="", pressure=False, share=""):
        size, fraction = budget_of(fast_memory)
        self._say = _to_log(logging.WARNING) if on_message is None else _callable("on_message", on_message)
        if on_progress is not None:
            progress = _callable("on_progress", on_progress)
        else:
            progress = _to_log(logging.INFO) if on_message is None else lambda line: None
        words = dict(slow=slow_of(slow), policy=word_of("policy", policy, "'vedette'"), chunk=bytes_of("chunk", chunk),
                     warmup_steps=count_of("warmup_steps", warmup_steps), profile=word_of("profile", profile, "'layers'"),
                     tracker=word_of("tracker", tracker, "'best'"), on_message=self._say, seed=count_of("seed", seed, 1 << 63),
                     ranks=count_of("ranks", ranks),
                     interference_percent=None if interference_percent is None else count_of("interference_percent", interference_percent),
                     fault_ns=_nanoseconds("fault_us", fault_us), checksums=bool(checksums),
                     record=path_of("record", record),
                     recompute=None if recompute is None else word_of("recompute", recompute, "'off', 'planned' or 'always'"),
                     fast=word_of("fast", fast, "'dram' or 'gpu:0'"),
                     table_memory=0 if table_memory is None else bytes_of("table_memory", table_memory),
                     enabled=bool(enabled), verbose=bool(verbose), pressure=bool(pressure), on_progress=progress,
                     max_writes=word_of("max_writes", max_writes, "'500GB/day'"), share=path_of("share", share))
        self._modules = []     # (weak reference, name)
        self._optimizers = []  # weak references
        self._names_change = False
        self._left_out = _core.LeftOut()
        self._last_counters = self._last_step = None
        self._last_progress = self._last_written = (0, 0, 0)  # stalls, bytes and steps when they were asked last
        self._told = None  # sentences of a guard of GPU memory
        if fast.startswith(("gpu", "cuda")) and enabled and not _core.guards_are_switched_off():
            self._told = set()
            from . import _custom_operators, _storages  # they need what stands here
            _storages.serve()
            _custom_operators.hear_of_them()
        elif recompute in ("planned", "always") and (unseen := _compiled.unannounced()):
            self._say(f"recompute is off: {unseen}, and what such a kernel writes would be recomputed without it; import vedette before "
                      "the first call of what is compiled")
            words["recompute"] = "off"
        _end_a_notebooks_own()
        self._core = _core.Guard(size, fraction, words)
        _open_guards.add(self)
        if not self._core.is_off:
            mechanisms.add(self.mechanism)

    def _watch(self, tensors):
        if self._core.is_off:
            return
        tensors, moving = list(tensors), []
        strangers = [(tensor, kind) for tensor, _, kind in tensors if not _core.owns(tensor)]
        held = set() if looks_free(strangers) else held_elsewhere({_core.storage_of(tensor) for tensor, _ in strangers} - {0})
        for tensor, name, kind in tensors:
            if _is_shared(tensor):
                self._left_out.add(_core.Why.shared, name, tensor.nbytes)
            elif not _core.owns(tensor) and (_core.is_exported(tensor) or _core.storage_of(tensor) in held):
                self._left_out.add(_core.Why.exported, name, tensor.nbytes)
            else:
                moving.append((tensor, name, kind))
        for sentence in self._left_out.sentences():
            self._say(sentence)
        _leave_mapped_files(moving)
        self._core.watch(moving)

    def watch(self, what, name=""):
        if isinstance(what, torch.nn.Module):
            self._watch(of_module(what, name))
            others = [each for each in self._modules if each[0]() is not None and each[0]() is not what]
            self._modules = others + [(weakref.ref(what), name)]
        elif isinstance(what, torch.Tensor):
            self._watch(of_tensor(what, name or "tensor"))
        elif hasattr(what, "param_groups"):
            for optimizer in levels_of(what):
                self._watch_state(optimizer)
                others = [each for each in self._optimizers if each() is not None and each() is not optimizer]
                self._optimizers = others + [weakref.ref(optimizer)]
            self._names_change = True
        else:
            raise TypeError(f"watch: a {type(what).__name__} is neither a torch.nn.Module nor an optimizer nor a tensor.")

    def _watch_state(self, optimizer):
        names = {id(parameter): (name + "." if name else "") + key for module, name in self._modules if module() is not None
                 for key, parameter in module().named_parameters()}
        self._watch(of_optimizer(optimizer, names))

    def _watch_states(self):
        for optimizer in self._optimizers:
            if optimizer() is not None:
                self._watch_state(optimizer())

    def step(self):
        last, self._last_step = self._last_step, None
        if last is not None and not last.begun:
            raise Failure("guard.step() alone begins no step, and the one before has not begun: write `with guard.step():` around each "
                          "training step.")
        if self._names_change:  # optimizers make their state in their first step
            self._watch_states()
            self._names_change = self._core.phase == "warm-up"
        self._last_step = self._core.step()
        return self._last_step

    def layer(self, name):
        return self._core.layer(name)

    def resident(self, tensor):
        if not isinstance(tensor, torch.Tensor):
            raise TypeError(f"resident: a {type(tensor).__name__} is no tensor; pin its tensors one by one.")
        return self._core.resident(local(tensor))

    def place(self, names, tier, *, rule=False):
        for option, value in (("names", names), ("tier", tier)):
            if not isinstance(value, str):
                raise TypeError(f"place: {option}={value!r} is no text; write guard.place('*.exp_avg*', 'fast').")
        self._core.place(names, tier, bool(rule))

    def bring_home(self):
        for module, name in self._modules:
            if module() is not None:
                self._watch(of_module(module(), name))
        self._watch_states()
        self._core.bring_home()

    def close(self):
        if not self.is_closed:
            self._last_counters = self._core.counters
        self._core.close()
        _open_guards.discard(self)

    def _give_up(self):
        self._core.end_scopes()
        self.close()

    def __enter__(self):
        return self

    def __exit__(self, *raised):
        self._give_up()

    def __repr__(self):
        if self.is_closed:
            return "<vedette.Guard, closed>"
        return "<vedette.Guard, switched off>" if self._core.is_off else f"<vedette.Guard of {self.budget} bytes, {self.phase}>"

    def _repr_html_(self):
        return _shown.of_guard(self)

    def _since(self, before):
        """Of a step since `before`: (stalls, bytes and steps), which is given back as it is now."""
        now = self.counters
        moved = now.bytes_in + now.bytes_out
        stalls, bytes_before, steps = before
        many = max(now.steps - steps, 1)
        return {"stall_ms": round((now.stall_ns - stalls) / 1e6 / many, 3),
                "moved_mib": round((moved - bytes_before) / (1 << 20) / many, 3),
                "phase": "closed" if self.is_closed else self.phase}, (now.stall_ns, moved, now.steps)

    @property
    def progress(self):
        figures, self._last_progress = self._since(self._last_progress)
        return figures

    def write_scalars(self, writer, step=None):
        if not callable(getattr(writer, "add_scalar", None)):
            raise TypeError(f"writer: {writer!r} has no add_scalar; give a torch.utils.tensorboard.SummaryWriter.")
        figures, self._last_written = self._since(self._last_written)
        now = self.counters
        for tag, value in _shown.scalars_of(figures, now, 0 if self.is_closed else self.budget).items():
            writer.add_scalar(tag, value, now.steps if step is None else step)

    is_closed = property(lambda self: self._core.is_closed)
    counters = property(lambda self: self._last_counters if self.is_closed else self._core.counters)
    phase = property(lambda self: self._core.phase)
    mechanism = property(lambda self: self._core.mechanism)
    budget = property(lambda self: self._core.budget)

    @property
    def fast_memory(self):
        return self._core.budget

    @fast_memory.setter
    def fast_memory(self, size):
        if size is None:
            raise TypeError("fast_memory: None is no size; write '500MiB', '25%' or a whole number of bytes.")
        self._core.set_fast_memory(*budget_of(size))

    smallest_budget = property(lambda self: self._core.smallest_budget)


Guard.__module__ = "vedette"


def owns(tensor):
    return _core.owns(tensor)


def resolve_vector_math():
    _core.resolve_vector_math()
