"""vedette trains PyTorch models that are larger than fast memory: one guard around the loop, the same numbers bit by bit.

    import vedette

    with vedette.Guard("2GiB", slow="nvme:/data") as guard:
        guard.watch(model)
        guard.watch(optimizer)
        for x, y in loader:
            with guard.step():
                ...the loop as it was...

`python -m vedette report run.vedette` makes a page of a recording, `python -m vedette doctor` says what this machine can do.
"""

import sys

from ._built_for import torch_version as _built_for
from ._built_for import version as __version__

__all__ = ["Counters", "Failure", "Guard", "owns", "resolve_vector_math", "step_in_backward"]


def _torch_of_another_version():
    """What `import vedette` refuses, as a sentence; None where the installed torch is the right one."""
    wanted = f"torch {_built_for}"
    remedy = f"pip install 'torch=={_built_for}.*'"
    try:
        import torch
    except ModuleNotFoundError as missing:
        if missing.name != "torch":
            raise
        return f"vedette needs {wanted}, and no torch is installed: {remedy}."
    if ".".join(torch.__version__.split(".")[:2]) == _built_for:
        return None
    return (f"vedette was built for {wanted}, and torch {torch.__version__} is installed: {remedy}, "
            "or build vedette for the other one.")


def _is_the_command():
    """This is `python -m vedette`, which runs the command-line tool and needs no torch."""
    return sys.argv[:1] == ["-m"] and ("-m", "vedette") in zip(sys.orig_argv, sys.orig_argv[1:])


if not _is_the_command():
    _refusal = _torch_of_another_version()
    if _refusal:
        raise ImportError(_refusal)
    from . import _compiled, _exports, _files, _workers
    from ._core import Counters, owns, resolve_vector_math
    from ._guard import Failure, Guard
    from ._step_in_backward import step_in_backward

    _compiled.announce_kernels()
    _exports.mark_exports()
    _files.copy_through_ordinary_memory()
    _workers.come_before_workers_handlers()
