"""torch.save and torch.load where system calls into memory that is away fail (containers, no privileges): between file and arena each
storage is copied through ordinary memory, one at a time.
"""

import functools

import torch

from . import _core
from ._guard import _open_guards, mechanisms
from ._on_import import change_on_import


def _fails(mechanism):
    return not mechanism.startswith("userfaultfd, ")


class _Writer:
    """torch._C.PyTorchFileWriter whose records are written from ordinary memory."""

    def __init__(self, writer):
        self._writer = writer

    def __getattr__(self, name):
        return getattr(self._writer, name)

    def write_record(self, name, data, size):
        if isinstance(data, torch.UntypedStorage) and _core.owns_address(data.data_ptr()):
            with _core.OrdinaryMemory():
                data = data.clone()
        return self._writer.write_record(name, data, size)


class _Reader:
    """torch._C.PyTorchFileReader whose records are read into ordinary memory."""

    def __init__(self, reader):
        self._reader = reader

    def __getattr__(self, name):
        return getattr(self._reader, name)

    def get_storage_from_record(self, *record):
        with _core.OrdinaryMemory():
            read = self._reader.get_storage_from_record(*record).untyped_storage()
        own = torch.empty(read.nbytes(), dtype=torch.uint8)
        own.untyped_storage().copy_(read)
        return own


def _change(serialization):
    save, load = serialization._save, serialization._load

    @functools.wraps(save)
    def save_through_ordinary_memory(obj, zip_file, *rest, **named):
        return save(obj, _Writer(zip_file) if any(map(_fails, mechanisms)) else zip_file, *rest, **named)

    @functools.wraps(load)
    def load_through_ordinary_memory(zip_file, *rest, **named):
        fails = any(not guard.is_closed and _fails(guard.mechanism) for guard in _open_guards)
        return load(_Reader(zip_file) if fails else zip_file, *rest, **named)

    serialization._save, serialization._load = save_through_ordinary_memory, load_through_ordinary_memory


def copy_through_ordinary_memory():
    change_on_import("torch.serialization", _change,
                     "torch.save and torch.load need tensors that are resident where there is no userfaultfd for the kernel")
