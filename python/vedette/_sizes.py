"""Sizes as the command-line tools write them: 500MiB, 2GiB, 1.5GB, or a number of bytes."""

import math
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
