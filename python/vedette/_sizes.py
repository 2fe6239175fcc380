"""Options as Python programs give them. Sizes are as the command-line tools write them: 500MiB, 2GiB, 1.5GB, or a number of bytes."""

import math
import os
import re

_units = {"": 1, "B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40,
          "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}
_most = 10**18


def bytes_of(option, size):
    """`size` in bytes. Raises ValueError, or TypeError for what is neither a str nor an int."""
    if isinstance(size, int) and not isinstance(size, bool):
        if not 0 < size < _most:
            raise ValueError(f"{option}: {size} is no number of bytes; write '500MiB', '2GiB' or a number above 0.")
        return size
    if not isinstance(size, str):
        raise TypeError(f"{option}: {size!r} is no size; write '500MiB', '2GiB' or a whole number of bytes.")
    found = re.fullmatch(r"([0-9]+(?:\.[0-9]*)?|\.[0-9]+) ?([KMGT]?i?B)?", size.strip())
    factor = _units.get(found[2] or "") if found else None
    number = float(found[1]) * factor if factor else 0.0
    if not 1 <= number < _most:
        raise ValueError(f"{option}: {size!r} is no size; write '500MiB', '2GiB' or a number of bytes.")
    return int(number)


def budget_of(size):
    """The budget as (bytes, fraction of the machine's memory): one of them is 0. None: both are, the default."""
    if size is None:
        return 0, 0.0
    share = size if isinstance(size, float) else None
    if isinstance(size, str) and size.strip().endswith("%"):
        try:
            share = float(size.strip()[:-1]) / 100
        except ValueError:
            share = math.nan
    if share is None:
        return bytes_of("fast_memory", size), 0.0
    if not 0 < share <= 1:
        raise ValueError(f"fast_memory: {size!r} is no share of the machine's memory; "
                         "write '25%' or 0.25, above 0 and at most 1.")
    return 0, share


def word_of(option, value, example):
    """`value`, one of the words that the core knows. Raises TypeError for what is no str."""
    if not isinstance(value, str):
        raise TypeError(f"{option}: {value!r} is no word; write {example}.")
    return value


def count_of(option, value, most=1 << 32):
    """`value`, a whole number from 0 on. Raises TypeError, or ValueError where it is negative or too large."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{option}: {value!r} is no whole number; write 0, 1 or more.")
    if not 0 <= value < most:
        raise ValueError(f"{option}: {value} is out of range; write a whole number from 0 to {most - 1}.")
    return value


def path_of(option, value):
    """A file's name, from a str or an os.PathLike; "~" is the home directory."""
    if not isinstance(value, (str, os.PathLike)):
        raise TypeError(f"{option}: {value!r} is no path; write 'run.vedette'.")
    return os.path.expanduser(os.fspath(value))


def slow_of(value):
    """A slow tier in words, or the directory of one, as an os.PathLike."""
    if isinstance(value, os.PathLike):
        return "nvme:" + os.path.expanduser(os.fspath(value))
    if not isinstance(value, str):
        raise TypeError(f"slow: {value!r} is no slow tier; write 'nvme:/data', 'host', or the path of a directory.")
    return value
