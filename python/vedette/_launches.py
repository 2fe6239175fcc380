"""Kernels that Triton launches on a GPU become ops with operands: inductor's, and those of the program's own (@triton.jit). Both are called
with tensors, past libtorch's dispatcher. Which of them a kernel writes is known by inductor's names of arguments, and of a program's own
kernel by torch's analysis of its code; where neither knows, it may write all of them.

Invariant: while no guard of GPU memory lives, a launch is what it was. Where a part of torch or Triton is not as it is in torch 2.11 to
2.15, tensors whose addresses a launcher asks for stay where they are.
"""

import functools

import torch

from . import _core
from ._on_import import change_on_import

_TIMED = ("torch.compile or triton.autotune times kernels inside of the guard: the memory that it takes for that, 50 to 256 MiB at a time, "
          "is libtorch's own, beside the budget; compile before the guard is made to be without it.")
_RAW = ("{} calls kernels with addresses, of which a guard of GPU memory does not hear: a tensor that has moved is written or read where "
        "it was; {}.")
_UNKNOWN = "this version of Triton launches kernels in a way that vedette does not know: all their tensors count as written, or stay in place."


def _tell(sentence):
    from ._guard import tell_guards_of_gpus

    tell_guards_of_gpus(sentence)


def _tensors_in(value):
    """Also in tuples, in a TensorDescriptor and in what triton.reinterpret gives."""
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, (tuple, list)):
        return [tensor for each in value for tensor in _tensors_in(each)]
    base = getattr(value, "base", None)
    return [base] if isinstance(base, torch.Tensor) else []


def _launch(name, values, written, launch):
    """`values`: pairs of an argument's name and what is given for it; `written`: names, or None for all."""
    reads, writes = [], []
    for argument, value in values:
        (writes if written is None or argument in written else reads).extend(_tensors_in(value))
    return _core.call_as_op(name, reads, writes, launch)


# --- what a kernel writes

_notes = {}  # by id of a kernel, whose own hash takes microseconds


class _Notes:
    """Of a program's own kernel, which lives as long as they do."""

    def __init__(self, kernel):
        self.kernel = kernel
        self.constants = {each.name for each in kernel.params if each.is_constexpr}
        self.defaults = {each.name: each.default for each in kernel.params if each.has_default}
        self.written = {}  # names, by types of tensors and numbers


def _notes_of(kernel):
    if id(kernel) not in _notes:
        _notes[id(kernel)] = _Notes(kernel)
    return _notes[id(kernel)]


def _by_analysis(kernel, values):
    """None: not known."""
    notes = _notes_of(kernel)
    if kernel.fn is None:
        return None  # it came from a cache without its code
    key = []
    for name, value in values.items():
        if name in notes.constants or isinstance(value, (bool, str)):
            key.append(value)
        elif isinstance(value, torch.Tensor):
            key.append(value.dtype)
        elif _tensors_in(value):
            return None  # in a tuple, or in a TensorDescriptor
        else:
            key.append(type(value))
    try:
        key = tuple(key)
        if key not in notes.written:
            notes.written[key] = _analysed(kernel, values)
        return notes.written[key]
    except Exception:  # a constant that cannot be hashed, or a kernel that the analysis does not read
        return None


def _analysed(kernel, values):
    from torch._higher_order_ops import triton_kernel_wrap as analysis

    if hasattr(analysis, "identify_accessed_tensors"):
        return {each.name for each in analysis.identify_accessed_tensors(kernel, values, {}).read_writes.writes}
    return set(analysis.identify_mutated_tensors(kernel, values, {}))  # before torch 2.13


def _by_names(autotuner, names):
    """Of inductor's own kernels. mutated_arg_names alone has no pure outputs."""
    written = ("out_ptr", "in_out_ptr", "ws_ptr")
    return {name for name in names if name.startswith(written) or name in autotuner.mutated_arg_names}


# --- the launches


def _of_inductor(autotuner, args, named):
    """(name, values, names of what is written) of a call of CachingAutotuner.run."""
    constants = {parameter.name for parameter in autotuner.fn.params if parameter.is_constexpr}
    names = [name for name in autotuner.triton_meta["signature"] if name not in constants]
    values = list(zip(names, args)) + list(named.items())
    values += [(None, value) for value in args[len(names):]]  # of a grid
    name = autotuner.inductor_meta.get("kernel_name", autotuner.fn.__name__)
    if not autotuner.custom_kernel:
        return name, values, _by_names(autotuner, names)
    given = {name for name, _ in values}
    config = (autotuner.launchers[0].config if autotuner.launchers else autotuner.configs[0]).kwargs
    fixed = {}
    for path, value in autotuner.triton_meta.get("constants", {}).items():
        fixed[path if isinstance(path, str) else autotuner.fn.arg_names[path[0] if isinstance(path, tuple) else path]] = value
    more = {name: value for name, value in {**fixed, **config}.items() if name not in given}
    return name, values, _by_analysis(autotuner.fn, {name: value for name, value in values if name is not None} | more)


def _of_own(kernel, args, named):
    given = dict(zip(kernel.arg_names, args)) | {name: value for name, value in named.items() if name in kernel.arg_names}
    values = _notes_of(kernel).defaults | given
    return kernel.fn.__name__, list(values.items()), _by_analysis(kernel, values)


def _as_op(run, describe, is_launch=lambda named: True):
    @functools.wraps(run)
    def run_as_op(self, *args, **named):
        if not is_launch(named) or not _core.guards_a_gpu():
            return run(self, *args, **named)
        try:
            name, values, written = describe(self, args, {key: value for key, value in named.items() if key != "stream"})
        except (AttributeError, KeyError, IndexError, TypeError):
            _tell(_UNKNOWN)
            name, values, written = "Triton's kernel", [(None, value) for value in (*args, *named.values())], None
        return _launch(name, values, written, lambda: run(self, *args, **named))

    return run_as_op


def _timing(time):
    """Kernels that are timed against each other, with copies of their arguments and a buffer that empties the cache."""

    @functools.wraps(time)
    def time_beside_the_budget(*args, **named):
        if not _core.guards_a_gpu():
            return time(*args, **named)
        _tell(_TIMED)
        with _core.BesideTheBudget():
            return time(*args, **named)

    return time_beside_the_budget


def _timing_as_op(time):
    """Triton's autotuner launches by JITFunction.run, many times: together they are one op."""
    beside = _timing(time)

    @functools.wraps(time)
    def time_as_op(self, *args, **named):
        if not _core.guards_a_gpu():
            return time(self, *args, **named)
        values = [(None, value) for value in (*args, *named.values())]
        return _launch("kernels that are timed", values, None, lambda: beside(self, *args, **named))

    return time_as_op


# --- where they are


def _change_inductor(module):
    autotuner = module.CachingAutotuner
    autotuner.run, autotuner.bench = _as_op(autotuner.run, _of_inductor), _timing(autotuner.bench)


def _change_benchmarks(module):
    module.Benchmarker.benchmark = _timing(module.Benchmarker.benchmark)


def _change_triton(module):
    from . import _storages

    run = vars(module.JITFunction).get("run")  # its base class has one that raises
    if run is None:
        _storages.keep_in_place_what_is_asked_for()
        raise AttributeError("JITFunction has no run")
    module.JITFunction.run = _as_op(run, _of_own, lambda named: not named.get("warmup"))


def _change_compiled(module):
    get = module.CompiledKernel.__getitem__

    @functools.wraps(get)
    def get_as_op(self, grid):
        launch = get(self, grid)
        return _as_op(lambda kernel, *args, **named: launch(*args, **named),
                      lambda kernel, args, named: (kernel.name, [(None, value) for value in args], None)).__get__(self)

    module.CompiledKernel.__getitem__ = get_as_op


def _change_autotuner(module):
    module.Autotuner._bench = _timing_as_op(module.Autotuner._bench)


def _warning(call, what, remedy):
    @functools.wraps(call)
    def call_and_tell(*args, **named):
        if _core.guards_a_gpu():
            _tell(_RAW.format(what, remedy))
        return call(*args, **named)

    return call_and_tell


def _change_cpp_wrapper(module):
    cache = module.CppWrapperCodeCache
    load = cache.load_pybinding.__func__

    @functools.wraps(load)
    def load_pybinding(cls, *args, **named):
        entry = load(cls, *args, **named)
        if "cuda" not in (*args, *named.values()):
            return entry
        return _warning(entry, "a graph that torch.compile made with cpp_wrapper", "compile it without cpp_wrapper")

    cache.load_pybinding = classmethod(load_pybinding)


def _change_aot_inductor():
    for name in ("AOTIModelPackageLoader", "AOTIModelContainerRunnerCuda"):
        runner = getattr(getattr(torch._C, "_aoti", None), name, None)
        for call in ("run", "boxed_run"):
            if hasattr(runner, call):
                setattr(runner, call, _warning(getattr(runner, call), "a model of AOTInductor", "run it outside of the guard"))


def announce_launches():
    """Of all kernels that are launched from now on."""
    lost = "kernels that Triton launches have no order with the moves of a guard of GPU memory"
    change_on_import("torch._inductor.runtime.triton_heuristics", _change_inductor, lost)
    change_on_import("triton.runtime.jit", _change_triton, f"{lost}, and tensors stay in place once a launcher has asked for their addresses")
    change_on_import("triton.compiler.compiler", _change_compiled, f"{lost} where they are launched as CompiledKernel[grid]")
    in_budget = "the timing of kernels takes memory of a guard's budget"
    change_on_import("torch._inductor.runtime.benchmarking", _change_benchmarks, in_budget)
    change_on_import("triton.runtime.autotuner", _change_autotuner, in_budget)
    change_on_import("torch._inductor.codecache", _change_cpp_wrapper, "graphs that torch.compile made with cpp_wrapper are not refused")
    _change_aot_inductor()
