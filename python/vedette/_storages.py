"""Python's storages under a guard of GPU memory. libtorch's functions of a storage, and data_ptr(), read its pointer outside of any
operator, and it has none while the storage is away. Here they find it in place. torch.save, pickle, deepcopy, safetensors,
torch.distributed.checkpoint and save_pretrained go by these functions.

Invariant: storages and tensors that are no guard's are libtorch's own affair.
"""

import functools

import torch
from torch.overrides import has_torch_function_unary

from . import _core
from ._guard import Failure


def _in_place(function):
    """`function`, with the storages among its arguments in place."""

    @functools.wraps(function)
    def call(*arguments, **named):
        with _core.Storages((*arguments, *named.values())):
            return function(*arguments, **named)

    return call


def _item(get):
    @functools.wraps(get)
    def call(storage, index):
        if isinstance(index, slice):  # a storage at the same address, which hears of no moves
            _core.mark_storage_exported(storage)
        with _core.Storages((storage,)):
            return get(storage, index)

    return call


def _address_of_storage(data_ptr):
    @functools.wraps(data_ptr)
    def call(storage):
        own = _core.address_of_storage(storage)
        return data_ptr(storage) if own is None else own

    return call


def _address_of_tensor(data_ptr):
    @functools.wraps(data_ptr)
    def call(tensor):
        own = None if has_torch_function_unary(tensor) else _core.address_of_tensor(tensor)
        if own is not None and _asked_stay:
            _core.mark_storage_exported(tensor.untyped_storage())
            return data_ptr(tensor)
        return data_ptr(tensor) if own is None else own

    return call


_asked_stay = False


def keep_in_place_what_is_asked_for():
    """From now on a tensor whose data_ptr() is asked for never moves again: a launcher that vedette does not know asks for it."""
    global _asked_stay
    _asked_stay = True


def _not_shared(share):
    @functools.wraps(share)
    def call(storage, *arguments, **named):
        if _core.address_of_storage(storage) is not None:
            raise Failure("A tensor of a guard of GPU memory moves, and another process would not hear of it; send tensor.cpu(), or make "
                          "the tensor before the guard.")
        return share(storage, *arguments, **named)

    return call


def let_tensors_be_swapped():
    """torch.utils.swap_tensors refuses tensors to which something has weak references, as a guard has to those that it watches."""
    swap = torch._C._swap_tensor_impl

    @functools.wraps(swap)
    def call(one, other):
        _core.without_weak_references(one, other, swap)

    torch._C._swap_tensor_impl = call


@functools.cache
def serve():
    """For ever, once. Called before the first guard of GPU memory."""
    storage, tensor = torch.UntypedStorage, torch.Tensor
    for name in ("copy_", "fill_", "resize_", "_write_file", "_set_from_file", "_byteswap", "__setitem__"):
        setattr(storage, name, _in_place(getattr(storage, name)))
    storage.__getitem__ = _item(storage.__getitem__)
    storage.data_ptr = _address_of_storage(storage.data_ptr)
    storage._share_cuda_ = _not_shared(storage._share_cuda_)
    tensor.data_ptr = _address_of_tensor(tensor.data_ptr)
