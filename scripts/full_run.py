"""Which parts of scripts/test.sh --full have passed on the tree as it is: full_run.py [--names | --passed K --minutes M]

A part that passes leaves a row in docs/full-run.md with a hash of the tracked files as they lie, other than docs, README
and CHANGELOG. The row counts while that is the tree's hash. Without arguments the parts are printed, each with its row,
and the exit status is 1 unless all count.
"""

import argparse
import datetime
import hashlib
import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PARTS = {
    1: "the ordinary run: g++, all tests but the slow ones",
    2: "clang++, each file alone: library, command, profiler, tests, benches without libtorch",
    3: "tests under the address and undefined-behaviour sanitizers",
    4: "tests under the thread sanitizer",
    5: "slow tests without libtorch: stress, failing system calls, given traces, another kernel",
    6: "all tests with libtorch, two threads, every budget: the adapter, strangers' programs, several ranks",
    7: "all tests with libtorch, two threads, every budget: the simulated GPU, benches, bundles",
    8: "all tests of the Python package: trainers, torchrun, wheels",
    9: "planted bugs (tests/mutants)",
}
HEAD = """# The whole run

`scripts/test.sh --full` runs in parts of at most an hour (`--full --part K`). A part that passes leaves its row here. The row counts
while the hash is that of the tracked files other than docs, README and CHANGELOG: `scripts/test.sh --parts` says which rows do.

| part | what | passed on | minutes | machine | hash |
|---|---|---|---|---|---|
"""


@dataclass
class Row:
    date: str
    minutes: str
    machine: str
    hash: str


def tree_hash(root: Path) -> str:
    left_out = (":!docs", ":!README.md", ":!CHANGELOG.md")
    names = subprocess.run(["git", "ls-files", "-z", "--", ".", *left_out], cwd=root, check=True, capture_output=True)
    whole = hashlib.sha256()
    for name in sorted(filter(None, names.stdout.split(b"\0"))):
        path = root / os.fsdecode(name)
        content = os.readlink(path).encode() if path.is_symlink() else path.read_bytes() if path.exists() else b""
        whole.update(name + b"\0" + hashlib.sha256(content).digest())
    return whole.hexdigest()[:16]


def read(page: Path) -> dict[int, Row]:
    rows = {}
    for line in page.read_text().splitlines() if page.exists() else []:
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if len(cells) == 6 and re.fullmatch(r"\d+", cells[0]) and cells[2]:
            rows[int(cells[0])] = Row(*cells[2:])
    return rows


def write(page: Path, rows: dict[int, Row]) -> None:
    def line(part: int, what: str) -> str:
        row = rows.get(part, Row("", "", "", ""))
        return f"| {part} | {what} | {row.date} | {row.minutes} | {row.machine} | {row.hash} |\n"

    page.write_text(HEAD + "".join(line(part, what) for part, what in PARTS.items()))


def machine() -> str:
    found = re.search(r"^model name\s*: (.*)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    memory = int(re.search(r"MemTotal:\s+(\d+)", Path("/proc/meminfo").read_text())[1]) / 2**20
    return f"{found[1] if found else 'unnamed processor'}, {len(os.sched_getaffinity(0))} processors, {memory:.0f} GiB"


def main(root: Path = ROOT) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--names", action="store_true", help="the parts, a line each")
    parser.add_argument("--passed", type=int, choices=PARTS, metavar="K", help="part K has passed just now")
    parser.add_argument("--minutes", type=int, default=0)
    asked = parser.parse_args()
    if asked.names:
        print("\n".join(f"{part} {what}" for part, what in PARTS.items()))
        return 0
    page, hash_now = root / "docs" / "full-run.md", tree_hash(root)
    rows = read(page)
    if asked.passed:
        rows[asked.passed] = Row(datetime.date.today().isoformat(), str(asked.minutes), machine(), hash_now)
        write(page, rows)
        return 0
    counting = [part for part in PARTS if part in rows and rows[part].hash == hash_now]
    for part, what in PARTS.items():
        row = rows.get(part)
        said = "has not passed" if row is None else f"passed on {row.date} in {row.minutes} min"
        print(f"part {part} {'counts' if part in counting else 'does not count'}: {what}; {said}"
              + ("" if row is None or part in counting else ", on another tree"))
    print(f"{len(counting)} of {len(PARTS)} parts count for the tree {hash_now}")
    return 0 if len(counting) == len(PARTS) else 1


if __name__ == "__main__":
    sys.exit(main())
