#!/usr/bin/env python3
"""Draws the pictures of a landing page: SVG that follows its reader's theme and loads nothing, and a moving one.

    landing.py idea OUT.svg               what a guard does, in one drawing
    landing.py speed OUT.svg              speed over memory, from bench/results: measured rows alone, the kernel's swap beside ours
    landing.py policies OUT.svg           a step under each policy over memory, simulated
    landing.py top OUT.svg [BUILD]        `vedette top` beside a small training run, which this starts: a few looks, one after the other
    landing.py report OUT.webp PAGE.html CHROMIUM [dark]
                                          a walk through a report, moving; needs Pillow (.venv has it)

`speed` takes the rows of one sitting on one machine; the kernel's swap was measured in a memory cgroup on two machines, and the picture says so.
"""
import html
import inspect
import io
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
STYLE = """
svg { --ink: #16202b; --soft: #55616f; --line: #dde2e8; --card: #f4f6f8; --live: #1b3a57; --fast: #2c7fb8; --slow: #d95f0e; --good: #2e7d4f; --bad: #b3261e; }
@media (prefers-color-scheme: dark) { svg { --ink: #e6ebf0; --soft: #9aa7b4; --line: #3a4550; --card: #18212a; --live: #8cc7ff; --fast: #56b4e9; --slow: #f0a03c; --good: #6fcf97; --bad: #ff7a66; } }
text { font: 13px system-ui, sans-serif; fill: var(--ink); } .soft { fill: var(--soft); font-size: 12px; } .title { font-size: 15px; font-weight: 600; } .mono { font: 12.5px ui-monospace, monospace; white-space: pre; }
.grid { stroke: var(--line); } .box { fill: var(--card); stroke: var(--line); } .arrow { fill: none; stroke-width: 2.5; }
"""


def write(path, width, height, label, parts):
    text = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img" aria-label="{html.escape(label)}"><style>{STYLE}</style>\n' + "\n".join(parts) + "\n</svg>\n"
    pathlib.Path(path).write_text(text)
    print(f"{path}: {len(text) / 1024:.1f} KiB")


def words(x, y, text, kind="", anchor="start"):
    return f'<text x="{x}" y="{y}" class="{kind}" text-anchor="{anchor}">{html.escape(text)}</text>'


def block(x, y, width, height, colour, text="", dashed=False):
    style = f"fill:none;stroke:var(--{colour});stroke-dasharray:4 3" if dashed else f"fill:var(--{colour})"
    label = f'<text x="{x + width / 2}" y="{y + height / 2 + 4}" text-anchor="middle" style="fill:{"var(--soft)" if dashed else "var(--card)"};font-size:11px">{html.escape(text)}</text>'
    return f'<rect x="{x}" y="{y}" width="{width}" height="{height}" rx="3" style="{style}"/>' + (label if text else "")


def arrow(points, colour):
    (x1, y1), (x2, y2) = points
    return (f'<path class="arrow" d="M{x1} {y1} C{x1} {(y1 + y2) / 2} {x2} {(y1 + y2) / 2} {x2} {y2}" style="stroke:var(--{colour})"/>'
            f'<path d="M{x2 - 5} {y2 + (9 if y2 < y1 else -9)} L{x2} {y2} L{x2 + 5} {y2 + (9 if y2 < y1 else -9)}" class="arrow" style="stroke:var(--{colour})"/>')


def axes(x, y, edges, values, shares, caption):
    """Lines across for values, percent of memory below. `edges`: left, right, bottom."""
    left, right, bottom = edges
    parts = []
    for value in values:
        parts.append(f'<line class="grid" x1="{left}" x2="{right}" y1="{y(value):.1f}" y2="{y(value):.1f}"/>' + words(left - 8, y(value) + 4, f"{value:g}", "soft", "end"))
    for share in shares:
        parts.append(words(x(share), bottom + 18, f"{share} %", "soft", "middle"))
    return parts + [words((left + right) / 2, bottom + 36, caption, "soft", "middle")]


def line_of(x, y, places, colour, width):
    points = " ".join(f"{x(share):.1f},{y(value):.1f}" for share, value in places)
    return f'<polyline points="{points}" style="fill:none;stroke:var(--{colour});stroke-width:{width}"/>'


def idea(path):
    """Ops on a clock, fast memory below, the slow tier at the bottom: out after the last use, back before the next."""
    names = ["conv1", "conv2", "conv3", "loss", "conv3 back", "conv2 back", "conv1 back"]
    left, wide, step = 130, 92, 98
    parts = [words(16, 24, "A tensor leaves after its use and is back before the next one", "title")]
    parts += [words(16, 64, "operators"), f'<rect class="box" x="{left - 6}" y="100" width="{step * len(names) + 6}" height="96" rx="6"/>', words(16, 136, "fast memory"), words(16, 154, "a budget you set", "soft")]
    parts += [f'<rect class="box" x="{left - 6}" y="262" width="{step * len(names) + 6}" height="44" rx="6"/>', words(16, 282, "slow tier"), words(16, 300, "an NVMe disk", "soft")]
    for i, name in enumerate(names):
        parts.append(block(left + i * step, 46, wide, 28, "live", name))
    # two activations: when they lie where
    for row, (name, made, out, back, used) in enumerate((("conv1 output", 0, 2, 5, 7), ("conv2 output", 1, 3, 4, 6))):
        y = 112 + 40 * row
        parts.append(block(left + made * step, y, (out - made) * step - 6, 32, "fast", name))
        parts.append(block(left + back * step, y, (used - back) * step - 6, 32, "fast", name))
        parts.append(block(left + out * step, 270, (back - out) * step - 6, 28, "slow", name) if row == 0 else "")
    x_out, x_back = left + 2 * step - 20, left + 5 * step + 14
    parts += [arrow(((x_out, 196), (x_out + 26, 262)), "slow"), words(x_out + 34, 224, "evict: beside the operators that run", "soft"),
              arrow(((x_back - 28, 262), (x_back, 196)), "fast"), words(x_back - 38, 250, "fetch: there when conv1 back starts", "soft", "end")]
    parts += [words(16, 336, "One step is watched page by page; a plan is made from it, judged, and followed in every later step.", "soft"), words(16, 354, "The losses stay the same, bit by bit.", "soft")]
    write(path, left + step * len(names) + 16, 366, "Tensors leave fast memory after their use and come back before the next", parts)


def measured():
    """(share of the peak in percent, speed) of ResNet-18 by kind of run, and of the kernel's swap."""
    tables = json.loads((ROOT / "bench/results/training.json").read_text())["tables"]
    training = next(table for table in tables if table["question"].startswith("What does a step cost inside a budget?"))
    swap = json.loads((ROOT / "bench/results/kernel_swap.json").read_text())["tables"]
    columns = {name: place for place, name in enumerate(training["columns"])}
    plain, points = None, {"guarded": [], "guarded, step_in_backward": []}
    for row in training["rows"]:
        model, run, budget, speed = (row[columns[name]] for name in ("model", "run", "budget MiB", "x plain"))
        if model == "resnet18" and run == "plain":
            plain = budget
        elif run.endswith("%") and model in ("resnet18", "resnet18 in backward"):
            points["guarded, step_in_backward" if "backward" in model else "guarded"].append((100 * budget / plain, speed))
    limit = []
    for table in swap:
        ms = {row[0]: row[table["columns"].index("step ms")] for row in table["rows"]}
        limit.append((ms["plain, no limit"] / ms["plain, the kernel swaps"], ms["plain, no limit"] / ms["guarded"]))
    return training, plain, points, limit


def speed(path):
    training, plain, points, limit = measured()
    width, height, left, right, top, bottom = 720, 468, 50, 130, 80, 350
    x = lambda share: left + (width - left - right) * share / 105
    y = lambda value: bottom - (bottom - top) * value / 1.2
    parts = [words(left, 24, f"ResNet-18 with less memory than its {plain} MiB: speed of a step, x plain libtorch", "title")]
    parts += axes(x, y, (left, width - right, bottom), (0, 0.2, 0.4, 0.6, 0.8, 1, 1.2), (0, 20, 40, 60, 80, 100), "fast memory, of the plain run's peak")
    parts.append(f'<line x1="{left}" x2="{width - right}" y1="{y(1):.1f}" y2="{y(1):.1f}" style="stroke:var(--soft);stroke-dasharray:5 4"/>' + words(width - right + 8, y(1) + 4, "plain, all memory", "soft"))
    for kind, colour, places in (("guarded, step_in_backward", "good", points["guarded, step_in_backward"]), ("guarded", "fast", points["guarded"])):
        parts.append(line_of(x, y, sorted(places), colour, 2.5))
        parts += [f'<circle cx="{x(share):.1f}" cy="{y(value):.1f}" r="4.5" style="fill:var(--{colour})"/>' for share, value in places]
    share = 100 * 400 / plain        # the limit is the whole process's
    for swapped, guarded in limit:
        parts.append(f'<rect x="{x(share) - 5:.1f}" y="{y(swapped) - 5:.1f}" width="10" height="10" style="fill:var(--bad)"/>')
        parts.append(f'<path d="M{x(share):.1f} {y(guarded) - 6:.1f} l6 6 l-6 6 l-6 -6 z" style="fill:var(--live)"/>')
    legend = [("good", "guarded, step_in_backward"), ("fast", "guarded"), ("live", "guarded, process of 400 MiB"), ("bad", "kernel swap, process of 400 MiB")]
    for place, (colour, label) in enumerate(legend):
        at, line = left + 240 * (place % 2), 38 + 18 * (place // 2)
        parts.append(f'<rect x="{at}" y="{line}" width="10" height="10" style="fill:var(--{colour})"/>' + words(at + 15, line + 9, label, "soft"))
    parts += [words(left, bottom + 62, f"Medians: {training['command'].split('/')[-1]}, {training['machine'].split(',')[0]}, 2 cores, a disk of 2.6 to 2.9 GB/s.", "soft"),
              words(left, bottom + 80, "Kernel swap: bench/vs_kernel_swap, a memory cgroup of 400 MiB for the whole process, on two machines.", "soft"),
              words(left, bottom + 98, "Rows: bench/results/training.json, kernel_swap.json.", "soft")]
    write(path, width, height, "Speed of ResNet-18 over its memory, guarded and with the kernel's swap", parts)


def apart(places, least):
    """The same places in their order, each at least `least` below the one before."""
    moved = []
    for place in sorted(places):
        moved.append(max(place, moved[-1] + least) if moved else place)
    return moved


def policies(path):
    """Speed of a step under each policy over memory, simulated, from bench/results/policies.json."""
    table = json.loads((ROOT / "bench/results/policies.json").read_text())["tables"][0]
    lines = {}
    for policy, share, percent, _ in table["rows"]:
        if percent is not None:
            lines.setdefault(policy, []).append((share, percent))
    width, height, left, right, top, bottom = 720, 438, 50, 150, 52, 330
    x = lambda share: left + (width - left - right) * (85 - share) / 70
    y = lambda value: bottom - (bottom - top) * value / 105
    parts = [words(left, 24, "BERT-base, batch 512, in less memory: speed of a step, % of ideal", "title")]
    parts += axes(x, y, (left, width - right, bottom), (0, 20, 40, 60, 80, 100), (80, 60, 50, 40, 30, 20), "GPU memory, of the step's peak")
    # the names at the right, in the order of their lines' ends
    names = sorted(lines, key=lambda name: -min(lines[name])[1])
    for name, at in zip(names, apart([y(min(lines[name])[1]) for name in names], 15)):
        line, ours = sorted(lines[name], reverse=True), name == "vedette"
        parts.append(line_of(x, y, line, "good" if ours else "fast", 3 if ours else 1.3))
        parts.append(f'<path d="M{x(line[-1][0]):.1f} {y(line[-1][1]):.1f} L{width - right + 4} {at:.1f}" style="fill:none;stroke:var(--line)"/>' + words(width - right + 8, at + 4, name, "" if ours else "soft"))
    parts += [words(left, bottom + 58, "Simulated: the trace and the machine of G10's artifact (an A100 behind PCIe at 15.8 GB/s); vedette compare.", "soft"),
              words(left, bottom + 76, "No plan passes the bound, 100 % here; a line ends where its policy has no plan.", "soft"),
              words(left, bottom + 94, "Rows: bench/results/policies.json.", "soft")]
    write(path, width, height, "Speed of a step of BERT-base over its memory under each policy", parts)


def looks(build):
    """What `vedette top` writes while ResNet-18 trains in a quarter of its memory."""
    with tempfile.TemporaryDirectory() as folder:
        training = subprocess.Popen([f"{build}/examples/train", "--model", "resnet18", "--steps", "100000", "--fast-memory", "112MiB", "--slow", f"nvme:{folder}",
                                     "--record", f"{folder}/run.vedette"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            found = []
            until = time.monotonic() + 60
            while time.monotonic() < until:
                shown = subprocess.run([f"{build}/vedette", "top", str(training.pid), "--interval", "2", "--count", "2"], capture_output=True, text=True, timeout=60)
                if shown.returncode == 0 and shown.stdout.count("planned") == 2:
                    found.append(shown.stdout.rstrip().splitlines())
                elif shown.returncode != 0:
                    time.sleep(0.3)  # it has shown no counters yet
                if len(found) >= 6 or training.poll() is not None:
                    break
            return [lines[len(lines) // 2:] for lines in found]  # of two looks the second has rates
        finally:
            training.kill()
            training.wait()


def top(path, build=str(ROOT / "build" / "release")):
    frames = looks(build)
    if not frames:
        sys.exit("landing.py: vedette top showed nothing; is the build there?")
    width, line = 760, 19
    height = 64 + line * max(len(frame) for frame in frames)
    seconds = 1.4 * len(frames)
    parts = [f'<rect class="box" x="1" y="1" width="{width - 2}" height="{height - 2}" rx="8"/>', '<text x="18" y="28" class="mono">$ vedette top</text>']
    for number, frame in enumerate(frames):
        begin, end = number / len(frames), (number + 1) / len(frames)
        values = "0;1;0" if number else "1;0;0"
        times = f"0;{begin:.4f};{end:.4f}" if number else f"0;{end:.4f};1"
        animate = f'<animate attributeName="opacity" calcMode="discrete" dur="{seconds:.1f}s" repeatCount="indefinite" values="{values}" keyTimes="{times}"/>' if len(frames) > 1 else ""
        rows = "".join(f'<text x="18" y="{52 + line * place}" class="mono">{html.escape(row)}</text>' for place, row in enumerate(frame))
        parts.append(f'<g opacity="{0 if number else 1}">{rows}{animate}</g>')
    write(path, width, height, "vedette top beside a training run", parts)


# A walk through a report: a sentence for the bar below each picture, and what is done before it.
CHART = "document.querySelector('#pages .chart')"
TO = "document.querySelector('{}').scrollIntoView({{block: '{}', behavior: 'instant'}})"
WALK = (("A recording becomes a page: where the step's time went, and what to change", None),
        ("Live bytes against the budget over one step, and what moves", TO.format("#memory .chart", "center")),
        ("Which layer uses which pages, and how often", TO.format("#pages .chart", "center")),
        ("Drag over rows: down to single pages", f"Plotly.relayout({CHART}, {{'yaxis.range': (r => [r[0] + (r[1] - r[0]) * 0.35, r[0] + (r[1] - r[0]) * 0.6])({CHART}._fullLayout.yaxis.range)}}).then(() => true)"),
        ("Operators, stalls and moves of any step", TO.format("#timeline h2", "start")),
        ("Where time, bytes and stalls go, by layer", TO.format("#layers h2", "start")),
        ("What other budgets would cost", TO.format("#budgets .chart", "center")))


def report(path, page, chromium, theme="light"):
    from PIL import Image, ImageDraw, ImageFont
    sys.path.insert(0, str(ROOT / "tests/report"))
    from browser import Browser, settled, undrawn

    width, height, bar = 1100, 760, 36
    font = ImageFont.truetype("DejaVuSans.ttf", 17)
    paper, ink = ("#18212a", "#e6ebf0") if theme == "dark" else ("#f4f6f8", "#16202b")
    pictures = []
    browser = Browser(chromium, width, height)
    try:
        browser.ask("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        browser.open(f"{page}#theme={theme}")
        for sentence, action in WALK:
            if action:
                browser.value(action)
            time.sleep(2)             # the page scrolls, charts are drawn
            settled(browser, undrawn("scrollY", "scrollY + innerHeight"), 0)
            frame = Image.new("RGB", (width, height + bar), paper)
            frame.paste(Image.open(io.BytesIO(browser.shot())).convert("RGB"), (0, 0))
            ImageDraw.Draw(frame).text((16, height + 8), sentence, fill=ink, font=font)
            pictures.append(frame)
    finally:
        browser.close()
    pictures[0].save(path, save_all=True, append_images=pictures[1:], duration=2200, loop=0, quality=72, method=6)
    print(f"{path}: {os.path.getsize(path) / 1024:.1f} KiB")


def main():
    draw = {"idea": idea, "speed": speed, "policies": policies, "top": top, "report": report}.get(sys.argv[1] if len(sys.argv) > 1 else "")
    try:
        inspect.signature(draw).bind(*sys.argv[2:])
    except TypeError:                # no such picture, or other words than it takes
        sys.exit(__doc__)
    draw(*sys.argv[2:])


if __name__ == "__main__":
    main()
