"""The cells of docs/torch-versions.md: what scripts/torch_versions.sh runs, and which of them count.

A cell is a part of the tests with a version of libtorch. When it has run it leaves a row with a hash of the tree, as the
parts of the whole run do (full_run.py). The row counts while that is the tree's hash; the table shows what it says.
"""

import argparse
import datetime
import os
import re
import subprocess
import sys
import time
from dataclasses import astuple, dataclass
from pathlib import Path

import full_run

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "torch-versions.md"
VERSIONS = ["2.11.0", "2.12.1", "2.13.0", "2.14.1", "2.15.0"]
SLOW = "slow"


@dataclass
class Part:
    what: str
    targets: list[str]  # regular expressions of ninja's targets
    tests: str = ""     # ctest's; empty: nothing runs
    slow: bool = False


PARTS = {
    "builds": Part("builds", ["vedette_torch", "vedette_torch_cuda", "simulated_gpu", "vedette_python"]),
    "adapter": Part("adapter", ["tests_(adapter|untried_version)", "train"], "^adapter/"),
    "gpu": Part("simulated GPU", ["tests_simulated_(gpu|allocator|training)", "vedette_cli"], "^simulated_gpu/"),
    "python": Part("Python", ["vedette_python", "vedette_torch_cuda", "simulated_gpu", "vedette_cli"], "^python/"),
    "distributed": Part("distributed", ["tests_distributed"], "^distributed/"),
    "opinfo": Part("OpInfo", ["op_allocator"], "^adapter/op_bits$", slow=True),
    "demo": Part("demo's ratio", ["train", "vedette_cli"]),
}


@dataclass
class Row:
    version: str
    part: str
    result: str
    date: str
    minutes: str
    machine: str
    hash: str


def rows_of(text: str) -> dict[tuple[str, str], Row]:
    rows = {}
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if len(cells) == 7 and re.fullmatch(r"\d+\.\d+\.\d+", cells[0]) and cells[1] in PARTS:
            rows[cells[0], cells[1]] = Row(*cells)
    return rows


def page_of(text: str, rows: dict[tuple[str, str], Row]) -> str:
    """The page with the two tables made anew, each between its marks; the words around them stay."""
    head = "| libtorch | " + " | ".join(part.what for part in PARTS.values()) + " |\n|---" * 1
    table = head + "|---" * len(PARTS) + "|\n"
    for version in VERSIONS:
        cells = [rows[version, part].result if (version, part) in rows else "not run" for part in PARTS]
        table += f"| {version} | " + " | ".join(cells) + " |\n"
    runs = "| libtorch | part | result | run on | minutes | machine | hash |\n|---|---|---|---|---|---|---|\n"
    runs += "".join("| " + " | ".join(astuple(rows[key])) + " |\n" for key in sorted(rows))
    for name, made in (("table", table), ("runs", runs)):
        text = re.sub(rf"(<!-- {name} -->\n).*?(<!-- end of {name} -->)", lambda m, made=made: m[1] + made + m[2], text, flags=re.S)
    return text


def result_of(ctest: str) -> tuple[bool, str]:
    """Whether all passed, and a cell's words: how many passed, and how many failed or could not run."""
    failed, of = map(int, re.search(r"^\d+% tests passed, (\d+) tests failed out of (\d+)", ctest, re.M).groups())
    skipped = len(re.findall(r"^\s*\d+ - .*\((?:Skipped|Disabled)\)", ctest, re.M))
    words = f"{of - failed - skipped}"
    words += f", {failed} failed" if failed else ""
    return failed == 0, words + (f", {skipped} could not run" if skipped else "")


def call(*words, log: Path, env=None) -> int:
    with log.open("a") as out:
        out.write("$ " + " ".join(map(str, words)) + "\n")
        out.flush()
        return subprocess.run([str(word) for word in words], cwd=ROOT, stdout=out, stderr=subprocess.STDOUT, env=env).returncode


def prepare(version: str, log: Path) -> Path:
    """The build folder of a version, configured; its environment first where there is none."""
    folder = ROOT / "build/torch" / version
    given = Path(os.environ.get("VEDETTE_VENVS", "/nonexistent")) / version
    venv = given if given.exists() else folder / sys.implementation.cache_tag  # which scripts/wheel.sh uses, too
    if venv != given:
        folder.mkdir(parents=True, exist_ok=True)
        if call("scripts/setup.sh", "--tests", log=log, env={**os.environ, "VEDETTE_TORCH_VERSION": version, "VEDETTE_VENV": str(venv)}):
            sys.exit(f"torch_versions: libtorch {version} could not be installed ({log})")
    data = os.environ.get("VEDETTE_DATA") or (str((ROOT / "../shared/data").resolve()) if (ROOT / "../shared/data").exists() else "")
    slow = os.environ.get("VEDETTE_SLOW", "OFF")
    build = ROOT / "build" / f"torch-{version}"  # as deep as build/release: ccache has what knows no libtorch from there
    if call("cmake", "--preset", "release", "-B", build, "-DVEDETTE_UNITY=ON", f"-DVEDETTE_VENV={venv}",
            f"-DVEDETTE_DATA={data}", f"-DVEDETTE_SLOW={slow}", log=log):
        sys.exit(f"torch_versions: configuring for libtorch {version} failed ({log})")
    return build


def targets_of(build: Path, wanted: list[str]) -> list[str]:
    listed = subprocess.run(["ninja", "-C", build, "-t", "targets", "all"], capture_output=True, text=True, check=True).stdout
    names = {line.split(":")[0] for line in listed.splitlines()}
    return sorted(name for name in names if any(re.fullmatch(each, name) for each in wanted))


def run(version: str, name: str, log: Path) -> tuple[bool, str]:
    part = PARTS[name]
    build = prepare(version, log)
    if call("ninja", "-C", build, *targets_of(build, part.targets), log=log):
        return False, "does not build"
    if name == "demo":
        words = subprocess.run([build / "examples/train", "--compare", "--steps", "8", "--json", build / "demo.json"], cwd=ROOT,
                               capture_output=True, text=True)
        ratio = re.search(r"\b(\d\.\d+) x", words.stdout)
        log.open("a").write(words.stdout + words.stderr)
        return words.returncode == 0, ratio[1] if ratio else "failed"
    if not part.tests:
        return True, "yes"
    begin = log.stat().st_size
    labels = [] if part.slow else ["-LE", SLOW]
    passed = call("ctest", "--test-dir", build, "--no-tests=error", "-j", str(os.cpu_count()), "-R", part.tests, *labels, log=log) == 0
    text = log.read_text(errors="replace").encode()[begin:].decode(errors="replace")
    if not re.search(r"^\d+% tests passed", text, re.M):
        return False, "no tests ran"
    good, words = result_of(text)
    return good and passed, words


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("version", nargs="?", choices=VERSIONS)
    parser.add_argument("part", nargs="?", choices=PARTS)
    parser.add_argument("--list", action="store_true")
    asked = parser.parse_args()
    cells = [(v, p) for v in VERSIONS for p in PARTS if asked.version in (None, v) and asked.part in (None, p)]
    hash_now, all_good = full_run.tree_hash(ROOT), True
    for version, name in cells:
        rows = rows_of(PAGE.read_text())
        row = rows.get((version, name))
        counts = row is not None and row.hash == hash_now
        if asked.list:
            print(f"{version} {name}: {'not run' if row is None else row.result + ('' if counts else ', on another tree')}")
            continue
        if counts and "fail" not in row.result:
            continue
        log, since = ROOT / "build" / f"torch-{version}-{name}.log", time.monotonic()
        log.parent.mkdir(exist_ok=True)
        log.write_text("")
        good, result = run(version, name, log)
        all_good = all_good and good
        minutes = int((time.monotonic() - since + 59) / 60)
        print(f"torch_versions: {version} {name}: {result} ({minutes} min, {log})", flush=True)
        rows = rows_of(PAGE.read_text())  # another run may have written meanwhile
        rows[version, name] = Row(version, name, result, datetime.date.today().isoformat(), str(minutes), full_run.machine(), hash_now)
        PAGE.write_text(page_of(PAGE.read_text(), rows))
    return 0 if all_good else 1


if __name__ == "__main__":
    sys.exit(main())
