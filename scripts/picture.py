#!/usr/bin/env python3
"""Draws the README's picture from a recording: one planned step, what lives, the budget, and what moves.

Usage: picture.py RUN.vedette OUT.svg [STEP]      needs matplotlib (pip install matplotlib)
"""
import sqlite3
import sys

import matplotlib

matplotlib.use("svg")
import matplotlib.pyplot as plt

MIB = 1 << 20
SHADES = {"forward": "#d8e8f4", "backward": "#f9e5cf", "optimizer": "#dfeedb"}


def live_bytes(db, profile, ops):
    """Bytes live during each op of the profiled step, its workspace included."""
    kinds = dict(db.execute("select tensor, persistent from tensors where profile = ?", (profile,)))
    sizes = dict(db.execute("select tensor, bytes from tensors where profile = ?", (profile,)))
    spans = {}
    for op, _, tensor in db.execute("select op, role, tensor from operands where profile = ? order by op", (profile,)):
        first, _ = spans.get(tensor, (op, op))
        spans[tensor] = (first, op)
    base = sum(size for tensor, size in sizes.items() if kinds[tensor])
    change = [0] * (len(ops) + 1)
    for tensor, (first, last) in spans.items():
        if not kinds[tensor]:
            change[first] += sizes[tensor]
            change[last + 1] -= sizes[tensor]
    result, now = [], base
    for op, (_, workspace) in enumerate(ops):
        now += change[op]
        result.append(now + workspace)
    return result


def main():
    if len(sys.argv) not in (3, 4):
        sys.exit(__doc__)
    db = sqlite3.connect(sys.argv[1])
    step = int(sys.argv[3]) if len(sys.argv) == 4 else db.execute("select max(step) - 1 from steps").fetchone()[0]
    profile = db.execute("select max(profile) from profiles").fetchone()[0]
    ops = db.execute("select phase, workspace_bytes from ops where profile = ? order by op", (profile,)).fetchall()
    times = db.execute("select op, began_ns, ended_ns from op_times where step = ? order by op", (step,)).fetchall()
    budget = db.execute("select capacity_bytes from tiers where tier = 0").fetchone()[0]
    start, end = times[0][1], times[-1][2]
    live = live_bytes(db, profile, ops)

    figure, (top, bottom) = plt.subplots(2, 1, figsize=(9, 5), sharex=True, height_ratios=(3, 2), layout="constrained")
    runs = []
    for op, began, ended in times:
        if runs and runs[-1][0] == ops[op][0]:
            runs[-1][2] = ended
        else:
            runs.append([ops[op][0], began, ended])
    named = set()
    for phase, began, ended in runs:
        label = phase if phase not in named else None
        named.add(phase)
        for axes in (top, bottom):
            axes.axvspan((began - start) / 1e6, (ended - start) / 1e6, color=SHADES[phase], lw=0, label=label if axes is top else None)
    top.plot([(began - start) / 1e6 for _, began, _ in times], [live[op] / MIB for op, _, _ in times], color="#1b3a57", label="live bytes", lw=1.3)
    top.axhline(budget / MIB, color="#b3261e", lw=1.6, label=f"budget, {budget / MIB:.0f} MiB")
    top.set_ylabel("MiB")
    top.set_ylim(bottom=0)
    top.legend(loc="lower center", ncols=5, frameon=False, fontsize=9)
    program = dict(db.execute("select key, value from meta")).get("program", "")
    top.set_title(f"One training step, {program}", loc="left", fontsize=11)

    width = max(1, (end - start) // 120)
    for verb, color, sign in (("fetch", "#2c7fb8", 1), ("evict", "#d95f0e", -1)):
        bins = [0] * 121
        for ended, size in db.execute("select ended_ns, bytes from moves where verb = ? and ended_ns between ? and ?", (verb, start, end)):
            bins[(ended - start) // width] += size
        bottom.bar([(i + 0.5) * width / 1e6 for i in range(121)], [sign * b / width for b in bins], width / 1e6, color=color,
                   label={"fetch": "fetched", "evict": "written out"}[verb])
    stalls = db.execute("select began_ns, ended_ns from stalls where step = ?", (step,)).fetchall()
    for i, (began, ended) in enumerate(stalls):
        bottom.axvspan((began - start) / 1e6, (ended - start) / 1e6, ymin=0.47, ymax=0.53, color="#b3261e", lw=0, label="stalled" if i == 0 else None)
    bottom.axhline(0, color="black", lw=0.6)
    bottom.set_ylabel("GB/s")
    bottom.set_xlabel("ms since the step began")
    bottom.set_xlim(0, (end - start) / 1e6)
    bottom.legend(loc="lower left", ncols=3, frameon=False, fontsize=9)
    figure.savefig(sys.argv[2])


if __name__ == "__main__":
    main()
