"""Lists a program's cases for ctest: discover.py PROGRAM TABLE FOLDER OUT [EMULATOR].

A program has the cases of several files. GoogleTest tells the file of each; TABLE has a line for a file, with tabs
between: its path in tests/ without ending, its labels, a pattern of slow cases, the seconds after which ctest ends one,
the threads that libtorch has (0: it is not there), patterns of cases with two threads and of those that run alone, and
what it locks, and more of its environment. A case is one entry of ctest, called PATH.Suite.Case, and runs in FOLDER as
a process of its own. EMULATOR runs a program for another processor.
"""

import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path

ALONE = 64  # processors: more than ctest is ever given, so that nothing runs beside it
EMULATED = 20  # times as long, at most
NO_CASE = "(?!)"

program, table, folder, out, *emulator = sys.argv[1:]
files = {}
for line in Path(table).read_text().splitlines():
    path, labels, slow, timeout, threads, two, alone, lock, more = line.split("\t")
    patterns = [re.compile(each or NO_CASE) for each in (slow, two, alone)]
    files[path] = (labels.split(";"), *patterns, timeout, int(threads), lock, more)

with tempfile.TemporaryDirectory() as scratch:
    listed = Path(scratch) / "cases.json"
    ended = subprocess.run([*emulator, program, "--gtest_list_tests", f"--gtest_output=json:{listed}"], text=True,
                           capture_output=True, errors="replace", timeout=300, cwd=folder)
    if ended.returncode != 0 or not listed.exists():
        sys.exit(f"{program} does not list its cases:\n{ended.stdout}{ended.stderr}")
    suites = json.loads(listed.read_text())["testsuites"]

lines, seen = [], {}
for suite in suites:
    for case in suite["testsuite"]:
        path = re.sub(r".*?\btests/((?:\w+/)+\w+)\.cc$", r"\1", case["file"])
        if path not in files and len(files) == 1:  # a pattern of a header, that this file has parameters for
            [path] = files
        if path not in files:
            sys.exit(f"{program}: {suite['name']}.{case['name']} stands in {case['file']}, which is no test's file")
        name = f"{suite['name']}.{case['name']}"
        if name in seen:
            sys.exit(f"{program}: {name} stands in {seen[name]} and in {path}: one of them needs another name")
        seen[name] = path
        labels, slow, two, alone, timeout, threads, lock, more = files[path]
        if slow.search(f"{path}.{name}"):
            labels = [*labels, "slow"]
        if threads > 0 and two.search(f"{path}.{name}"):
            threads = 2
        timeout = int(timeout) * (EMULATED if emulator else 1)
        processors = ALONE if alone.search(f"{path}.{name}") else max(threads, 1)
        environment = (f";OMP_NUM_THREADS={threads}" if threads > 0 else "") + more
        lines.append(f"add_test([==[{path}.{name}]==] {' '.join([*emulator, program])} [==[--gtest_filter={name}]==])\n"
                     f"set_tests_properties([==[{path}.{name}]==] PROPERTIES LABELS [==[{';'.join(labels)}]==] "
                     f"TIMEOUT {timeout} PROCESSORS {processors} WORKING_DIRECTORY [==[{folder}]==] "
                     f"ENVIRONMENT [==[VEDETTE_TEST_TIMEOUT={timeout}{environment}]==]"
                     + (f" RESOURCE_LOCK {lock}" if lock else "")
                     + f" SKIP_REGULAR_EXPRESSION [==[\\[  SKIPPED \\]]==])\n")
Path(out).write_text("".join(lines))
