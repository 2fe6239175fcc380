"""Tells what tests do when nothing has ended for long: standstill.py LOG SECONDS

LOG is what ctest prints. Each time it has not grown for SECONDS, the processes beside this one and below its parent are
listed: of each its state, its age and its command, of each thread where it waits in the kernel, and, where there is
gdb, its calls. ctest tells of a test only when it ends, and cannot end one that the kernel holds. Runs until it is
killed.
"""

import os
import pathlib
import shutil
import subprocess
import sys
import time

PROC = pathlib.Path("/proc")


def read(path: pathlib.Path) -> str:
    try:
        return path.read_text(errors="replace").replace("\0", " ").strip()
    except OSError:  # gone, or not ours to read
        return ""


def stat(folder: pathlib.Path) -> list[str]:
    """What stands behind the name of a process or thread, its state first; nothing where it is gone."""
    return read(folder / "stat").rpartition(")")[2].split()


def parents() -> dict[int, int]:
    """Each process's parent."""
    found = ((int(entry.name), stat(entry)) for entry in PROC.iterdir() if entry.name.isdigit())
    return {pid: int(fields[1]) for pid, fields in found if fields}


def below(root: int, parent_of: dict[int, int]) -> list[int]:
    """The processes below root, parents before their children."""
    found = []
    for child in sorted(pid for pid, parent in parent_of.items() if parent == root):
        found += [child, *below(child, parent_of)]
    return found


def calls(pid: int) -> str:
    if shutil.which("gdb") is None:
        return ""
    command = ["gdb", "-p", str(pid), "-batch", "-nx", "-ex", "thread apply all backtrace 24"]
    try:
        ended = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60)
    except subprocess.TimeoutExpired:
        return "    gdb: no answer in 60 s\n"
    return "".join(f"    {line}\n" for line in ended.stdout.splitlines() if line.startswith(("Thread ", "#")))


def describe(pid: int) -> str:
    folder = PROC / str(pid)
    fields = stat(folder)
    if not fields:
        return ""
    age = float(read(PROC / "uptime").split()[0]) - int(fields[19]) / os.sysconf("SC_CLK_TCK")
    lines = [f"  process {pid}, {fields[0]}, {age:.0f} s old: {read(folder / 'cmdline')[:300]}"]
    for thread in sorted((folder / "task").glob("*"), key=lambda task: int(task.name)):
        state = stat(thread)
        kernel = read(thread / "stack").splitlines()[:8] or [read(thread / "wchan")]
        lines.append(f"    thread {thread.name} {read(thread / 'comm')}, {state[0] if state else 'gone'}, "
                     f"{' < '.join(call.split('] ')[-1].split('+')[0] for call in kernel)}")
    return "\n".join(lines) + "\n"


def tell(root: int) -> str:
    told = ""
    for pid in below(root, parents()):
        if pid != os.getpid() and read(PROC / str(pid) / "comm") not in ("tee", "grep"):
            told += describe(pid) + (calls(pid) if "_test" in read(PROC / str(pid) / "cmdline") else "")
    return told


def main() -> None:
    log, seconds, root = pathlib.Path(sys.argv[1]), float(sys.argv[2]), os.getppid()
    size, since = -1, time.monotonic()
    while os.getppid() == root:
        time.sleep(min(5, seconds / 4))
        now = log.stat().st_size if log.exists() else 0
        if now != size:
            size, since = now, time.monotonic()
        elif time.monotonic() - since >= seconds:
            print(f"standstill: no test has begun or ended for {seconds:.0f} s\n{tell(root)}", end="", flush=True)
            since = time.monotonic()


if __name__ == "__main__":
    main()
