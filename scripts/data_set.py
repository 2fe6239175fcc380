#!/usr/bin/env python3
"""Makes the data set of docs/data-set.md again: which pages the operators of four trainings touch, a zip of CSV tables for each.

    scripts/data_set.py [--build build/release] [--out data-set] [--models resnet18,gpt,bert,recommender] [--keep FOLDER]

Each model trains a few steps in more memory than it needs; in one of them the pages are looked at after every operator. BERT's steps differ in length: it is
trained again with one more step before that one, until a step of each length was looked at. FOLDER keeps the recordings, and those that are there are not made again. At the end stands a line for each zip, as docs/data-set.md has them.
"""
import argparse
import csv
import io
import os
import pathlib
import sqlite3
import subprocess
import tempfile
import zipfile

# The batch, and how many steps show all kinds: BERT's differ in length.
TRAININGS = {"resnet18": (64, 4), "gpt": (8, 4), "bert": (8, 12), "recommender": (0, 6)}
TABLES = ("profiles", "tensors", "tensor_places", "layers", "ops", "operands", "page_accesses")
LARGEST = 1 << 20


def record(build, model, warmup, path):
    batch, steps = TRAININGS[model]
    with tempfile.TemporaryDirectory(dir=path.parent) as place:
        made = pathlib.Path(place) / path.name
        subprocess.run([build / "examples/train", "--model", model, "--batch", str(batch), "--steps", str(steps), "--warmup", str(warmup), "--fast-memory", "3GiB", "--slow", "host",
                        "--profile", "ops", "--record", made], check=True, capture_output=True)
        made.rename(path)


def kinds(recording):
    """A profile's number by what its step does: the names of its operators, and the sizes of its tensors, but for small ones, which a
    step that was not looked at leaves out. And the numbers of those whose pages were looked at."""
    with sqlite3.connect(f"file:{recording}?immutable=1", uri=True) as database:
        found = {tuple(database.execute("SELECT name FROM ops WHERE profile = ? ORDER BY op", (number,))) +
                 tuple(database.execute("SELECT bytes FROM tensors WHERE profile = ? AND bytes > 65536 ORDER BY bytes", (number,))): number
                 for number, in database.execute("SELECT profile FROM profiles")}
        tracked = {number for number, in database.execute("SELECT profile FROM profiles WHERE tracked = 1")}
    return found, tracked


def record_all_kinds(build, model, folder):
    """A list of (recording, profile): a step of each kind, with its pages."""
    chosen, wanted = {}, None
    for warmup in range(1, TRAININGS[model][1]):
        recording = folder / f"{model}-{warmup}.vedette"
        if not recording.exists():
            record(build, model, warmup, recording)
        found, tracked = kinds(recording)
        wanted = wanted or set(found)
        chosen.update({kind: (recording, number) for kind, number in found.items() if number in tracked and kind in wanted and kind not in chosen})
        if set(chosen) == wanted:
            return list(chosen.values())
    raise SystemExit(f"data_set: of {len(wanted)} kinds of {model}'s steps {len(chosen)} were looked at")


def pack(profiles, out):
    """The tables of profiles of recordings, numbered from 1, as one zip: the same bytes for the same tables."""
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as packed:
        for table in TABLES:
            text = io.StringIO()
            writer = csv.writer(text, lineterminator="\n")
            for new, (recording, number) in enumerate(profiles, 1):
                with sqlite3.connect(f"file:{recording}?immutable=1", uri=True) as database:
                    rows = database.execute(f"SELECT * FROM {table} WHERE profile = ?", (number,))
                    columns = [column[0] for column in rows.description]
                    if new == 1:
                        writer.writerow(columns)
                    place = columns.index("profile")
                    rows = [row[:place] + (new,) + row[place + 1:] for row in rows]
                writer.writerows(sorted(rows, key=lambda row: [(value is not None, value) for value in row]))
            packed.writestr(zipfile.ZipInfo(f"{table}.csv", (1980, 1, 1, 0, 0, 0)), text.getvalue(), zipfile.ZIP_DEFLATED, 9)
    if out.stat().st_size > LARGEST:
        raise SystemExit(f"data_set: {out} has {out.stat().st_size} bytes, more than {LARGEST}; take a smaller batch")


def facts(packed):
    """What a line of docs/data-set.md says: kinds of steps, operators, tensors, ranges and pages, from the zip alone."""
    with zipfile.ZipFile(packed) as archive:
        tables = {table: list(csv.DictReader(io.TextIOWrapper(archive.open(f"{table}.csv"), "utf-8"))) for table in TABLES}
    size = {(each["profile"], each["tensor"]): int(each["bytes"]) for each in tables["tensors"]}
    page = {each["profile"]: int(each["page_bytes"]) for each in tables["profiles"]}
    pages = 0
    for each in tables["page_accesses"]:
        first, end = int(each["first_page"]), int(each["end_page"])
        of_tensor = -(-size[each["profile"], each["tensor"]] // page[each["profile"]])
        if not first < end <= of_tensor:
            raise SystemExit(f"data_set: {packed}: an access to pages {first} to {end} of a tensor that has {of_tensor}")
        pages += end - first
    return {"kinds": len(tables["profiles"]), "operators": len(tables["ops"]), "tensors": len(size), "ranges": len(tables["page_accesses"]), "pages": pages,
            "bytes": os.path.getsize(packed), "tracked": sum(each["tracked"] == "1" for each in tables["profiles"])}


def line(model, found):
    numbers = " | ".join(f"{found[name]:,}" for name in ("kinds", "tracked", "operators", "tensors", "ranges", "pages"))
    return f"| [{model}](data-set/{model}.zip) | {numbers} | {found['bytes'] / 1024:.0f} KiB |"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, default=pathlib.Path(__file__).resolve().parents[1] / "build/release")
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("data-set"))
    parser.add_argument("--models", default=",".join(TRAININGS))
    parser.add_argument("--keep", type=pathlib.Path)
    args = parser.parse_args()
    unknown = set(args.models.split(",")) - set(TRAININGS)
    if unknown:
        raise SystemExit(f"data_set: there is no training '{unknown.pop()}'; there are {', '.join(TRAININGS)}")
    args.out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as place:
        keep = args.keep or pathlib.Path(place)
        keep.mkdir(parents=True, exist_ok=True)
        for model in args.models.split(","):
            packed = args.out / f"{model}.zip"
            pack(record_all_kinds(args.build, model, keep), packed)
            found = facts(packed)
            print(line(model, found), flush=True)


if __name__ == "__main__":
    main()
