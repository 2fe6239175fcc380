"""What is told of tests that stand still: their processes, and where each thread waits."""
import pathlib
import re
import subprocess
import sys
import tempfile
import time
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]


class Standstill(unittest.TestCase):
    def told_of(self, script, after, until):
        """What is told while a shell runs a script, $LOG its log, where nothing happens for `after` seconds. The shell is
        ended when `until` is true of that."""
        with tempfile.TemporaryDirectory() as folder:
            log, told = pathlib.Path(folder) / "log", pathlib.Path(folder) / "told"
            log.touch()
            command = f"{sys.executable} {ROOT}/scripts/standstill.py {log} {after} & LOG={log}; {script}"
            with told.open("w") as file, subprocess.Popen(["sh", "-c", command], stdout=file,
                                                          start_new_session=True) as shell:
                began = time.monotonic()
                while not until(told.read_text(), time.monotonic() - began):
                    time.sleep(0.1)
                subprocess.run(["kill", "--", f"-{shell.pid}"], check=True)
                return told.read_text()

    def test_a_process_that_only_waits_is_told_with_its_threads(self):
        waits = r"process \d+, S, \d+ s old: sleep 61\n    thread \d+ sleep, S, \S"
        told = self.told_of("sleep 61 & wait", 1, lambda text, seconds: re.search(waits, text) or seconds > 50)
        self.assertIn("standstill: no test has begun or ended for 1 s", told)
        self.assertRegex(told, waits)
        self.assertNotIn("standstill.py", told)

    def test_nothing_is_told_while_tests_end(self):
        ended = self.told_of("while sleep 0.05; do echo ended >> $LOG; done", 2, lambda _, seconds: seconds > 3)
        self.assertEqual(ended, "")


if __name__ == "__main__":
    unittest.main()
