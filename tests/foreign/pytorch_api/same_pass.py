"""Runs a program of PyTorch's tests without a guard and with one: same_pass.py PROGRAM

Tests that pass without a guard have to pass with it. Those that fail without one are named, and are no fault of ours.
Exit status 1: a test passes without a guard only, or none passes.
"""

import re
import subprocess
import sys


def run(program: str, *arguments: str) -> tuple[set[str], str, int]:
    """The tests that pass, what the program printed, its status. Tests after a crash count as not passing."""
    ended = subprocess.run([program, *arguments], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                           errors="replace")
    passed = set(re.findall(r"^\[       OK \] ([\w./]+)", ended.stdout, re.MULTILINE))
    return passed, ended.stdout, ended.returncode


def begun(output: str) -> set[str]:
    return set(re.findall(r"^\[ RUN      \] ([\w./]+)", output, re.MULTILINE))


def ended_early(output: str) -> bool:
    return re.search(r"^\[==========\] \d+ tests? from .* ran\.", output, re.MULTILINE) is None


def main() -> int:
    program = sys.argv[1]
    plain, plain_output, plain_status = run(program)
    guarded, output, status = run(program, "--guarded")
    if failing := sorted(begun(plain_output) - plain):
        print("without a guard these do not pass:", *failing, sep="\n  ")
    if ended_early(plain_output):
        print(f"the program ends early without a guard (status {plain_status}):\n{plain_output[-4000:]}")
    lost = sorted(plain - guarded)
    if lost or ended_early(output):
        print(output[-20000:])
        print(f"with a guard these do not pass (status {status}):", *lost, sep="\n  ")
    print(*re.findall(r"^guarded: .*", output, re.MULTILINE), sep="\n")
    print(f"{len(plain)} pass without a guard, {len(plain & guarded)} of them with one")
    return 1 if lost or not plain or ended_early(output) or ended_early(plain_output) else 0


sys.exit(main())
