"""One wheel of several that were made for one Python and different versions of torch: merge_wheels.py OUT WHEEL...

What is compiled for a version of torch lies in a folder of its own (vedette/for_torch_2_11); the rest is the first wheel's. The
merged wheel asks for the versions of torch that it has, and no others.
"""

import base64
import hashlib
import re
import sys
import zipfile
from pathlib import Path

FOLDER = re.compile(r"vedette/for_torch_(\d+)_(\d+)/")


def requirement(minors: list[tuple[int, int]]) -> str:
    """The versions of torch, of one major version, between which none is missing but those that are left out."""
    first, last = min(minors), max(minors)
    missing = [f"!={first[0]}.{minor}.*" for minor in range(first[1], last[1]) if (first[0], minor) not in minors]
    return ",".join([f"torch>={first[0]}.{first[1]}", f"<{last[0]}.{last[1] + 1}", *missing])


def merge(out: Path, wheels: list[Path]) -> Path:
    files: dict[str, tuple[zipfile.ZipInfo, bytes]] = {}
    for wheel in wheels:
        with zipfile.ZipFile(wheel) as opened:
            for info in opened.infolist():
                if not files or wheel == wheels[0] or FOLDER.match(info.filename):
                    files.setdefault(info.filename, (info, opened.read(info)))
    minors = sorted({(int(found[1]), int(found[2])) for found in map(FOLDER.match, files) if found})
    record = next(name for name in files if name.endswith(".dist-info/RECORD"))
    metadata = record.removesuffix("RECORD") + "METADATA"
    text = re.sub(r"^Requires-Dist: torch\b.*$", f"Requires-Dist: {requirement(minors)}", files[metadata][1].decode(), flags=re.M)
    files[metadata] = (files[metadata][0], text.encode())
    lines = []
    for name, (_, content) in files.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
        lines.append(f"{name},," if name == record else f"{name},sha256={digest},{len(content)}")
    files[record] = (files[record][0], ("\n".join(lines) + "\n").encode())
    merged = out / wheels[0].name
    with zipfile.ZipFile(merged, "w", zipfile.ZIP_DEFLATED) as opened:
        for name, (info, content) in files.items():
            opened.writestr(info, content, zipfile.ZIP_DEFLATED)
    return merged


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    print(merge(Path(sys.argv[1]), [Path(name) for name in sys.argv[2:]]))
