"""torch.compile's kernels become ops with operands. Inductor's generated code calls each fused C++ kernel with its tensors, past libtorch's
dispatcher; the types of its arguments ("const float*", "float*") say which it writes. So each kernel is put into a vedette._core.Kernel,
which announces it and calls it.

Invariant: where a part of inductor is not as it is in torch 2.11, kernels stay as they are, and run on demand. Nothing of inductor is
imported here: its module is changed when the program imports it.
"""

import functools
import importlib.abc
import importlib.util
import sys

from . import _core

_module = "torch._inductor.async_compile"


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


def _try_to_change(module):
    try:
        _change(module)
    except AttributeError:
        pass


class _Finder(importlib.abc.MetaPathFinder):
    """Finds nothing itself; what others find for one module is changed when it has run."""

    asking_others = False

    def find_spec(self, name, path, target=None):
        if name != _module or self.asking_others:
            return None
        self.asking_others = True
        try:
            spec = importlib.util.find_spec(name)
        finally:
            self.asking_others = False
        if spec is not None and spec.loader is not None:
            run = spec.loader.exec_module

            def run_and_change(module):
                run(module)
                _try_to_change(module)

            spec.loader.exec_module = run_and_change
        return spec


def announce_kernels():
    """Of everything that is compiled from now on."""
    if _module in sys.modules:
        _try_to_change(sys.modules[_module])
    else:
        sys.meta_path.insert(0, _Finder())
