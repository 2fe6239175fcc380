"""VEDETTE_OFF=1 makes each model of `train` the plain program: its losses, parameters and optimizer, and the threads, files and
descriptors of the plain run, by what strace sees."""

import collections
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

train, models = sys.argv[1], sys.argv[2:]
watched = "clone,clone3,open,openat,creat,userfaultfd,memfd_create,perf_event_open,socket,inotify_init1"


def run(model, folder, guarded):
    table, calls = folder / "table.json", folder / "calls"
    words = ["--model", model, "--small", "--steps", "3", "--threads", "2", "--state", "--made-up-data", "--json", table]
    words += ["--fast-memory", "8MiB", "--chunk", "64KiB", "--slow", f"nvme:{folder}"] if guarded else ["--plain"]
    environment = {**os.environ, **({"VEDETTE_OFF": "1"} if guarded else {})}
    command = ["strace", "-f", "-qq", "-e", f"trace={watched}", "-o", calls, train, *words]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    seen = collections.Counter()
    for call in re.findall(r"^\d+ +(\w+\(.*)", calls.read_text(), re.M):
        path = re.match(r'(?:open|openat|creat)\((?:AT_FDCWD, )?"([^"]*)"', call)
        if call.startswith("clone"):
            seen["threads"] += "CLONE_THREAD" in call
        else:
            seen[re.sub(r"\d+", "N", path[1]) if path else call.split("(")[0]] = 1
    return json.loads(table.read_text()), seen


class SwitchedOff(unittest.TestCase):
    def test_each_model_is_the_plain_program(self):
        for model in models:
            with self.subTest(model), tempfile.TemporaryDirectory() as folder:
                plain, of_plain = run(model, pathlib.Path(folder), False)
                off, of_off = run(model, pathlib.Path(folder), True)
                self.assertEqual(off["losses"], plain["losses"])
                self.assertEqual(off["state"], plain["state"])
                self.assertGreater(of_plain["threads"], 0)
                self.assertEqual(of_off, of_plain)


if __name__ == "__main__":
    if subprocess.run(["strace", "-o", "/dev/null", "true"], stderr=subprocess.DEVNULL).returncode != 0:
        sys.exit("strace cannot trace a program here")
    unittest.main(argv=sys.argv[:1])
