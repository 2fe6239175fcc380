"""Plants each bug of this folder alone and says which test kills it: run.py --work DIR [options] [NAME ...]

A mutant is a patch: what is wrong in its first line, the tests that should see it in its second, then a unified diff.
The sources are copied to DIR and built there without libtorch. There each patch is applied, its tests are built and run
one after the other until one fails, and the patch is taken back. Exit status 1: fewer than --least percent are killed;
2: a patch no longer applies or compiles, or a test fails without one.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

COPIED = ("CMakeLists.txt", "cmake", "examples", "include", "profiler", "src", "tests")
LONGEST = 600.0  # seconds of one test without a mutant
PATIENCE = 5.0, 20.0  # a mutant hangs that takes so many times as long as without it, and so many seconds more


@dataclass
class Mutant:
    name: str
    wrong: str  # one line
    tests: list[str]  # programs as tests/CMakeLists.txt names them, perhaps with some cases: engine/books_test:Slots.*
    diff: str
    files: list[str]  # that it changes


class Broken(Exception):
    """Something that is to be mended before a score means anything."""


def read(path: Path) -> Mutant:
    lines = path.read_text().split("\n")
    if len(lines) < 3 or not lines[0].startswith("# ") or not lines[1].startswith("# tests: "):
        raise Broken(f"{path.name} does not begin with what is wrong and with its tests")
    files = re.findall(r"^\+\+\+ b/(\S+)$", "\n".join(lines), re.MULTILINE)
    return Mutant(path.stem, lines[0][2:], lines[1][9:].split(), "\n".join(lines[2:]), files)


def copy(source: Path, target: Path) -> None:
    """Makes `target` equal to the sources. Files that are equal keep their time, so that nothing is built again."""
    for top in COPIED:
        if (source / top).is_dir():
            wanted = [each for each in (source / top).rglob("*") if each.is_file() and "__pycache__" not in each.parts]
        else:
            wanted = [source / top]
        for each in wanted:
            put(each, target / each.relative_to(source))
        names = {each.relative_to(source) for each in wanted}
        for old in (target / top).rglob("*"):
            if old.is_file() and old.relative_to(target) not in names:
                old.unlink()


def put(source: Path, target: Path) -> None:
    if target.exists() and target.read_bytes() == source.read_bytes():
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(source, target)
    target.chmod(source.stat().st_mode)


class Build:
    """A copy of the sources and its build folder, three levels down, where ccache finds what other builds left."""

    def __init__(self, source: Path, work: Path, data: str) -> None:
        self.source, self.copy, self.folder, self.data = source, work, work / "build" / "core", data
        self.seconds: dict[str, float] = {}  # that a test takes without a mutant

    def configure(self) -> None:
        copy(self.source, self.copy)
        command = ["cmake", "-S", self.copy, "-B", self.folder, "-G", "Ninja", "-DCMAKE_BUILD_TYPE=Release"]
        off = [f"-DVEDETTE_{part}=OFF" for part in ("TORCH", "BENCH")]
        ended = subprocess.run([*command, *off, f"-DVEDETTE_DATA={self.data}"], capture_output=True, text=True)
        if ended.returncode != 0:
            raise Broken(f"the copy of the sources cannot be configured:\n{ended.stdout}{ended.stderr}")

    def make(self, tests: list[str], jobs: int) -> str:
        """Empty, or what the compiler says."""
        targets = sorted({test.partition(":")[0].replace("/", "_") for test in tests})
        command = ["ninja", "-C", str(self.folder), "-j", str(jobs), *targets]
        ended = subprocess.run(command, capture_output=True, text=True)
        return "" if ended.returncode == 0 else ended.stdout + ended.stderr

    def failing(self, test: str) -> str:
        """The case that fails, or empty."""
        path, _, cases = test.partition(":")
        program = self.folder / "tests" / Path(path).parent / path.replace("/", "_")
        command = [str(program), "--gtest_fail_fast", f"--gtest_filter={cases or '*'}"]
        times, more = PATIENCE
        longest = self.seconds[test] * times + more if test in self.seconds else LONGEST
        began = time.monotonic()
        try:
            ended = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=longest,
                                   cwd=program.parent)
        except subprocess.TimeoutExpired as late:
            output = (late.stdout or b"").decode(errors="replace")
            return f"{path}.{last_begun(output)} (hangs)"
        self.seconds.setdefault(test, time.monotonic() - began)
        if ended.returncode == 0:
            return ""
        failed = re.findall(r"^\[  FAILED  \] ([\w./]+)", ended.stdout, re.MULTILINE)
        return f"{path}.{failed[0]}" if failed else f"{path}.{last_begun(ended.stdout)} (crashes)"

    def change(self, mutant: Mutant) -> None:
        # Else git looks for a repository around the copy, and leaves files outside of its index alone.
        outside = dict(os.environ, GIT_CEILING_DIRECTORIES=str(self.copy.parent))
        ended = subprocess.run(["git", "apply", "-"], input=mutant.diff, capture_output=True, text=True, cwd=self.copy,
                               env=outside)
        same = all((self.copy / f).read_bytes() == (self.source / f).read_bytes() for f in mutant.files)
        if ended.returncode != 0 or same or not mutant.files:
            raise Broken(f"{mutant.name} no longer applies: {ended.stderr.strip() or 'it changes nothing'}")

    def restore(self, mutant: Mutant) -> None:
        for file in mutant.files:
            put(self.source / file, self.copy / file)


def last_begun(output: str) -> str:
    begun = re.findall(r"^\[ RUN      \] ([\w./]+)", output, re.MULTILINE)
    return begun[-1] if begun else "before any case"


def killer(build: Build, mutant: Mutant, jobs: int) -> str:
    build.change(mutant)
    try:
        if said := build.make(mutant.tests, jobs):
            raise Broken(f"{mutant.name} does not compile:\n{said}")
        return next(filter(None, map(build.failing, mutant.tests)), "")
    finally:
        build.restore(mutant)


def prepare(build: Build, mutants: list[Mutant], jobs: int) -> None:
    build.configure()
    tests = sorted({test for mutant in mutants for test in mutant.tests})
    if said := build.make(tests, jobs):
        raise Broken(f"the sources do not build without a mutant:\n{said}")
    for test in tests:
        if failed := build.failing(test):
            raise Broken(f"{failed} fails without a mutant, so that it tells nothing of one")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=Path, required=True, metavar="DIR", help="the copy and its build; may be kept")
    parser.add_argument("--data", default="", metavar="DIR", help="given data, as VEDETTE_DATA of the build")
    parser.add_argument("--least", type=float, default=90, metavar="PERCENT")
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("names", nargs="*", metavar="NAME", help="these mutants only")
    asked = parser.parse_args()
    folder = Path(__file__).resolve().parent
    began, broken, killed = time.monotonic(), [], 0
    try:
        mutants = [read(path) for path in sorted(folder.glob("*.patch"))]
        mutants = [each for each in mutants if not asked.names or each.name in asked.names]
        build = Build(folder.parent.parent, asked.work.resolve(), asked.data)
        prepare(build, mutants, asked.jobs)
    except Broken as error:
        print(f"mutants: {error}", file=sys.stderr)
        return 2
    for mutant in mutants:
        try:
            by = killer(build, mutant, asked.jobs)
        except Broken as error:
            broken.append(str(error))
            print(f"broken    {error}", flush=True)
            continue
        killed += 1 if by else 0
        print(f"killed    {mutant.name}: {by}" if by else f"SURVIVED  {mutant.name}: {mutant.wrong}", flush=True)
    score = 100 * killed / max(len(mutants), 1)
    took = time.monotonic() - began
    print(f"{killed} of {len(mutants)} mutants killed, {score:.1f} %, in {took / 60:.1f} minutes")
    return 2 if broken or not mutants else 1 if score < asked.least else 0


sys.exit(main())
