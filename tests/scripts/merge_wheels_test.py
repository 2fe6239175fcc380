"""One wheel of several: what it holds, what it asks for, and what pip checks."""
import base64
import hashlib
import importlib.util
import pathlib
import tempfile
import unittest
import zipfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
SPEC = importlib.util.spec_from_file_location("merge_wheels", ROOT / "scripts/merge_wheels.py")
merge_wheels = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(merge_wheels)


def wheel(folder, minor, more=""):
    path = folder / str(minor) / "vedette-0.1.0-cp311-cp311-linux_x86_64.whl"
    path.parent.mkdir()
    with zipfile.ZipFile(path, "w") as made:
        made.writestr("vedette/__init__.py", "first" + more)
        made.writestr(f"vedette/for_torch_2_{minor}/_core.so", f"for 2.{minor}")
        made.writestr("vedette-0.1.0.dist-info/METADATA", "Name: vedette\nRequires-Dist: torch<2.16,>=2.11\nRequires-Python: >=3.10\n")
        made.writestr("vedette-0.1.0.dist-info/RECORD", "old")
    return path


class MergedWheels(unittest.TestCase):
    def test_have_each_module_and_the_rest_once_with_right_hashes(self):
        with tempfile.TemporaryDirectory() as place:
            folder = pathlib.Path(place)
            merged = merge_wheels.merge(folder, [wheel(folder, 15), wheel(folder, 11, "of another"), wheel(folder, 13)])
            with zipfile.ZipFile(merged) as opened:
                self.assertIsNone(opened.testzip())
                files = {name: opened.read(name) for name in opened.namelist()}
        self.assertEqual(files["vedette/__init__.py"], b"first")
        for minor in (11, 13, 15):
            self.assertEqual(files[f"vedette/for_torch_2_{minor}/_core.so"], f"for 2.{minor}".encode())
        self.assertIn(b"\nRequires-Dist: torch>=2.11,<2.16,!=2.12.*,!=2.14.*\nRequires-Python", files["vedette-0.1.0.dist-info/METADATA"])
        lines = dict(line.split(",", 1) for line in files["vedette-0.1.0.dist-info/RECORD"].decode().splitlines())
        self.assertEqual(set(lines), set(files))
        content = files["vedette/for_torch_2_13/_core.so"]
        digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
        self.assertEqual(lines["vedette/for_torch_2_13/_core.so"], f"sha256={digest},{len(content)}")

    def test_of_one_version_ask_for_it_alone(self):
        self.assertEqual(merge_wheels.requirement([(2, 15)]), "torch>=2.15,<2.16")
        self.assertEqual(merge_wheels.requirement([(2, 11), (2, 12)]), "torch>=2.11,<2.13")


if __name__ == "__main__":
    unittest.main()
