"""Which rows of docs/full-run.md count: those of the tree as it is, docs left out."""
import contextlib
import importlib.util
import io
import pathlib
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
SPEC = importlib.util.spec_from_file_location("full_run", ROOT / "scripts/full_run.py")
full_run = importlib.util.module_from_spec(SPEC)
sys.modules["full_run"] = full_run  # where dataclass looks for it
SPEC.loader.exec_module(full_run)


class FullRun(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)
        (self.root / "docs").mkdir()
        for name in ("a.cc", "README.md", "docs/tools.md"):
            (self.root / name).write_text("before")
        for command in (["init", "-q"], ["add", "."]):
            subprocess.run(["git", *command], cwd=self.root, check=True)

    def said(self, *arguments):
        sys.argv, out = ["full_run.py", *arguments], io.StringIO()
        with contextlib.redirect_stdout(out):
            status = full_run.main(self.root)
        return status, out.getvalue()

    def test_a_part_that_passed_counts_until_a_source_changes(self):
        self.said("--passed", "2", "--minutes", "41")
        (self.root / "docs/tools.md").write_text("after")
        (self.root / "README.md").write_text("after")
        status, said = self.said()
        self.assertEqual(status, 1)
        self.assertRegex(said, r"part 2 counts: .* in 41 min\n")
        self.assertIn(f"1 of {len(full_run.PARTS)} parts count", said)
        (self.root / "a.cc").write_text("after")
        self.assertRegex(self.said()[1], r"part 2 does not count: .* in 41 min, on another tree\n")

    def test_all_parts_count_only_together(self):
        for part in full_run.PARTS:
            self.assertEqual(self.said()[0], 1)
            self.said("--passed", str(part))
        self.assertEqual(self.said()[0], 0)

    def test_a_part_that_passes_again_replaces_its_row(self):
        self.said("--passed", "1", "--minutes", "30")
        (self.root / "a.cc").unlink()
        self.said("--passed", "1", "--minutes", "20")
        self.assertRegex(self.said()[1], r"part 1 counts: .* in 20 min\n")
        self.assertEqual((self.root / "docs/full-run.md").read_text().count("| 1 |"), 1)


if __name__ == "__main__":
    unittest.main()
