"""Runs one file of tests with the package that lies in a folder: run.py FOLDER FILE [TEST...], with unittest's names for tests.

Where torch's CUDA libraries are not installed, stand-ins take their places (scripts/export_torchscript.py). Exit status 0: passed,
77: nothing could run here, with the reason in GoogleTest's words, which scripts/skipped_tests.py reads.
"""

import os
import pathlib
import sys
import time
import unittest

here = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(here.parents[1] / "scripts"))
import export_torchscript  # noqa: E402  the libraries that stand in for CUDA's

skipped_status = 77


class Timed(unittest.TextTestResult):
    """Says of each test how long it took."""

    def startTest(self, test):
        self.began = time.monotonic()
        super().startTest(test)

    def stopTest(self, test):
        self.stream.writeln(f"    {time.monotonic() - self.began:.1f} s: {test.id()}")
        super().stopTest(test)


def main():
    package, file, *names = sys.argv[1:]
    # Children that are spawned find package and helpers by the environment.
    os.environ["PYTHONPATH"] = os.pathsep.join([str(pathlib.Path(package).resolve()), str(here)])
    os.environ["PYTHONDONTWRITEBYTECODE"] = "1"
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")  # threads of a busy machine that spin take seconds for nothing
    export_torchscript.start_again_with_stand_ins()
    sys.path[0:1] = os.environ["PYTHONPATH"].split(os.pathsep)
    sys.dont_write_bytecode = True
    module = __import__(pathlib.Path(file).stem)
    sys.modules["__main__"].__spec__ = None  # spawned workers do not run this file
    loader = unittest.defaultTestLoader
    tests = loader.loadTestsFromNames(names, module) if names else loader.loadTestsFromModule(module)
    result = unittest.TextTestRunner(stream=sys.stdout, verbosity=2, resultclass=Timed).run(tests)
    if not result.wasSuccessful():
        sys.exit(1)
    if result.testsRun == 0 or len(result.skipped) == result.testsRun:
        for _, why in result.skipped[:1]:
            print(f"{file}:1: Skipped\n{why}\n[  SKIPPED ] {file}")
        sys.exit(skipped_status)


if __name__ == "__main__":
    main()
