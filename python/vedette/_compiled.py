"""torch.compile's kernels become ops with operands. Inductor's generated code calls each fused C++ kernel with its tensors, past libtorch's
dispatcher; the types of its arguments ("const float*", "float*") say which it writes. So each kernel is put into a vedette._core.Kernel,
which announces it and calls it.

Invariant: where a part of inductor is not as it is in torch 2.11 to 2.15, kernels stay as they are, and run on demand.
"""

import functools
import sys

import torch

from . import _core
from ._on_import import change_on_import


def _wrapped(kernel, types):
    writes = [kind.strip().endswith("*") and not kind.lstrip().startswith("const ") for kind in types]
    return _core.Kernel(kernel, writes, "compiled kernel")


def _change(module):
    compiler, future, futures = module.AsyncCompile, module.LambdaFuture, module.CodeCacheFuture
    of_kernel, wait = compiler.cpp_pybinding, compiler.wait

    @functools.wraps(of_kernel)
    def cpp_pybinding(self, argtypes, source_code):
        kernel = of_kernel(self, argtypes, source_code)
        if isinstance(kernel, futures):
            return future(lambda: _wrapped(kernel.result(), argtypes))
        return _wrapped(kernel, argtypes)

    @functools.wraps(wait)
    def wait_and_name(self, scope):
        wait(self, scope)
        for name, value in scope.items():
            if isinstance(value, _core.Kernel):
                value.name = name

    compiler.cpp_pybinding, compiler.wait = cpp_pybinding, wait_and_name


def _change_trees(module):
    node = module.CUDAGraphNode
    make = node.__init__

    @functools.wraps(make)
    def make_and_keep(self, wrapped_function, id, parent, inputs, cuda_graphs_pool, *others, **named):
        for index in wrapped_function.static_input_idxs:  # weights: the node notes their addresses before it captures
            if isinstance(inputs[index], torch.Tensor):
                _core.keep_for_graph(inputs[index], cuda_graphs_pool)
        make(self, wrapped_function, id, parent, inputs, cuda_graphs_pool, *others, **named)

    node.__init__ = make_and_keep


_compiled_before = False


def unannounced():
    """What of this process may write tensors without an announcement, in words; empty: nothing."""
    if _compiled_before:
        return "torch.compile made kernels before `import vedette`"
    config = sys.modules.get("torch._inductor.config")
    return "torch.compile's cpp_wrapper is on" if config is not None and getattr(config, "cpp_wrapper", False) else ""


def announce_kernels():
    """Of everything that is compiled from now on."""
    global _compiled_before
    cache = getattr(sys.modules.get("torch._inductor.codecache"), "PyCodeCache", None)
    _compiled_before = bool(getattr(cache, "modules", None))
    change_on_import("torch._inductor.cudagraph_trees", _change_trees, 'weights of mode="reduce-overhead" may move')
    change_on_import("torch._inductor.async_compile", _change, "kernels of torch.compile run on demand, without a plan")
