#!/usr/bin/env python3
"""Draws the README's picture from a recording: one planned step, what lives, the budget, and what moves.

Usage: picture.py RUN.vedette OUT.svg [STEP]

The picture follows its reader's theme, light or dark, where it is shown as an image, too.
"""
import html
import math
import sqlite3
import sys

MIB = 1 << 20


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


class Drawing:
    """Two charts below each other on one clock, in the colours of the reader's theme: SVG that needs nothing else."""

    WIDTH, LEFT, RIGHT = 900, 62, 12
    STYLE = """
svg { --ink: #16202b; --soft: #55616f; --line: #dde2e8; --live: #1b3a57; --budget: #b3261e; --in: #2c7fb8; --out: #d95f0e; --forward: #d8e8f4; --backward: #f9e5cf; --optimizer: #dfeedb; }
@media (prefers-color-scheme: dark) { svg { --ink: #e6ebf0; --soft: #9aa7b4; --line: #2a343f; --live: #8cc7ff; --budget: #ff7a66; --in: #56b4e9; --out: #f0a03c; --forward: #13293a; --backward: #3a2a14; --optimizer: #173425; } }
text { font: 12px system-ui, sans-serif; fill: var(--ink); } .soft { fill: var(--soft); } .title { font-size: 14px; font-weight: 600; } .grid { stroke: var(--line); }
"""

    def __init__(self, length, title):
        self.length, self.parts = length, [f'<text class="title" x="{self.LEFT}" y="20">{html.escape(title)}</text>']

    def x(self, ns):
        return self.LEFT + (self.WIDTH - self.LEFT - self.RIGHT) * ns / self.length

    def rect(self, begin, end, top, bottom, colour):
        self.parts.append(f'<rect x="{self.x(begin):.1f}" y="{top:.1f}" width="{max(0.5, self.x(end) - self.x(begin)):.1f}" height="{max(0.0, bottom - top):.1f}" style="fill:var(--{colour})"/>')

    def axis(self, top, bottom, low, high, unit):
        """Lines at round numbers; gives the place of a number."""
        def y(number):
            return bottom - (bottom - top) * (number - low) / (high - low)
        step = next(d * 10 ** e for e in range(-3, 9) for d in (1, 2, 5) if (high - low) / (d * 10 ** e) <= 5)
        at = math.ceil(low / step) * step
        while at <= high + 1e-9:
            self.parts.append(f'<line class="grid" x1="{self.LEFT}" x2="{self.WIDTH - self.RIGHT}" y1="{y(at):.1f}" y2="{y(at):.1f}"/><text class="soft" text-anchor="end" x="{self.LEFT - 6}" y="{y(at) + 4:.1f}">{at:g}</text>')
            at += step
        self.parts.append(f'<text class="soft" transform="translate(14 {(top + bottom) / 2:.0f}) rotate(-90)" text-anchor="middle">{unit}</text>')
        return y

    def legend(self, y, entries):
        x = self.LEFT
        for colour, words in entries:
            self.parts.append(f'<rect x="{x}" y="{y - 9}" width="11" height="11" style="fill:var(--{colour})"/><text x="{x + 16}" y="{y + 1}">{words}</text>')
            x += 30 + 7 * len(words)

    def write(self, path, height):
        with open(path, "w") as file:
            file.write(f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {self.WIDTH} {height}"><style>{self.STYLE}</style>\n' + "\n".join(self.parts) + "\n</svg>\n")


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
    program = dict(db.execute("select key, value from meta")).get("program", "")
    drawing = Drawing(end - start, f"One training step, {program}")

    runs = []
    for op, began, ended in times:
        if runs and runs[-1][0] == ops[op][0]:
            runs[-1][2] = ended
        else:
            runs.append([ops[op][0], began, ended])
    for phase, began, ended in runs:
        for top, bottom in ((34, 254), (284, 424)):
            drawing.rect(began - start, ended - start, top, bottom, phase)
    y = drawing.axis(34, 254, 0, max(max(live), budget) * 1.06 / MIB, "MiB")
    points = " ".join(f"{drawing.x(began - start):.1f},{y(live[op] / MIB):.1f}" for op, began, _ in times)
    drawing.parts.append(f'<polyline points="{points}" style="fill:none;stroke:var(--live);stroke-width:1.6"/>')
    drawing.parts.append(f'<line x1="{drawing.LEFT}" x2="{drawing.WIDTH - drawing.RIGHT}" y1="{y(budget / MIB):.1f}" y2="{y(budget / MIB):.1f}" style="stroke:var(--budget);stroke-width:2"/>')

    width = max(1, (end - start) // 120)
    rates = {}
    for verb in ("fetch", "evict"):
        rates[verb] = [0] * 121
        for ended, size in db.execute("select ended_ns, bytes from moves where verb = ? and ended_ns between ? and ?", (verb, start, end)):
            rates[verb][(ended - start) // width] += size / width
    most = max(0.001, *rates["fetch"], *rates["evict"]) * 1.1
    y = drawing.axis(284, 424, -most, most, "GB/s")
    for i in range(121):
        begin, last = i * width, min((i + 0.85) * width, end - start)
        drawing.rect(begin, last, y(rates["fetch"][i]), y(0), "in")
        drawing.rect(begin, last, y(0), y(-rates["evict"][i]), "out")
    for began, ended in db.execute("select began_ns, ended_ns from stalls where step = ?", (step,)):
        drawing.rect(began - start, ended - start, y(0) - 3, y(0) + 3, "budget")
    each = next(d * 10 ** e for e in range(0, 7) for d in (1, 2, 5) if (end - start) / 1e6 / (d * 10 ** e) <= 10)
    for ms in range(0, int((end - start) / 1e6) + 1, each):
        drawing.parts.append(f'<text class="soft" text-anchor="middle" x="{drawing.x(ms * 1e6):.1f}" y="442">{ms}</text>')
    drawing.parts.append(f'<text class="soft" text-anchor="end" x="{drawing.WIDTH - drawing.RIGHT}" y="460">ms since the step began</text>')
    drawing.legend(274, [("live", "live bytes"), ("budget", f"budget, {budget / MIB:.0f} MiB"), ("forward", "forward"), ("backward", "backward"), ("optimizer", "optimizer")])
    drawing.legend(460, [("in", "fetched"), ("out", "written out"), ("budget", "stalled")])
    drawing.write(sys.argv[2], 470)


if __name__ == "__main__":
    main()
