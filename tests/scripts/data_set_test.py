"""The data set's zips: every table of a recording, the same bytes for the same rows, and no access beyond its tensor."""
import csv
import importlib.util
import io
import pathlib
import re
import sqlite3
import subprocess
import sys
import tempfile
import unittest
import zipfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
spec = importlib.util.spec_from_file_location("data_set", ROOT / "scripts/data_set.py")
data_set = importlib.util.module_from_spec(spec)
spec.loader.exec_module(data_set)


def recording(path, accesses):
    """One op that reads a tensor of three pages."""
    schema = re.search(r'R"\((.*?)\)"', (ROOT / "profiler/schema.cc").read_text(), re.DOTALL)[1]
    rows = {"profiles": [(1, 2, "1", "step", "vedette", "cpu", 4096, 1)], "tensors": [(1, 0, 'a "quoted", name', 9000, "weight", 1, None, None, None)],
            "ops": [(1, 0, "mm", None, "forward", 5, 0)], "operands": [(1, 0, "read", 0)], "page_accesses": accesses}
    with sqlite3.connect(path) as database:
        database.executescript(schema)
        for table, values in rows.items():
            for row in values:
                database.execute(f"INSERT INTO {table} VALUES ({','.join('?' * len(row))})", row)
    database.close()
    return path


class DataSet(unittest.TestCase):
    def setUp(self):
        self.place = tempfile.TemporaryDirectory()
        self.folder = pathlib.Path(self.place.name)

    def tearDown(self):
        self.place.cleanup()

    def packed(self, name, accesses):
        out = self.folder / f"{name}.zip"
        data_set.pack([(recording(self.folder / f"{name}.vedette", accesses), 1)], out)
        return out

    def test_a_zip_has_every_table_and_is_the_same_whatever_order_rows_had(self):
        accesses = [(1, 0, 0, 0, 1, 1, 0, None), (1, 0, 0, 2, 3, 1, 0, None)]
        one, other = self.packed("one", accesses), self.packed("other", accesses[::-1])
        self.assertEqual(one.read_bytes(), other.read_bytes())
        with zipfile.ZipFile(one) as archive:
            self.assertEqual(sorted(archive.namelist()), sorted(f"{table}.csv" for table in data_set.TABLES))
            tensors = list(csv.DictReader(io.StringIO(archive.read("tensors.csv").decode())))
        self.assertEqual(tensors[0]["name"], 'a "quoted", name')
        facts = data_set.facts(one)
        self.assertEqual((facts["kinds"], facts["operators"], facts["ranges"], facts["pages"]), (1, 1, 2, 2))

    def test_steps_of_several_recordings_are_numbered_as_one(self):
        profiles = [(recording(self.folder / f"{name}.vedette", [(1, 0, 0, page, page + 1, 1, 0, None)]), 1) for page, name in enumerate("abc")]
        out = self.folder / "all.zip"
        data_set.pack(profiles, out)
        with zipfile.ZipFile(out) as archive:
            rows = list(csv.DictReader(io.StringIO(archive.read("page_accesses.csv").decode())))
        self.assertEqual([(row["profile"], row["first_page"]) for row in rows], [("1", "0"), ("2", "1"), ("3", "2")])
        self.assertEqual((data_set.facts(out)["kinds"], data_set.facts(out)["tracked"]), (3, 3))

    def test_an_access_beyond_its_tensor_is_refused(self):
        with self.assertRaisesRegex(SystemExit, "an access to pages 2 to 4 of a tensor that has 3"):
            data_set.facts(self.packed("beyond", [(1, 0, 0, 2, 4, 1, 0, None)]))

    def test_the_page_shows_what_the_published_zips_hold(self):
        page = (ROOT / "docs/data-set.md").read_text()
        for packed in sorted((ROOT / "docs/data-set").glob("*.zip")):
            found = data_set.facts(packed)
            self.assertGreater(found["tracked"], 0, packed)
            self.assertLess(packed.stat().st_size, data_set.LARGEST)
            self.assertIn(data_set.line(packed.stem, found), page)
        self.assertEqual({packed.stem for packed in (ROOT / "docs/data-set").glob("*.zip")}, set(data_set.TRAININGS))

    def test_the_pages_program_counts_what_the_page_says(self):
        page = (ROOT / "docs/data-set.md").read_text()
        program = re.search(r"```python\n(.*?)```", page, re.DOTALL)[1]
        done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
        self.assertIn(f"it prints `{done.stdout.strip()}`", page)


if __name__ == "__main__":
    sys.exit(unittest.main())
