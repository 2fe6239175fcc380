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

import os
import sys

from . import _for_torch
from ._version import version as __version__

__all__ = ["Counters", "Failure", "Guard", "current_guard", "estimate", "owns", "resolve_vector_math", "step_in_backward"]


def _is_the_command():
    """This is `python -m vedette`, or the script `vedette`: they run the command-line tool, which needs no torch."""
    if sys.argv[:1] == ["-m"]:
        return ("-m", "vedette") in zip(sys.orig_argv, sys.orig_argv[1:])
    return bool(sys.argv) and os.path.basename(sys.argv[0]) == "vedette"


def estimate(step, **options):
    from ._estimate import estimate as made  # it needs what few programs need

    return made(step, **options)


if not _is_the_command():
    _refusal = _for_torch.refusal()
    if _refusal:
        raise ImportError(_refusal)
    _for_torch.load(__name__)
    from . import _compiled, _docs, _exchanges, _exports, _files, _launches, _shown, _storages, _workers
    from ._core import Counters
    from ._guard import Failure, Guard, current_guard, owns, resolve_vector_math
    from ._step_in_backward import step_in_backward

    Counters._repr_html_ = _shown.of_counters
    _compiled.announce_kernels()
    _launches.announce_launches()
    _exchanges.order_groups()
    _exports.mark_exports()
    _storages.let_tensors_be_swapped()
    _files.copy_through_ordinary_memory()
    _workers.come_before_workers_handlers()
    _docs.take_from_stub(globals())
