"""CUDA's libdevice for Triton's interpreter, by numpy: what inductor calls of it."""

import numpy as np
import triton.language as tl
from triton.runtime import interpreter

_SAME = ("exp", "exp2", "log", "log2", "log10", "log1p", "expm1", "sqrt", "sin", "cos", "tan", "sinh", "cosh", "tanh", "floor", "ceil",
         "trunc", "rint", "abs", "isnan", "isinf", "signbit", "fmod", "copysign", "hypot", "nextafter")
_FUNCTIONS = {name: getattr(np, name) for name in _SAME} | {
    "pow": np.power, "nearbyint": np.rint, "asin": np.arcsin, "acos": np.arccos, "atan": np.arctan, "atan2": np.arctan2,
    "add_rn": np.add, "sub_rn": np.subtract, "mul_rn": np.multiply, "div_rn": np.divide, "sqrt_rn": np.sqrt,
    "rsqrt": lambda x: (1 / np.sqrt(x)).astype(x.dtype),
    "erf": lambda x: interpreter.np_erf_fp32(x) if x.dtype == np.float32 else interpreter.np_erf_fp64(x)}


def _elementwise(function):
    def call(*arguments, **_):
        tensors = [argument for argument in arguments if isinstance(argument, tl.tensor)]
        made = np.atleast_1d(function(*(argument.handle.data if isinstance(argument, tl.tensor) else argument for argument in arguments)))
        scalar = tl.int1 if made.dtype == bool else tensors[0].type.scalar
        is_block = any(tensor.type.is_block() for tensor in tensors)
        return tl.tensor(interpreter.TensorHandle(made, scalar), tl.block_type(scalar, list(made.shape)) if is_block else scalar)

    return call


def _missing(name):
    def call(*_, **__):
        raise NotImplementedError(f"libdevice.{name} is not interpreted; add it to triton_libdevice.py")

    return call


def replace_libdevice(scope):
    """While the scope lasts."""
    from triton.language.extra import libdevice

    for name in dir(libdevice):
        if callable(getattr(libdevice, name)) and not name.startswith("_"):
            scope.set_attr(libdevice, name, _elementwise(_FUNCTIONS[name]) if name in _FUNCTIONS else _missing(name))
