"""Operators of torch.library.custom_op under a guard of GPU memory. Since torch 2.15 Python calls their kernels by a dispatcher of its own,
past the callbacks by which a guard hears of operators. Here libtorch's dispatcher calls them, as it did before.

Invariant: an operator's kernels, results and gradients are the same by either way.
"""

import functools


@functools.cache
def hear_of_them():
    """For ever, once: of those that there are, and of those to come."""
    from torch._library import custom_ops
    from torch._ops import OpOverload

    enable = getattr(OpOverload, "_enable_pyobj_dispatch", None)
    if enable is None:  # before torch 2.15
        return
    for definition in list(custom_ops.OPDEFS.values()):
        enable(definition._opoverload, False)
    OpOverload._enable_pyobj_dispatch = lambda self, enabled=True: None
