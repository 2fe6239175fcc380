"""Kernels of Triton on the simulated GPU of src/simulated_gpu: what the driver is asked to launch is interpreted, on the stream's thread
and in the device's memory. Everything above cuLaunchKernel is torch's and Triton's own.

    import triton_device
    triton_device.interpret()  # before the first kernel is compiled

A kernel is known by its cubin. Pointers and numbers are those that the driver is given; how many bytes lie behind a pointer say the
tensors of the call that is under way, and which pointers a kernel writes through says its TTIR. That is told as the kernel is queued,
and each access is held against it when it is made. Rule: a kernel was compiled in this process (TORCHINDUCTOR_COMPILE_THREADS=1).
"""

import atexit
import collections
import contextlib
import ctypes
import functools
import itertools
import pathlib
import re
import threading
import traceback

import numpy as np
import torch
import triton
import triton.language as tl
from triton.runtime import interpreter
from triton.runtime.jit import JITFunction
from triton.tools.tensor_descriptor import TensorDescriptor
from triton_libdevice import replace_libdevice


class Access(ctypes.Structure):
    _fields_ = [("at", ctypes.c_uint64), ("bytes", ctypes.c_size_t), ("write", ctypes.c_int)]


class Launch(ctypes.Structure):  # InterpretedLaunch of src/simulated_gpu/interpreted.h
    _fields_ = [("name", ctypes.c_char_p), ("image", ctypes.c_void_p), ("image_bytes", ctypes.c_size_t), ("grid", ctypes.c_uint * 3),
                ("argument_count", ctypes.c_uint), ("arguments", ctypes.POINTER(ctypes.c_void_p)),
                ("argument_bytes", ctypes.POINTER(ctypes.c_size_t)), ("access_count", ctypes.c_uint), ("accesses", ctypes.POINTER(Access))]


_AskAccesses = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(Launch), ctypes.POINTER(Access), ctypes.c_int)
_Run = ctypes.CFUNCTYPE(None, ctypes.POINTER(Launch))
_device = ctypes.CDLL("libcuda.so.1")
_device.simulated_gpu_reach.restype = ctypes.c_void_p
_device.simulated_gpu_reach.argtypes = [ctypes.c_void_p]
_device.simulated_gpu_race_count.restype = ctypes.c_size_t

launches = collections.Counter()  # by kernel's name
_sources = {}  # by cubin
_here = threading.local()  # .tensors: of the launcher's call that is under way


def races():
    torch.cuda.synchronize()
    return _device.simulated_gpu_race_count()


def _end(sentence):
    _device.simulated_gpu_end(sentence.encode())


# --- what is compiled


class _Source:
    """What a cubin was compiled from. `parameters` are the kernel's, in order: (path of the argument, Triton's type)."""

    def __init__(self, src, ttir):
        self.fn, self.signature = src.fn, dict(src.signature)
        self.constants = {path if isinstance(path, tuple) else (path,): value for path, value in src.constants.items()}
        self.parameters = [found for i, kind in enumerate(self.signature.values()) for found in self._flat((i,), kind)]
        pointers = [i for i, (_, kind) in enumerate(self.parameters) if kind.startswith(("*", "tensordesc"))]
        self.written = {pointers[i] for i in _written(ttir)}

    def _flat(self, path, kind):
        if isinstance(kind, tuple):
            return [found for i, each in enumerate(kind) for found in self._flat((*path, i), each)]
        return [] if kind == "constexpr" else [(path, kind)]


def _written(ttir):
    """Of the parameters that are pointers or descriptors, the places of those through which a kernel stores."""
    roots, stored = {}, set()

    def of(values):
        return frozenset().union(*(roots.get(value, frozenset()) for value in values))

    for line in ttir.splitlines():
        if re.match(r"\s*tt\.func public", line):
            roots |= {name: frozenset([i]) for i, name in enumerate(re.findall(r"(%[\w.]+): !tt\.(?:ptr|tensordesc)", line))}
            continue
        loop = re.search(r"iter_args\(([^)]*)\)", line)
        for name, start in re.findall(r"(%\w+) = (%[\w.]+)", loop.group(1)) if loop else ():
            roots[name] = of([start])
        store = re.search(r"tt\.(?:store|atomic_rmw|atomic_cas|descriptor_store|descriptor_reduce|descriptor_scatter) [^%]*(%[\w.]+)", line)
        if store:
            stored |= of([store.group(1)])
        made = re.match(r"\s*(%\w+)(?::\d+)? = ([\w.]+) (.*)", line)
        if made and not loop and not store and made.group(2) != "tt.load" and ("!tt.ptr" in line or "tensordesc" in line):
            roots[made.group(1)] = of(re.findall(r"%[\w.]+", made.group(3)))
    return stored


def _compiled(*, src, metadata_group, **_):
    def content(end):
        return pathlib.Path(next(path for name, path in metadata_group.items() if name.endswith(end))).read_bytes()

    _sources[content(".cubin")] = _Source(src, content(".ttir").decode())


# --- what is launched


def _tensors_in(values):
    for value in values:
        if isinstance(value, torch.Tensor):
            yield value
        elif isinstance(value, TensorDescriptor):
            yield value.base
        elif isinstance(value, (tuple, list)):
            yield from _tensors_in(value)


@contextlib.contextmanager
def _call_with(values):
    before, _here.tensors = getattr(_here, "tensors", ()), list(_tensors_in(values))
    try:
        yield
    finally:
        _here.tensors = before


def _span(tensor):
    """Bytes from the first to the last element."""
    if tensor.numel() == 0:
        return 0
    return (sum((n - 1) * stride for n, stride in zip(tensor.shape, tensor.stride())) + 1) * tensor.element_size()


def _address(tensor):
    return torch._C.TensorBase.data_ptr(tensor)  # libtorch's own: null where the tensor is away


def _source_of(launch):
    image = ctypes.string_at(launch.image, launch.image_bytes)
    if image not in _sources:
        raise LookupError(f"{launch.name.decode()} was not compiled in this process")
    return _sources[image]


def _raw(launch, i):
    return ctypes.string_at(launch.arguments[i], launch.argument_bytes[i])


def _ask_accesses(launch, room, count):
    try:
        launch = launch.contents
        name, source = launch.name.decode(), _source_of(launch)
        launches[name] += 1
        spans = {_address(tensor): (tensor, _span(tensor)) for tensor in sorted(_here.tensors, key=_span)}
        used = 0
        for i, kind, values in _arguments_of(launch, source):
            if not kind.startswith(("*", "tensordesc")):
                continue
            address = int.from_bytes(values[0][:8], "little")
            if address == 0 or address not in spans:
                raise LookupError(f"{name} is given {address:#x} for its argument {i}, where no tensor of the call lies: it is away")
            room[used].at, room[used].bytes, room[used].write = address, spans[address][1], int(i in source.written)
            used += 1
        return used
    except BaseException:
        _end("a kernel cannot be launched: " + traceback.format_exc())


def _arguments_of(launch, source):
    """(place among the parameters, type, raw values): a descriptor has one for itself, and one for each extent and each stride."""
    at = 0
    for i, (_, kind) in enumerate(source.parameters):
        count = 1 + 2 * _rank(kind) if kind.startswith("tensordesc") else 1
        yield i, kind, [_raw(launch, at + k) for k in range(count)]
        at += count


def _rank(kind):
    return kind[kind.index("[") + 1:kind.index("]")].count(",") + 1


# --- what runs


class _Language:
    """triton.language is the compiler's or the interpreter's, in the whole process. It is exchanged where the other one is needed."""

    __globals__ = {"tl": tl, "core": tl.core}  # the modules whose functions the interpreter replaces

    def __init__(self):
        self._lock, self._scope = threading.RLock(), None

    @contextlib.contextmanager
    def interpreted(self):
        with self._lock:
            if self._scope is None:
                self._scope = interpreter._patch_lang(self)
                self._scope.set_attr(JITFunction, "__call__", lambda function, *args, **kwargs: _rewritten(function)(*args, **kwargs))
                replace_libdevice(self._scope)
            yield

    @contextlib.contextmanager
    def compiled(self):
        with self._lock:
            if self._scope is not None:
                self._scope.restore()
                self._scope = None
            yield


_language = _Language()


def _rewritten(function):
    return interpreter.InterpretedFunction(function.fn).rewrite()


_NUMBERS = {"i1": np.int8, "u1": np.int8, "fp16": np.float16, "bf16": np.uint16, "fp32": np.float32, "f32": np.float32, "fp64": np.float64}
_NUMBERS |= {f"{sign}{bits}": np.dtype(f"{'u' if sign == 'u' else ''}int{bits}") for sign in "iu" for bits in (8, 16, 32, 64)}


def _in_interpreter(kind, values):
    if kind.startswith("tensordesc"):
        return _descriptor(kind, values)
    ty = tl.str_to_ty(kind, None)
    if kind.startswith("*"):
        number = np.array([_device.simulated_gpu_reach(int.from_bytes(values[0], "little"))], dtype=np.uint64)
    else:
        number = np.frombuffer(values[0], dtype=_NUMBERS[kind])[:1].astype(np.bool_ if kind in ("i1", "u1") else _NUMBERS[kind])
    return tl.tensor(interpreter.TensorHandle(number, ty), ty)


def _descriptor(kind, values):
    element, extents = re.match(r"tensordesc<([^\[]*)\[([^\]]*)\]", kind).groups()
    block, rank = [int(each) for each in extents.split(",")], _rank(kind)
    base = _in_interpreter("*" + element, [values[0][:8]])
    shape = [_in_interpreter("i32", [value]) for value in values[1:1 + rank]]
    strides = [_in_interpreter("i64", [value]) for value in values[1 + rank:rank + rank]] + [tl.constexpr(1)]
    return interpreter.interpreter_semantic.make_tensor_descriptor(base, shape, strides, [tl.constexpr(each) for each in block])


def _values_of(launch, source):
    given = {source.parameters[i][0]: _in_interpreter(kind, values) for i, kind, values in _arguments_of(launch, source)}

    def value(path, kind):
        if isinstance(kind, tuple):
            return tl.tuple([value((*path, i), each) for i, each in enumerate(kind)])
        if path in given:
            return given[path]
        constant = source.constants.get(path)
        declared = len(path) > 1 or source.fn.params[path[0]].is_constexpr
        return constant if declared else interpreter._implicit_cvt(constant)

    return {name: value((i,), kind) for i, (name, kind) in enumerate(source.signature.items())}


class _Checked:
    """The interpreter's loads and stores, held against what was told of the kernel that runs."""

    def __init__(self):
        self.builder = interpreter.interpreter_builder
        self.builder.options = interpreter.InterpreterOptions(sanitize_overflow=False)  # it would take a third of the time
        self.ranges = []  # (first, end, may be written), as the stream's thread reaches them
        for name, writes in (("create_masked_load", False), ("create_masked_store", True)):
            setattr(self.builder, name, self._checking(getattr(self.builder, name), writes))
        for name, mask_at in (("create_atomic_rmw", 3), ("create_atomic_cas", None)):
            setattr(self.builder, name, self._checking_atomic(getattr(self.builder, name), mask_at))

    def _checking(self, function, writes):
        def call(pointers, *others, **named):
            self._check(pointers, others[1 if writes else 0], writes)
            return function(pointers, *others, **named)

        return call

    def _checking_atomic(self, function, mask_at):
        def call(*arguments):
            pointers = arguments[1 if mask_at else 0]
            self._check(pointers, arguments[mask_at] if mask_at else None, True)
            return function(*arguments)

        return call

    def _check(self, pointers, mask, writes):
        addresses = np.atleast_1d(pointers.data)
        if mask is not None:
            addresses = addresses[np.broadcast_to(mask.data, addresses.shape).astype(bool)]
        if addresses.size == 0:
            return
        first, end = int(addresses.min()), int(addresses.max()) + max(1, pointers.get_element_ty().primitive_bitwidth // 8)
        if not any(begin <= first and end <= stop and (may or not writes) for begin, stop, may in self.ranges):
            raise IndexError(f"{'stores to' if writes else 'loads from'} [{first:#x}, {end:#x}), which was not told: {self.ranges}")


def _run(launch):
    try:
        launch = launch.contents
        source = _source_of(launch)
        with _language.interpreted():
            _checked.ranges = [(reached, reached + each.bytes, bool(each.write)) for each in launch.accesses[:launch.access_count]
                               for reached in [_device.simulated_gpu_reach(each.at)]]
            kernel, arguments = _rewritten(source.fn), _values_of(launch, source)
            grid = tuple(launch.grid)
            _checked.builder.set_grid_dim(*grid)
            for place in itertools.product(*map(range, grid)):
                _checked.builder.set_grid_idx(*place)
                with np.errstate(all="ignore"):
                    kernel(**arguments)
    except BaseException:
        _end(f"{launch.name.decode()} cannot be interpreted: " + traceback.format_exc())


_callbacks = _AskAccesses(_ask_accesses), _Run(_run)


# --- where the tensors of a call are seen, and what may not run beside the interpreter


def _around(owner, name, values_of):
    function = getattr(owner, name)

    def call(self, *args, **kwargs):
        with _call_with(values_of(args)):
            return function(self, *args, **kwargs)

    setattr(owner, name, call)


def _see_launches():
    from torch._inductor.runtime import static_triton_launcher, triton_heuristics
    from triton.backends.nvidia import driver

    _around(driver.CudaLauncher, "__call__", lambda args: args[9:])
    _around(static_triton_launcher.StaticallyLaunchedTritonKernel, "run", lambda args: args[4:])
    autotuner = triton_heuristics.CachingAutotuner
    if hasattr(autotuner, "_build_fast_launcher"):  # since torch 2.13 or so: a launcher in C++, called with the tensors
        build = autotuner._build_fast_launcher

        def build_seen(self, launcher):
            made = build(self, launcher)

            def call(*args, stream):
                with _call_with(args):
                    return made(*args, stream=stream)

            return made and call

        autotuner._build_fast_launcher = build_seen


def _compile_alone():
    make_ir = triton.compiler.ASTSource.make_ir

    @functools.wraps(make_ir)  # torch looks at its signature
    def make_ir_alone(self, *args, **kwargs):
        with _language.compiled():
            return make_ir(self, *args, **kwargs)

    triton.compiler.ASTSource.make_ir = make_ir_alone
    key = JITFunction.cache_key.fget

    def key_alone(self):
        with _language.compiled():
            return key(self)

    JITFunction.cache_key = property(key_alone)


def interpret(autotune=False):
    """From now on, for ever. Configurations of a kernel are not timed against each other unless `autotune`: the one of the largest
    blocks is taken, so that two runs have the same kernels, of few programs."""
    global _checked
    _checked = _Checked()
    triton.knobs.compilation.listener = _compiled
    _see_launches()
    _compile_alone()
    if not autotune:
        from torch._inductor.runtime.triton_heuristics import CachingAutotuner

        def take_the_largest(self, *args, **kwargs):
            blocks = [sum(n for name, n in launcher.config.kwargs.items() if name.endswith("BLOCK")) for launcher in self.launchers]
            self.launchers = [self.launchers[blocks.index(max(blocks))]]

        CachingAutotuner.autotune_to_one_config = take_the_largest
    _device.simulated_gpu_interpret(*_callbacks)
    atexit.register(lambda: torch.cuda.synchronize() if torch.cuda.is_initialized() else None)  # what is queued needs the interpreter
