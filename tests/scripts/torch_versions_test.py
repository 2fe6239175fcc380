"""The table of libtorch's versions: cells that were not run say so, and a row counts while the tree is as it was."""
import importlib.util
import pathlib
import sys
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts"))
SPEC = importlib.util.spec_from_file_location("torch_versions", ROOT / "scripts/torch_versions.py")
torch_versions = importlib.util.module_from_spec(SPEC)
sys.modules["torch_versions"] = torch_versions  # where dataclass looks for it
SPEC.loader.exec_module(torch_versions)
PAGE = "words\n<!-- table -->\n<!-- end of table -->\nmore\n<!-- runs -->\n<!-- end of runs -->\n"


class TorchVersions(unittest.TestCase):
    def test_a_table_has_a_cell_for_each_part_and_version(self):
        page = torch_versions.page_of(PAGE, {})
        self.assertEqual(page.count("not run"), len(torch_versions.VERSIONS) * len(torch_versions.PARTS))
        row = torch_versions.Row("2.13.0", "gpu", "24, 1 failed", "2026-01-01", "9", "a machine", "0123")
        page = torch_versions.page_of(page, {("2.13.0", "gpu"): row})
        self.assertIn("| 2.13.0 | not run | not run | 24, 1 failed | not run |", page)
        self.assertEqual(torch_versions.rows_of(page), {("2.13.0", "gpu"): row})
        self.assertTrue(page.startswith("words\n") and "\nmore\n" in page)

    def test_a_cell_says_what_ctest_said(self):
        self.assertEqual(torch_versions.result_of("100% tests passed, 0 tests failed out of 24\n"), (True, "24"))
        said = ("96% tests passed, 1 tests failed out of 24\n\nThe following tests did not run:\n\t  3 - a/b.C.D (Skipped)\n\n"
                "The following tests FAILED:\n\t  7 - e/f.G.H (Failed)\n")
        self.assertEqual(torch_versions.result_of(said), (False, "22, 1 failed, 1 could not run"))


if __name__ == "__main__":
    unittest.main()
