"""The type stubs, by mypy --strict and by pyright: what they say of a program, and of a wrong one."""

import importlib.util
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

here = pathlib.Path(__file__).resolve().parent
package = here.parent  # of sources: the compiled part has a stub, too
program = here / "typed_program.py"
wrong = [number for number, line in enumerate(program.read_text().splitlines(), 1) if line.endswith("# wrong")]


def checker(name):
    """The words that start it: of this Python, or of the PATH. Else the test is skipped."""
    if importlib.util.find_spec(name) is not None:
        return [sys.executable, "-m", name]
    if shutil.which(name):
        return [name]
    raise unittest.SkipTest(f"{name} is not installed" + (": scripts/setup.sh --tests installs it" if name == "mypy" else ""))


class Types(unittest.TestCase):
    def check(self, words, environment=None):
        with tempfile.TemporaryDirectory() as folder:  # with no settings of the tree's
            return subprocess.run([*words], cwd=folder, capture_output=True, text=True, env={**os.environ, **(environment or {})})

    def test_mypy(self):
        cache = pathlib.Path(os.environ["PYTHONPATH"].split(os.pathsep)[0]) / "mypy_cache"
        words = [*checker("mypy"), "--strict", "--python-executable", sys.executable, "--cache-dir", str(cache), "--no-error-summary"]
        done = self.check([*words, str(program), str(package / "vedette/__init__.pyi")], {"MYPYPATH": str(package)})
        errors = re.findall(r"^(\S+?):(\d+): error: (.*)$", done.stdout, re.M)
        self.assertEqual([(pathlib.Path(file).name, int(line)) for file, line, _ in errors], [(program.name, line) for line in wrong],
                         done.stdout + done.stderr)

    def test_pyright(self):
        words = checker("pyright")
        with tempfile.TemporaryDirectory() as folder:
            settings = pathlib.Path(folder) / "pyrightconfig.json"  # whose files lie beside it
            # strict, but for torch's own functions that lack types
            settings.write_text(json.dumps({"extraPaths": [str(package)], "typeCheckingMode": "strict",
                                            "reportUnknownMemberType": False, "reportUnknownArgumentType": False}))
            shutil.copy(program, folder)
            done = self.check([*words, "--pythonpath", sys.executable, "--project", str(settings), "--outputjson"])
        found = json.loads(done.stdout)
        self.assertEqual(found["summary"]["filesAnalyzed"], 1, done.stdout)
        errors = [each for each in found["generalDiagnostics"] if each["severity"] == "error"]
        lines = sorted({each["range"]["start"]["line"] + 1 for each in errors})
        self.assertEqual(lines, wrong, "\n".join(each["message"] for each in errors))


if __name__ == "__main__":
    unittest.main()
