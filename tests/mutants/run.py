"""Plants each bug of this folder alone and says which test kills it: run.py --work DIR [options] [NAME ...]

A bug stands in the file of its room, ROOM.toml, with what is wrong in a sentence and the tests that should see it:

    [engine_births_are_not_pinned]
    wrong = "What is born in an op may leave before its end."
    tests = ["engine/engine_test", "engine/by_hand_test:Born.*"]
    [[engine_births_are_not_pinned.change]]
    in = "Engine::birth"                               # a function, a method, or a class
    find = "    if (books_.in_op()) pin(c);\n"         # stands there once
    put = ""

With `says` a bug is killed only where the failing test's output has that text. Each of --workers has a copy of the
sources in DIR, built there without libtorch. Bugs of the same tests go to one worker. It builds and runs these tests
without a bug; then each bug is planted, its tests are built and run one after the other until one fails, and the bug is
taken out again. Slow cases do not run. With --results FILE each verdict becomes a line of that file, and a bug that has
one there is not planted again: a run that was ended goes on. With --check nothing is built: only whether each bug has
its place. Bugs of adapter.toml need libtorch. With --torch BUILD, a build folder of these sources that has the Python
package, these alone are planted: in the sources themselves, since a copy would take an hour to build. Exit status 1:
fewer than --least percent are killed; 2: a bug has no place or does not compile, or a test fails without one.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import threading
import time
import tomllib
from dataclasses import dataclass, field
from pathlib import Path

from scopes import scopes

COPIED = ("CMakeLists.txt", "cmake", "examples", "include", "profiler", "src", "tests")
PLANTED = ("include", "profiler", "src")
WITH_LIBTORCH = "adapter"  # the file of bugs
LONGEST = 600.0  # seconds of one test without a mutant
PATIENCE = 5.0, 20.0  # a mutant hangs that takes so many times as long as without it, and so many seconds more


@dataclass
class Mutant:
    name: str
    wrong: str  # one sentence
    tests: list[str]  # files of tests, perhaps with some cases: engine/books_test:Slots.*
    says: str  # that the failing test's output has; empty: anything
    changes: list[dict[str, str]]
    torch: bool = False  # it needs libtorch
    planted: dict[str, str] = field(default_factory=dict)  # [path] = the file with the bug


class Broken(Exception):
    """Something that is to be mended before a score means anything."""


class Sources:
    """Finds where bugs go."""

    def __init__(self, root: Path) -> None:
        self.texts: dict[str, str] = {}
        self.places: dict[str, list[tuple[str, int, int]]] = {}  # [scope] = path and lines
        for file in (each for top in PLANTED for each in sorted((root / top).rglob("*"))):
            if file.suffix in (".cc", ".h"):
                path = str(file.relative_to(root))
                self.texts[path] = file.read_text()
                for scope in scopes(self.texts[path]):
                    self.places.setdefault(scope.name, []).append((path, scope.begin, scope.end))

    def plant(self, mutant: Mutant) -> None:
        for change in mutant.changes:
            places = self.places.get(change["in"], [])
            if not places:
                raise Broken(f"{mutant.name}: there is no {change['in']}")
            found = []
            for path, begin, end in places:
                lines = mutant.planted.get(path, self.texts[path]).split("\n")
                text = "\n".join(lines[begin:end])
                if change["find"] in text:
                    changed = text.replace(change["find"], change["put"])
                    found += [(path, lines[:begin], changed, lines[end:])] * text.count(change["find"])
            if len(found) != 1:
                raise Broken(f"{mutant.name}: {change['in']} has {change['find'].strip()!r} {len(found)} times")
            path, before, changed, after = found[0]
            mutant.planted[path] = "\n".join([*before, changed, *after])


def read(folder: Path) -> list[Mutant]:
    """All bugs, each planted in its mind."""
    sources, mutants = Sources(folder.parent.parent), []
    for file in sorted(folder.glob("*.toml")):
        for name, told in tomllib.loads(file.read_text()).items():
            mutant = Mutant(name, told["wrong"], told["tests"], told.get("says", ""), told["change"],
                            file.stem == WITH_LIBTORCH)
            sources.plant(mutant)
            mutants.append(mutant)
    return mutants


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

    unity = "tests"  # what is compiled several files at a time: the tests alone, since a bug is in one file

    def __init__(self, source: Path, work: Path, data: str, jobs: int) -> None:
        self.source, self.copy, self.folder, self.data, self.jobs = source, work, work / "build" / "core", data, jobs
        self.seconds: dict[str, float] = {}  # that a test takes without a mutant
        self.environment: dict[str, str] = {}  # of tests, beside ours

    def configure(self) -> None:
        copy(self.source, self.copy)
        command = ["cmake", "-S", self.copy, "-B", self.folder, "-G", "Ninja", "-DCMAKE_BUILD_TYPE=Release",
                   "-DCMAKE_CXX_COMPILER=g++"]  # as in the preset: ccache tells compilers apart by their names
        options = ["-DVEDETTE_TORCH=OFF", "-DVEDETTE_BENCH=OFF", f"-DVEDETTE_UNITY={self.unity}",
                   f"-DVEDETTE_DATA={self.data}"]
        ended = subprocess.run([*command, *options], capture_output=True, text=True)
        if ended.returncode != 0:
            raise Broken(f"the copy of the sources cannot be configured:\n{ended.stdout}{ended.stderr}")

    def program(self, test: str) -> Path:
        """That has the cases of a file of tests (engine/books_test), as tests/CMakeLists.txt lists them."""
        path = test.partition(":")[0]
        for table in self.folder.glob("tests/**/tests_*_files.txt"):
            if any(line.startswith(f"{path}\t") for line in table.read_text().splitlines()):
                return table.with_name(table.name.removesuffix("_files.txt"))
        raise Broken(f"no program has the tests of {path}")

    def cases(self, test: str) -> str:
        """A filter of GoogleTest's: those of the file that are named, or all of them, without the slow ones."""
        path, _, cases = test.partition(":")
        listed = self.program(test).with_name(self.program(test).name + "_cases.cmake").read_text()
        labels = rf"^set_tests_properties\(\[==\[{re.escape(path)}\.(\S+)\]==\] PROPERTIES LABELS \[==\[(.*?)\]==\]"
        found = [name for name, of in re.findall(labels, listed, re.MULTILINE) if "slow" not in of.split(";")]
        asked = re.compile("|".join(re.escape(each).replace(r"\*", ".*") for each in (cases or "*").split(":")))
        return ":".join(name for name in found if asked.fullmatch(name))

    def make(self, tests: list[str]) -> str:
        """Empty, or what the compiler says."""
        targets = sorted({self.program(test).name for test in tests})
        command = ["ninja", "-C", str(self.folder), "-j", str(self.jobs), *targets]
        ended = subprocess.run(command, capture_output=True, text=True)
        return "" if ended.returncode == 0 else ended.stdout + ended.stderr

    def failing(self, test: str, says: str = "") -> str:
        """The case that fails and says so, or empty."""
        path, program = test.partition(":")[0], self.program(test)
        command = [str(program), "--gtest_fail_fast", f"--gtest_filter={self.cases(test)}"]
        times, more = PATIENCE
        longest = self.seconds[test] * times + more if test in self.seconds else LONGEST
        began = time.monotonic()
        try:
            ended = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=longest,
                                   cwd=program.parent, env={**os.environ, **self.environment})
        except subprocess.TimeoutExpired as late:
            output = (late.stdout or b"").decode(errors="replace")
            return "" if says else f"{path}.{last_begun(output)} (hangs)"
        self.seconds.setdefault(test, time.monotonic() - began)
        if ended.returncode == 0 or says not in ended.stdout + ended.stderr:
            return ""
        failed = re.findall(r"^\[  FAILED  \] ([\w./]+)", ended.stdout, re.MULTILINE)
        return f"{path}.{failed[0]}" if failed else f"{path}.{last_begun(ended.stdout)} (crashes)"

    def change(self, mutant: Mutant) -> None:
        for path, text in mutant.planted.items():
            (self.copy / path).write_text(text)

    def restore(self, mutant: Mutant) -> None:
        for path in mutant.planted:
            put(self.source / path, self.copy / path)


class BuildWithLibtorch(Build):
    """The sources themselves. A test python/NAME:CLASS is one of python/tests/NAME_test.py, on the simulated GPU."""

    def __init__(self, source: Path, folder: Path, jobs: int) -> None:
        super().__init__(source, folder, "", jobs)
        self.copy, self.folder = source, folder
        self.before: dict[str, str] = {}

    def configure(self) -> None:
        if not (self.folder / "python").is_dir():
            raise Broken(f"{self.folder} is no build folder with the Python package")

    def make(self, tests: list[str]) -> str:
        targets = sorted({self.program(test).name for test in tests if not test.startswith("python/")})
        command = ["ninja", "-C", str(self.folder), "-j", str(self.jobs), "vedette_python", "simulated_gpu", *targets]
        ended = subprocess.run(command, capture_output=True, text=True)
        return "" if ended.returncode == 0 else ended.stdout + ended.stderr

    def failing(self, test: str, says: str = "") -> str:
        if not test.startswith("python/"):
            return super().failing(test, says)
        name, _, cases = test.removeprefix("python/").partition(":")
        command = [str(self.source / ".venv/bin/python"), str(self.source / "python/tests/run.py"),
                   str(self.folder / "python"), f"{name}_test.py", *filter(None, cases.split(":"))]
        try:
            ended = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=LONGEST,
                                   env={**os.environ, "OMP_NUM_THREADS": "1"})
        except subprocess.TimeoutExpired:
            return "" if says else f"{test} (hangs)"
        if ended.returncode == 77:
            raise Broken(f"{test} cannot run here:\n{ended.stdout}")
        if ended.returncode == 0 or says not in ended.stdout + ended.stderr:
            return ""
        failed = re.findall(r"^(?:FAIL|ERROR): (\w+)", ended.stdout, re.MULTILINE)
        return f"python/{name}.{failed[0]}" if failed else f"{test} (crashes)"

    def change(self, mutant: Mutant) -> None:
        self.before = {path: (self.copy / path).read_text() for path in mutant.planted}
        super().change(mutant)

    def restore(self, mutant: Mutant) -> None:
        for path, text in self.before.items():
            (self.copy / path).write_text(text)


def last_begun(output: str) -> str:
    begun = re.findall(r"^\[ RUN      \] ([\w./]+)", output, re.MULTILINE)
    return begun[-1] if begun else "before any case"


def killer(build: Build, mutant: Mutant) -> str:
    build.change(mutant)
    try:
        if said := build.make(mutant.tests):
            raise Broken(f"{mutant.name} does not compile:\n{said}")
        return next(filter(None, (build.failing(test, mutant.says) for test in mutant.tests)), "")
    finally:
        build.restore(mutant)


class Run:
    """Mutants in groups of equal tests, which the workers take one after the other, the largest first."""

    def __init__(self, mutants: list[Mutant], results: Path | None) -> None:
        self.results = results
        before = results.read_text() if results and results.exists() else ""
        verdicts = {name: said for said, name in re.findall(r"^(killed|SURVIVED) +(\w+):", before, re.MULTILINE)}
        groups: dict[str, list[Mutant]] = {}
        for each in mutants:
            if each.name not in verdicts:
                groups.setdefault("".join(each.tests[:1]).partition(":")[0], []).append(each)
        self.groups = sorted(groups.values(), key=len)
        self.lock = threading.Lock()
        known = [each for each in mutants if verdicts.get(each.name) == "killed"]
        self.killed, self.said, self.broken = len(known), sum(1 for each in known if each.says), []

    def work(self, build: Build) -> None:
        try:
            build.configure()
        except Broken as error:
            return self.report_broken(error)
        while group := self.next_group():
            try:
                self.run_group(build, group)
            except Broken as error:
                self.report_broken(error)

    def next_group(self) -> list[Mutant]:
        with self.lock:
            return self.groups.pop() if self.groups else []

    def run_group(self, build: Build, group: list[Mutant]) -> None:
        prepare(build, {test for mutant in group for test in mutant.tests})
        for mutant in group:
            try:
                by = killer(build, mutant)
            except Broken as error:
                self.report_broken(error)
                continue
            with self.lock:
                self.killed += 1 if by else 0
                self.said += 1 if by and mutant.says else 0
                said = f"killed    {mutant.name}: {by}" if by else f"SURVIVED  {mutant.name}: {mutant.wrong}"
                print(said, flush=True)
                if self.results:
                    with self.results.open("a") as file:
                        file.write(said + "\n")

    def report_broken(self, error: Broken) -> None:
        with self.lock:
            self.broken.append(str(error))
            print(f"broken    {error}", flush=True)


def prepare(build: Build, tests: set[str]) -> None:
    if said := build.make(sorted(tests)):
        raise Broken(f"the sources do not build without a mutant:\n{said}")
    for test in sorted(tests - build.seconds.keys()):
        if failed := build.failing(test):
            raise Broken(f"{failed} fails without a mutant, so that it tells nothing of one")


def main() -> int:
    cores = len(os.sched_getaffinity(0))
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="build nothing")
    parser.add_argument("--work", type=Path, metavar="DIR", help="the copies and builds; may be kept")
    parser.add_argument("--data", default="", metavar="DIR", help="given data, as VEDETTE_DATA of the build")
    parser.add_argument("--torch", type=Path, metavar="BUILD", help="the bugs that need libtorch, and only these")
    parser.add_argument("--results", type=Path, metavar="FILE", help="verdicts, those of runs before among them")
    parser.add_argument("--least", type=float, default=90, metavar="PERCENT")
    parser.add_argument("--workers", type=int, default=min(cores, 8), help="default: as many as processors, at most 8")
    parser.add_argument("names", nargs="*", metavar="NAME", help="these mutants only")
    asked = parser.parse_args()
    folder = Path(__file__).resolve().parent
    if asked.work is None and asked.torch is None and not asked.check:
        parser.error("--work DIR is wanted: where the copies and builds go")
    began = time.monotonic()
    try:
        mutants = read(folder)
    except Broken as error:
        print(f"mutants: {error}", file=sys.stderr)
        return 2
    if asked.check:
        print(f"{len(mutants)} bugs, each with its place")
        return 0
    mutants = [each for each in mutants if not asked.names or each.name in asked.names]
    mutants = [each for each in mutants if each.torch == (asked.torch is not None)]
    run, source = Run(mutants, asked.results), folder.parent.parent
    jobs = max(cores // asked.workers, 1)
    builds = [BuildWithLibtorch(source, asked.torch.resolve(), cores)] if asked.torch else [
        Build(source, asked.work.resolve() / str(number), asked.data, jobs) for number in range(asked.workers)]
    workers = [threading.Thread(target=run.work, args=[build]) for build in builds]
    for each in workers:
        each.start()
    for each in workers:
        each.join()
    score = 100 * run.killed / max(len(mutants), 1)
    took, busy = time.monotonic() - began, sum(os.times()[2:4])
    print(f"{run.killed} of {len(mutants)} mutants killed, {score:.1f} %, {run.said} of them by a test that said what it"
          f" has to, in {took / 60:.1f} minutes, of which the processors computed {busy / 60:.1f}")
    return 2 if run.broken or not mutants else 1 if score < asked.least else 0


if __name__ == "__main__":
    sys.exit(main())
