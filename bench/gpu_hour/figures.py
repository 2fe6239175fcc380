#!/usr/bin/env python3
"""Prints the figures of docs/gpu-facts.md from the JSON of one call or several: figures.py FILE...

One line for each row of the files, grouped by point and name: the setting, then median (p10 to p90, n) and unit, the fact, or why it was
refused. What the decisions need is computed first: rates alone and together, and remaps against copies.
"""
import json
import sys


def rows_of(paths):
    for path in paths:
        document = json.load(open(path))
        if document["quick"]:
            print(f"{path}: quick, nothing in it is a measurement", file=sys.stderr)
        for row in document["rows"]:
            yield row


def text_of(row):
    if "refused" in row:
        return "refused: " + row["refused"]
    if "value" in row:
        return json.dumps(row["value"])
    return f'{row["median"]:.4g} ({row["p10"]:.4g} to {row["p90"]:.4g}, n {row["n"]}) {row["unit"]}'


def medians(rows, name, quantity):
    """The medians of a quantity by setting, as sorted tuples of its items."""
    return {tuple(sorted(row["setting"].items())): row["median"] for row in rows
            if row["name"] == name and row["quantity"] == quantity and "median" in row}


def copies_together(rows):
    rate = medians(rows, "copy", "rate")
    for setting, both in rate.items():
        items = dict(setting)
        if items["direction"] != "both":
            continue
        alone = [rate.get(tuple(sorted({**items, "direction": way}.items()))) for way in ("in", "out")]
        if None not in alone:
            print(f'{items["kib"]} KiB, {items["how"]}, {items["device"]}: in {alone[0]:.3g}, out {alone[1]:.3g}, '
                  f'both {both:.3g} GB/s, {both / sum(alone):.3f} of their sum')


def remaps_against_copies(rows):
    copy = {dict(s)["kib"]: rate for s, rate in medians(rows, "copy", "rate").items()
            if dict(s)["direction"] == "in" and dict(s)["how"] == "single" and dict(s)["device"] == "idle"}
    parts = {name: medians(rows, "chunk", name) for name in ("unmap", "map", "set_access")}
    for setting in parts["map"]:
        if all(setting in each for each in parts.values()):
            items, us = dict(setting), sum(each[setting] for each in parts.values())
            rate = copy.get(items["chunk_mib"] << 10)
            share = f', {us / ((items["chunk_mib"] << 20) / rate * 1e-3):.3f} of its copy' if rate else ""
            print(f'{items["chunk_mib"]} MiB, calls for {items["calls_for"]}, {items["device"]}: exchange {us:.3g} us{share}')


def main():
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    rows = list(rows_of(sys.argv[1:]))
    copies_together(rows)
    remaps_against_copies(rows)
    heading = None
    for row in sorted(rows, key=lambda each: each["point"]):  # stable: as measured within a point
        if heading != (row["point"], row["name"]):
            heading = (row["point"], row["name"])
            print(f"\npoint {heading[0]}, {heading[1]}")
        setting = ", ".join(f"{key} {value}" for key, value in row["setting"].items())
        print(f'  {setting}: {row["quantity"]} {text_of(row)}')


if __name__ == "__main__":
    main()
