"""Forked workers of a DataLoader: torch gives each a handler of SIGSEGV of its own, in front of the one that says that a worker touched
its parent's tensors. It goes behind that one again."""

import functools

from . import _core
from ._on_import import change_on_import


def _change(signal_handling):
    set_handlers = signal_handling._set_worker_signal_handlers

    @functools.wraps(set_handlers)
    def set_handlers_behind_ours():
        set_handlers()
        _core.come_first_in_child()

    signal_handling._set_worker_signal_handlers = set_handlers_behind_ours


def come_before_workers_handlers():
    change_on_import("torch.utils.data._utils.signal_handling", _change,
                     "a forked worker that touches its parent's tensors ends without a sentence")
