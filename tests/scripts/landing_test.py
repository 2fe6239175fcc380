"""The pictures of a landing page that are drawn from bench/results: they are SVG, and say what the rows say."""
import json
import pathlib
import subprocess
import sys
import tempfile
import unittest
import xml.etree.ElementTree

ROOT = pathlib.Path(__file__).resolve().parents[2]
SVG = "{http://www.w3.org/2000/svg}"


def drawn(what):
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "picture.svg"
        subprocess.run([sys.executable, ROOT / "scripts/landing.py", what, path], check=True, stdout=subprocess.DEVNULL)
        return xml.etree.ElementTree.parse(path).getroot()


def texts(picture):
    return [text.text for text in picture.iter(SVG + "text")]


class Landing(unittest.TestCase):
    def test_the_idea_follows_its_readers_theme(self):
        picture = drawn("idea")
        self.assertIn("fast memory", texts(picture))
        self.assertIn("prefers-color-scheme: dark", picture.find(SVG + "style").text)

    def test_speed_has_both_kinds_of_guarded_steps_and_the_kernels_swap(self):
        picture = drawn("speed")
        self.assertEqual(len(list(picture.iter(SVG + "polyline"))), 2)
        self.assertIn("kernel swap, process of 400 MiB", texts(picture))

    def test_policies_have_a_line_each_and_names_apart(self):
        picture = drawn("policies")
        rows = json.loads((ROOT / "bench/results/policies.json").read_text())["tables"][0]["rows"]
        policies = {row[0] for row in rows if row[2] is not None}
        self.assertLessEqual(policies, set(texts(picture)))
        self.assertEqual({row[3] for row in rows}, {100.0}, "the picture says that the bound is 100 % everywhere")
        self.assertEqual(len(list(picture.iter(SVG + "polyline"))), len(policies))
        heights = sorted(float(text.get("y")) for text in picture.iter(SVG + "text") if text.text in policies)
        self.assertGreaterEqual(min(b - a for a, b in zip(heights, heights[1:])), 13)
        for line in picture.iter(SVG + "polyline"):
            points = [tuple(map(float, point.split(","))) for point in line.get("points").split()]
            self.assertEqual(points, sorted(points), "memory falls from left to right")


if __name__ == "__main__":
    unittest.main()
