"""Tensors whose memory other libraries have, too. What is exported by numpy(), by DLPack, by __cuda_array_interface__, and from GPU
memory to other processes is marked at that call, from `import vedette` on. Of what was exported before, and by extensions, references
tell: Python knows all of its tensors, and one that C++ holds beside autograd, or a storage that none of them has, is somebody else's.

Invariant: these functions do what they did, and return the same objects.
"""

import collections
import functools
import gc
import weakref

import torch

from . import _core


def _is_used_more(tensor, explained):
    """Tensors that require a gradient cannot be exported, and autograd has references of its own to them."""
    return not tensor.requires_grad and _core.use_count(tensor) > 1 + explained


def looks_free(tensors):
    """The tensors of a list of (tensor, kind) have their storages for themselves."""
    users = collections.defaultdict(set)
    for tensor, _ in tensors:
        users[_core.storage_of(tensor)].add(id(tensor))
    users.pop(0, None)
    return (all(_core.storage_use_count(storage) == len(ids) for storage, ids in users.items())
            and not any(_is_used_more(tensor, kind == "gradient") for tensor, kind in tensors))


def _parts_of_sparse(tensor):
    """Each a new tensor, of which the sparse one has another inside."""
    if tensor.layout == torch.sparse_coo:
        return [tensor.detach()._values(), tensor.detach()._indices()]
    if tensor.layout in (torch.sparse_csr, torch.sparse_bsr):
        return [tensor.detach().values(), tensor.detach().crow_indices(), tensor.detach().col_indices()]
    if tensor.layout in (torch.sparse_csc, torch.sparse_bsc):
        return [tensor.detach().values(), tensor.detach().ccol_indices(), tensor.detach().row_indices()]
    return []


def held_elsewhere(storages, references=0):
    """Of these addresses of storages, those that others than Python's tensors and autograd have. The caller has `references` to each."""
    holders = {storage: {} for storage in storages}
    insides = collections.Counter()  # of storages: sparse tensors that have it inside
    explained = collections.Counter()  # references of autograd to a tensor, by its id

    def holds(storage, holder, by_autograd=0):
        if storage in holders:
            holders[storage][id(holder)] = holder
            explained[id(holder)] += by_autograd

    with torch._C.DisableTorchFunctionSubclass():
        if gc.get_freeze_count():  # the collector lists no frozen object; to freeze again would keep garbage for ever
            gc.unfreeze()
        for found in gc.get_objects():
            if issubclass(type(found), torch.UntypedStorage):
                holds(found._cdata, found)
            if not issubclass(type(found), torch.Tensor):
                continue
            holds(_core.storage_of(found), found)
            if found.layout != torch.strided:
                insides.update([_core.storage_of(part) for part in _parts_of_sparse(found)])
            for other in _core.held_by_autograd(found):  # the base of a view, a gradient, a tangent
                holds(_core.storage_of(other), other, by_autograd=1)
            if found._is_view() and hasattr(type(found), "__tensor_flatten__"):  # how to make the view again has its parts (jagged)
                for part in (getattr(found, name) for name in found.__tensor_flatten__()[0]):
                    holds(_core.storage_of(part), part, by_autograd=2)
        return {storage for storage, known in holders.items()
                if _core.storage_use_count(storage) > references + len(known) + insides[storage]
                or any(isinstance(holder, torch.Tensor) and _is_used_more(holder, explained[id(holder)])
                       for holder in known.values())}


def _judge(storages):
    held = held_elsewhere(storages, references=1)
    return [storage in held for storage in storages]


def _mark_exports():
    numpy = torch.Tensor.numpy

    @functools.wraps(numpy)
    def marked_numpy(self, *arguments, **named):
        export = _core.Export(self)
        array = numpy(self, *arguments, **named)
        try:
            weakref.finalize(array, export.end).atexit = False  # arrays over its memory hold this one
        except TypeError:  # it is no array: a subclass makes what it likes
            pass
        return array

    def marked(to_dlpack):
        @functools.wraps(to_dlpack)
        def marked_to_dlpack(tensor, *arguments, **named):
            if named.get("copy") is not True:
                _core.mark_exported(tensor)
            return to_dlpack(tensor, *arguments, **named)

        return marked_to_dlpack

    interface = torch.Tensor.__cuda_array_interface__.fget

    @functools.wraps(interface)
    def marked_interface(self):
        if self.is_cuda and not self.requires_grad and not torch.overrides.has_torch_function_unary(self):  # libtorch refuses others
            _core.mark_exported(self)
        return interface(self)

    share = torch.UntypedStorage._share_cuda_

    @functools.wraps(share)
    def marked_share(storage, *arguments, **named):
        _core.mark_storage_exported(storage)
        return share(storage, *arguments, **named)

    marked_numpy.__module__, marked_numpy.__qualname__ = "torch", "Tensor.numpy"  # by which it is pickled
    torch.Tensor.numpy = marked_numpy
    torch.Tensor.__cuda_array_interface__ = property(marked_interface)
    torch.UntypedStorage._share_cuda_ = marked_share
    torch._C._to_dlpack_versioned = marked(torch._C._to_dlpack_versioned)
    torch._C._to_dlpack = torch.utils.dlpack.to_dlpack = torch.to_dlpack = marked(torch._C._to_dlpack)


def mark_exports():
    _core.set_judge(_judge)
    _mark_exports()
