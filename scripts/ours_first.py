#!/usr/bin/env python3
"""Every policy on every given trace at seven sizes of fast memory: where is ours behind, and how far is it from the bound?

    scripts/ours_first.py VEDETTE TRACE.json... [--log rows.jsonl] [--policies NAMES] [--sizes SIZES] [--again NAMES]

VEDETTE is the program; sizes are 100, 60, 40, 30, 20 and 10 percent of a trace's peak, and "preset", the 40 GiB of the machine of G10's
published runs, which is the machine of all sizes. A size "host:64" is the preset with 64 GiB of host memory, so that stays
overflow to the SSD (bench/results/ours_first.json has such cells). Rows are appended to the log as
they are made and are not made twice, so that a long run can be stopped and gone on with; --again makes the rows of these policies anew. Ends with the list of cells in which `vedette` is more
than half a point of ideal behind a policy that is no bound, of cells that one policy calls infeasible by its largest op and another
does not, of sizes at which `vedette` is more than half a point worse than at a smaller one, and of cells that are more than 3 percent from
the proven bound; exit status 1 where one of the first three lists is not empty.
"""

import argparse
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

SIZES = "100%,60%,40%,30%,20%,10%,preset"
TIE = 0.5  # points of ideal
NEAR = 1.03  # times the bound


def policies_of(program: str) -> tuple[list[str], set[str]]:
    """Names in the program's order, and those that are bounds."""
    text = subprocess.run([program, "plan", "--policies"], check=True, capture_output=True, text=True).stdout
    lines = [line for line in text.splitlines() if re.match(r"\S", line)]
    return [line.split()[0] for line in lines], {line.split()[0] for line in lines if line.endswith("(a bound, no system)")}


def machine_file(host_gib: str) -> str:
    """The preset a100-g10 with another size of its middle tier, in a file of vedette-machine-1."""
    def link(source: str, target: str, speed: int, latency: int, bus: int) -> dict:
        return {"from": source, "to": target, "bytes_per_s": speed, "latency_ns": latency, "bus": bus}
    tiers = [{"name": "gpu", "bytes": 40 << 30}, {"name": "host", "bytes": int(host_gib) << 30}, {"name": "ssd", "bytes": 1 << 44}]
    links = [link("host", "gpu", 15_754_000_000, 5_000, 0), link("gpu", "host", 15_754_000_000, 5_000, 1),
             link("ssd", "gpu", 3_200_000_000, 12_000, 0), link("gpu", "ssd", 3_200_000_000, 16_000, 1)]
    machine = {"format": "vedette-machine-1", "name": f"a100-g10, {host_gib} GiB of host memory", "tiers": tiers, "links": links,
               "fault_ns": 45_000, "can_recompute": True, "interference_percent": 0}
    path = pathlib.Path(tempfile.gettempdir()) / f"a100-g10-host-{host_gib}-{os.getpid()}.json"
    path.write_text(json.dumps(machine))
    return str(path)


def rows_of(program: str, trace: pathlib.Path, size: str, policies: list[str]) -> list[dict]:
    command = [program, "compare", str(trace), "--json", "--policies", ",".join(policies)]
    if size.startswith("host:"):
        command += ["--machine", machine_file(size.removeprefix("host:"))]
    elif size != "preset":
        command += ["--fast", size]
    done = subprocess.run(command, capture_output=True, text=True)
    if not done.stdout.lstrip().startswith("["):  # a policy that fails is a row with an error, and a status of its own
        raise SystemExit(f"{' '.join(command)}: {done.stderr.strip()}")
    return [{**row, "file": trace.name, "size": size} for row in json.loads(done.stdout)]


def read_log(log: pathlib.Path | None, forgotten: set[str]) -> dict[tuple, dict]:
    rows = {}
    if log is not None and log.exists():
        for line in log.read_text().splitlines():
            row = json.loads(line)
            if row["policy"] not in forgotten:
                rows[row["file"], row["size"], row["policy"]] = row
    return rows


def points(row: dict | None) -> float:
    return -1.0 if row is None or row["error"] else row["percent_of_ideal"]


def too_large(row: dict) -> bool:
    return row["error"] is not None and row["error"].startswith("infeasible: the largest op needs")


def worse_with_more(rows: dict[tuple, dict]) -> list[str]:
    """A plan for less memory is valid for more, so percents of ideal should not fall with the size of fast memory."""
    by_trace: dict[str, list[dict]] = {}
    for (trace, _, policy), row in rows.items():
        if policy == "vedette" and not row["error"]:
            by_trace.setdefault(trace, []).append(row)
    found = []
    for trace, all_rows in sorted(by_trace.items()):
        best = None
        for row in sorted((row for row in all_rows if not row["size"].startswith("host:")), key=lambda row: row["fast_bytes"]):
            if best is not None and points(row) < points(best) - TIE:
                found.append(f"{trace} {row['size']}: {points(row):.2f}, and {points(best):.2f} at {best['size']}")
            if best is None or points(row) > points(best):
                best = row
    return found


def report(rows: dict[tuple, dict], bounds: set[str]) -> bool:
    cells: dict[tuple, dict[str, dict]] = {}
    for (trace, size, policy), row in rows.items():
        cells.setdefault((trace, size), {})[policy] = row
    behind, unlike, far, compared, infeasible, near = [], [], [], 0, 0, 0
    for (trace, size), all_rows in cells.items():
        ours = all_rows.get("vedette")
        if ours is None:
            continue
        if any(too_large(row) for row in all_rows.values()):
            infeasible += 1
            unlike += [f"{trace} {size}: {name}" for name, row in all_rows.items() if not too_large(row)]
            continue
        compared += 1
        others = {name: points(row) for name, row in all_rows.items() if name != "vedette" and name not in bounds}
        best = max(others, key=others.__getitem__, default=None)
        if best is not None and points(ours) < others[best] - TIE or points(ours) < 0:
            behind.append(f"{trace} {size}: vedette {points(ours):.2f}, {best} {others.get(best, -1):.2f}")
        ratio = ours["step_ns"] / ours["lower_bound_ns"] if not ours["error"] else float("inf")
        if ratio <= NEAR:
            near += 1
        else:
            most = 100 * ours["ideal_ns"] / ours["lower_bound_ns"]
            far.append((trace, size, f"{trace} {size}: vedette {points(ours):.2f}, no plan above {most:.2f}; {100 * (ratio - 1):.1f} % above the bound"))
    slowest = max((row["plan_ns"] / 1e9 for row in rows.values() if row["policy"] == "vedette"), default=0)
    print(f"{compared} cells compared, {infeasible} infeasible for every policy; vedette's slowest plan took {slowest:.2f} s")
    print(f"behind by more than {TIE} points: {len(behind)}", *behind, sep="\n  ")
    print(f"infeasible, but not for every policy: {len(unlike)}", *unlike, sep="\n  ")
    fallen = worse_with_more(rows)
    print(f"worse by more than {TIE} points than with less memory: {len(fallen)}", *fallen, sep="\n  ")
    print(f"within {100 * (NEAR - 1):.0f} % of the bound: {near} of {compared}; not:", *(text for _, _, text in sorted(far)), sep="\n  ")
    return not behind and not unlike and not fallen


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("program")
    parser.add_argument("traces", nargs="+", type=pathlib.Path)
    parser.add_argument("--log", type=pathlib.Path)
    parser.add_argument("--policies", help="with commas; default: all")
    parser.add_argument("--sizes", default=SIZES)
    parser.add_argument("--again", default="")
    options = parser.parse_args()
    names, bounds = policies_of(options.program)
    wanted = options.policies.split(",") if options.policies else names
    rows = read_log(options.log, set(options.again.split(",")))
    for trace in options.traces:
        for size in options.sizes.split(","):
            missing = [name for name in wanted if (trace.name, size, name) not in rows]
            if not missing:
                continue
            for row in rows_of(options.program, trace, size, missing):
                rows[trace.name, size, row["policy"]] = row
                if options.log is not None:
                    with options.log.open("a") as log:
                        log.write(json.dumps(row) + "\n")
    sys.exit(0 if report(rows, bounds) else 1)


main()
