"""What is told of tests that stand still: their processes, and where each thread waits."""
import pathlib
import subprocess
import sys
import tempfile
import time
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]


class Standstill(unittest.TestCase):
    def told_of(self, script, seconds):
        """What is told while a shell runs a script, $LOG its log; the shell is then ended."""
        with tempfile.TemporaryDirectory() as folder:
            log = pathlib.Path(folder) / "log"
            log.touch()
            command = f"{sys.executable} {ROOT}/scripts/standstill.py {log} 1 & LOG={log}; {script}"
            with subprocess.Popen(["sh", "-c", command], stdout=subprocess.PIPE, text=True,
                                  start_new_session=True) as shell:
                time.sleep(seconds)
                subprocess.run(["kill", "--", f"-{shell.pid}"], check=True)
                return shell.stdout.read()

    def test_a_process_that_only_waits_is_told_with_its_threads(self):
        told = self.told_of("sleep 61 & wait", 5)
        self.assertIn("standstill: no test has begun or ended for 1 s", told)
        self.assertRegex(told, r"process \d+, S, \d+ s old: sleep 61\n    thread \d+ sleep, S, \S")
        self.assertNotIn("standstill.py", told)

    def test_nothing_is_told_while_tests_end(self):
        self.assertEqual(self.told_of("while sleep 0.2; do echo ended >> $LOG; done", 4), "")


if __name__ == "__main__":
    unittest.main()
