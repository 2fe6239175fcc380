"""CUDA's libdevice for Triton's interpreter, by numpy: what inductor calls of it."""

import numpy as np
import triton.language as tl
from triton.runtime import interpreter

_FUNCTIONS = {"exp": np.exp, "exp2": np.exp2, "log": np.log, "log2": np.log2, "log1p": np.log1p, "expm1": np.expm1, "tanh": np.tanh,
              "sqrt": np.sqrt, "rsqrt": lambda x: (1 / np.sqrt(x)).astype(x.dtype), "sin": np.sin, "cos": np.cos, "pow": np.power,
              "floor": np.floor, "ceil": np.ceil, "trunc": np.trunc, "rint": np.rint, "nearbyint": np.rint, "abs": np.abs,
              "isnan": np.isnan, "isinf": np.isinf, "signbit": np.signbit, "fmod": np.fmod, "atan": np.arctan,
              "erf": lambda x: interpreter.np_erf_fp32(x) if x.dtype == np.float32 else interpreter.np_erf_fp64(x)}


def _elementwise(function):
    def call(*arguments, **_):
        tensors = [argument for argument in arguments if isinstance(argument, tl.tensor)]
        made = np.atleast_1d(function(*(argument.handle.data if isinstance(argument, tl.tensor) else argument for argument in arguments)))
        scalar = tl.int1 if made.dtype == bool else tensors[0].type.scalar
        is_block = any(tensor.type.is_block() for tensor in tensors)
        return tl.tensor(interpreter.TensorHandle(made, scalar), tl.block_type(scalar, list(made.shape)) if is_block else scalar)

    return call


def replace_libdevice(scope):
    """While the scope lasts."""
    from triton.language.extra import libdevice

    for name, function in _FUNCTIONS.items():
        if hasattr(libdevice, name):
            scope.set_attr(libdevice, name, _elementwise(function))
