"""Tensors that torch.distributed sends and receives in a group of calls: their work is queued as the group ends, and moves go behind it."""

import functools

import torch

from . import _core
from ._on_import import change_on_import


def _change(c10d):
    end = c10d.ProcessGroup._end_coalescing

    @functools.wraps(end)
    def end_and_order_moves(self, *args, **named):
        work = end(self, *args, **named)
        if work is not None:
            _core.a_group_ended(work)
        return work

    c10d.ProcessGroup._end_coalescing = end_and_order_moves


def order_groups():
    if torch.distributed.is_available():
        change_on_import("torch.distributed.distributed_c10d", _change, "what a group of sends and receives uses stays in place until its step ends alone")
