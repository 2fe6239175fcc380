"""Draws small bugs from the files that are new, plants each alone and says which test kills it: draw.py --work DIR

From the files that were added since a day, under the names that they have now, --many bugs are drawn by --seed: as many
of each kind of sites.py, at most --most of a file. The same commit and seed give the same bugs; --print shows them.
Those in files that need libtorch are counted apart, and not run; --only runs some files' alone.

All are compiled into one copy of the sources at once, where the environment says which of them is there (planted.h). A
bug that does not compile is not counted: the next one of its kind is drawn. Each case of the tests runs alone without a
bug, which tells the bugs that it comes by and its seconds. Then each bug runs the cases that come by it, those of its
file's own name first, until one fails. A case that fails has to fail again, alone, or it was by chance. With --results
FILE a run goes on where it ended. Exit status as of run.py.
"""

import argparse
import hashlib
import json
import os
import random
import re
import subprocess
import sys
import time
from pathlib import Path

from run import Broken, Build, Mutant, Run, put
from sites import KINDS, Site, sites

ADDED_UNDER = ("include", "profiler", "src", "python")
WITH_LIBTORCH = re.compile(r"python/|src/adapter/|include/vedette/(?:torch|distributed)\.h|src/simulated_gpu/(?:aliases"
                           r"|blas|generators|interpreted|kernels|nccl|nodes|operators|runtime|shapes|workspaces)")
UNTOUCHED = ("tidy/", "fuzz/", "guest/", "package/", "foreign/", "bench/")  # tests that read the sources, or are slow
LONGEST_CASE = 60.0  # seconds


def added_since(root: Path, day: str) -> list[str]:
    command = ["git", "-C", str(root), "log", "--reverse", "-M", f"--since={day}T00:00:00Z", "--name-status",
               "--format=", "--", *ADDED_UNDER]
    ended = subprocess.run(command, capture_output=True, text=True)
    if ended.returncode != 0:
        raise Broken(f"git does not tell which files are new: {ended.stderr.strip()}")
    found: set[str] = set()
    for line in ended.stdout.splitlines():
        change, *paths = line.split("\t")
        if change == "A" or (change.startswith("R") and paths[0] in found):
            found.add(paths[-1])
        if change.startswith(("D", "R")):
            found.discard(paths[0])
    return sorted(path for path in found if path.endswith((".cc", ".h")) and (root / path).exists())


class Drawn:
    """One bug. Its number depends on the seed and the sources alone."""

    def __init__(self, seed: int, number: int, site: Site) -> None:
        self.number, self.site = number, site
        told = hashlib.sha1("\n".join([site.path, site.before, site.after]).encode()).hexdigest()[:6]
        stem = Path(site.path).name.replace(".", "_")
        self.name = f"drawn_{seed}_{number}_{stem}_{site.begin + 1}_{site.kind}_{told}"
        self.wrong = f"{site.path}:{site.begin + 1} {site.kind}: {site.before}  =>  {site.after or '(nothing)'}"
        self.torch = WITH_LIBTORCH.match(site.path) is not None


def draw(found: list[Site], seed: int, many: int, most: int, refused: set[str]) -> list[Drawn]:
    chance, orders = random.Random(seed), []
    for kind in KINDS:
        of_kind = [each for each in found if each.kind == kind]
        chance.shuffle(of_kind)
        orders.append(of_kind)
    drawn: list[Drawn] = []
    places = [0] * len(KINDS)
    while len(drawn) < many and any(place < len(order) for place, order in zip(places, orders)):
        for kind, order in enumerate(orders):
            while len(drawn) < many and places[kind] < len(order):
                one = Drawn(seed, places[kind] * len(KINDS) + kind + 1, order[places[kind]])
                places[kind] += 1
                beside = [each.site for each in drawn if each.site.path == one.site.path]
                if one.name not in refused and len(beside) < most and not any(map(one.site.overlaps, beside)):
                    drawn.append(one)
                    break
    return drawn


def asked_for(drawn: list[Drawn], only: str) -> list[Drawn]:
    return [each for each in drawn if not each.torch and re.match(only, each.site.path)]


class Schema(Build):
    """All bugs in one build: a bug is planted by its number in the environment of a test."""

    unity = "ON"

    def __init__(self, source: Path, asked: argparse.Namespace) -> None:
        super().__init__(source, asked.work.resolve() / "drawn", asked.data, asked.jobs)
        self.asked_programs = re.compile(asked.programs)
        self.numbers: dict[str, int] = {}

    def plant(self, drawn: list[Drawn]) -> None:
        of_file: dict[str, list[Drawn]] = {}
        for each in drawn:
            of_file.setdefault(each.site.path, []).append(each)
        marked = self.copy / "planted.txt"
        before = set(marked.read_text().split()) if marked.exists() else set()
        for path in before - of_file.keys():
            put(self.source / path, self.copy / path)
        for path, bugs in of_file.items():
            lines = (self.source / path).read_text().split("\n")
            for each in bugs:
                there = [line.replace("@", str(each.number)) for line in each.site.lines]
                lines[each.site.begin:each.site.end] = there
            text = "\n".join([f'#include "{self.copy}/tests/mutants/planted.h"', *lines])
            if (self.copy / path).read_text() != text:
                (self.copy / path).write_text(text)
        marked.write_text("\n".join(sorted(of_file)))
        self.numbers = {each.name: each.number for each in drawn}

    def programs(self) -> dict[str, list[str]]:
        """[program] = its files of tests, those apart that cannot tell anything."""
        found: dict[str, list[str]] = {}
        for table in sorted(self.folder.glob("tests/**/tests_*_files.txt")):
            rows = [line.split("\t") for line in table.read_text().splitlines()]
            files = [row[0] for row in rows if not row[0].startswith(UNTOUCHED) and "slow" not in row[1].split(";")]
            if files and self.asked_programs.fullmatch(table.name, 6, len(table.name) - 10):
                found[table.name.removesuffix("_files.txt")] = files
        return found

    def compile(self, drawn: list[Drawn]) -> set[str]:
        """The names of bugs that do not compile."""
        command = ["ninja", "-C", str(self.folder), "-k", "0", "-j", str(self.jobs), *self.programs()]
        ended = subprocess.run(command, capture_output=True, text=True)
        if ended.returncode == 0:
            return set()
        said, refused = ended.stdout + ended.stderr, set()
        for path, line in re.findall(r"([\w./-]+):(\d+)(?::\d+)?: +(?:error|required)", said):
            at = int(line) - 2  # from 0, and behind the line that plant() put in front
            refused |= {each.name for each in drawn if path.endswith(each.site.path)
                        and each.site.begin <= at < each.site.end}
        if not refused:
            raise Broken(f"the sources with all bugs do not build:\n{said[-6000:]}")
        return refused

    def reach(self, test: str, case: str) -> dict | None:
        """What a case does without a bug: its seconds, and the numbers of the bugs that it comes by."""
        told = self.copy / "reached.txt"
        told.unlink(missing_ok=True)
        program, began = self.program(test), time.monotonic()
        try:
            ended = subprocess.run([str(program), f"--gtest_filter={case}"], capture_output=True, text=True,
                                   errors="replace", timeout=LONGEST_CASE, cwd=program.parent,
                                   env={**os.environ, "VEDETTE_REACHED": str(told)})
        except subprocess.TimeoutExpired:
            return None
        if ended.returncode != 0:
            return None
        numbers = sorted(map(int, set(told.read_text().split()))) if told.exists() else []
        return {"seconds": round(time.monotonic() - began, 3), "reached": numbers}

    def change(self, mutant: Mutant) -> None:
        self.environment = {"VEDETTE_PLANTED": str(self.numbers[mutant.name])}

    def restore(self, mutant: Mutant) -> None:
        self.environment = {}

    def make(self, tests: list[str]) -> str:
        return ""

    def failing(self, test: str, says: str = "") -> str:
        by = super().failing(test, says)
        if by and not by.endswith("(hangs)"):
            path = test.partition(":")[0]
            case = by.removesuffix(" (crashes)").removeprefix(f"{path}.")
            alone = f"{path}:{case}"
            self.seconds.setdefault(alone, self.seconds[test])
            return by if case == "before any case" or super().failing(alone, says) else ""
        return by


def reached(build: Schema, told: Path) -> dict[str, dict[str, dict | None]]:
    """[file of tests][case]: see Schema::reach. What is known of before stays so."""
    known = json.loads(told.read_text()) if told.exists() else {}
    for files in build.programs().values():
        for test in files:
            cases = known.setdefault(test, {})
            for case in filter(None, build.cases(test).split(":")):
                if case not in cases:
                    cases[case] = build.reach(test, case)
            told.write_text(json.dumps(known))
    return known


def tests_of(one: Drawn, known: dict[str, dict[str, dict | None]], seconds: dict[str, float]) -> list[str]:
    """The cases that come by a bug, by file: those of its own name first, and then the shorter ones."""
    found = []
    for test, cases in known.items():
        come_by = {case: told["seconds"] for case, told in cases.items() if told and one.number in told["reached"]}
        if come_by:
            found.append((Path(test).name.removesuffix("_test") != Path(one.site.path).stem, sum(come_by.values()),
                          f"{test}:{':'.join(come_by)}"))
    for _, took, test in found:
        seconds[test] = took
    return [test for _, _, test in sorted(found)]


def prepare(build: Schema, found: list[Site], asked: argparse.Namespace) -> list[Drawn]:
    """The bugs that compile, all planted in the build."""
    build.configure()
    file = build.copy / f"refused_{asked.seed}.txt"
    refused = set(file.read_text().split()) if file.exists() else set()
    while True:
        drawn = draw(found, asked.seed, asked.many, asked.most, refused)
        here = asked_for(drawn, asked.only)
        build.plant(here)
        more = build.compile(here)
        refused |= more
        file.write_text("\n".join(sorted(refused)))
        if not more:
            print(f"{len(refused)} do not compile; {len(here)} are planted", flush=True)
            return drawn


def tables(drawn: list[Drawn], run: Run) -> None:
    told = run.results.read_text() if run.results and run.results.exists() else ""
    killed = set(re.findall(r"^killed +(\w+):", told, re.MULTILINE))
    survived = set(re.findall(r"^SURVIVED +(\w+):", told, re.MULTILINE))
    print("kind      drawn  libtorch's  killed  survived")
    for kind in KINDS:
        some = [each for each in drawn if each.site.kind == kind]
        counts = [len(some), *(sum(map(test, some)) for test in (
            lambda each: each.torch, lambda each: each.name in killed, lambda each: each.name in survived))]
        print(f"{kind:9}" + "".join(f"{count:>{width}}" for count, width in zip(counts, (6, 12, 8, 10))))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--many", type=int, default=200)
    parser.add_argument("--most", type=int, default=5, help="of a file")
    parser.add_argument("--since", default="2026-11-25", metavar="DAY", help="its first moment, UTC")
    parser.add_argument("--print", action="store_true", help="build nothing")
    parser.add_argument("--only", default="", metavar="REGEX", help="of files: the others are drawn, too, but not run")
    parser.add_argument("--programs", default=".*", metavar="REGEX", help="of tests, such as engine|session")
    parser.add_argument("--work", type=Path, metavar="DIR", help="the copy and its build; may be kept")
    parser.add_argument("--data", default="", metavar="DIR", help="given data, as VEDETTE_DATA of the build")
    parser.add_argument("--results", type=Path, metavar="FILE", help="verdicts, those of runs before among them")
    parser.add_argument("--least", type=float, default=95, metavar="PERCENT")
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)))
    asked = parser.parse_args()
    if asked.work is None and not asked.print:
        parser.error("--work DIR is wanted: where the copy and its build go")
    source = Path(__file__).resolve().parent.parent.parent
    try:
        paths = added_since(source, asked.since)
    except Broken as error:
        print(f"mutants: {error}", file=sys.stderr)
        return 2
    found = [site for path in paths for site in sites(path, (source / path).read_text())]
    print(f"seed {asked.seed}: {len(paths)} files added since {asked.since} have {len(found)} places for a bug")
    if asked.print:
        for each in draw(found, asked.seed, asked.many, asked.most, set()):
            print(f"{each.name}{' (libtorch)' if each.torch else ''}: {each.wrong}")
        return 0
    build = Schema(source, asked)
    try:
        drawn = prepare(build, found, asked)
    except Broken as error:
        print(f"mutants: {error}", file=sys.stderr)
        return 2
    here = asked_for(drawn, asked.only)
    told = hashlib.sha1(" ".join(each.name for each in here).encode()).hexdigest()[:8]
    known = reached(build, build.copy / f"reached_{told}.json")
    failed = [f"{test}.{case}" for test, cases in known.items() for case, told in cases.items() if told is None]
    print(f"{sum(map(len, known.values()))} cases; without a bug these fail, or take too long:"
          f" {', '.join(failed) or 'none'}", flush=True)
    mutants = [Mutant(each.name, each.wrong, tests_of(each, known, build.seconds), "", []) for each in here]
    for each in mutants:
        if not each.tests:
            each.wrong += "  (no case comes by)"
    run = Run(mutants, asked.results)
    run.groups = [[each] for group in run.groups for each in group]
    for group in run.groups:
        run.run_group(build, group)
    tables(drawn, run)
    score = 100 * run.killed / max(len(mutants), 1)
    print(f"{run.killed} of {len(mutants)} mutants killed, {score:.1f} %; {len(drawn) - len(here)} were not run,"
          f" {sum(each.torch for each in drawn)} of them in files that need libtorch")
    return 2 if run.broken or not mutants else 1 if score < asked.least else 0


if __name__ == "__main__":
    sys.exit(main())
