"""Tests that are processes on the simulated GPU of src/simulated_gpu. A file of them ends with

    if __name__ == "__main__":
        on_simulated_gpu.run_each(globals())
"""

import importlib
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest


class Processes(unittest.TestCase):
    """Each of `functions`, which stand in the test's own file, is a process, forked by one that has imported torch for all of them."""

    functions = ()
    imports = ("torch", "vedette")  # no child inherits more than what an import leaves
    environment = {}
    timeout = 550

    @classmethod
    def setUpClass(cls):
        tree = pathlib.Path(__file__).resolve().parents[2]
        build = pathlib.Path(os.environ["PYTHONPATH"].split(os.pathsep)[0]).parent
        if not (build / "src/simulated_gpu/lib/preload").exists():
            raise unittest.SkipTest("the simulated GPU of libtorch's device is not built: CUDA's headers are missing")
        environment = {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}
        environment |= {"VEDETTE_BUILD": str(build), "OMP_WAIT_POLICY": "passive"} | cls.environment
        place = cls.enterClassContext(tempfile.TemporaryDirectory())
        names = [what.__name__ for what in cls.functions]
        file = sys.modules[cls.__module__].__file__
        done = subprocess.run([tree / "scripts/with_simulated_gpu", sys.executable, file, place, ",".join(cls.imports), *names],
                              env=environment, capture_output=True, text=True, timeout=cls.timeout)
        if done.returncode != 0:
            raise AssertionError((done.stdout + done.stderr)[-3000:])
        cls.told = {name: pathlib.Path(place, name).read_text() for name in names}

    def run_there(self, what):
        told = self.told[what.__name__]
        self.assertNotIn("Exception in RecordFunction callback", told)
        print(told)
        self.assertIn("the same bits\n", told)
        self.assertTrue(told.endswith("status 0\n"), told[-3000:])


def run_each(functions):
    """Each in a child, whose output and status are a file of its name."""
    place, imports, *names = sys.argv[1:]
    for name in imports.split(","):
        importlib.import_module(name)
    for name in names:
        child = os.fork()
        if child == 0:
            with open(os.path.join(place, name), "w") as output:
                os.dup2(output.fileno(), 1)
                os.dup2(output.fileno(), 2)
            functions[name]()
            print("the same bits", flush=True)
            sys.exit(0)
        _, status, used = os.wait4(child, 0)
        with open(os.path.join(place, name), "a") as output:
            output.write(f"{used.ru_utime + used.ru_stime:.1f} s of a processor\nstatus {os.waitstatus_to_exitcode(status)}\n")
