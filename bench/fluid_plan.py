#!/usr/bin/env python3
"""How little can any plan wait if bytes move in any fractions, and which ops are to blame?

A linear program over one recorded step that repeats (vedette-trace-1, whose ops are the steps' sections where the session planned in sections): between two uses
of a tensor any part of it may leave and come back, beside the ops in between and while one waits. Both directions share one bus. What was written out and not
changed since leaves for nothing. An op needs its operands, what is born in it and its workspace in whole; capacity is asked for when an op begins and when it has
ended, and room is there at once when bytes have left. A plan of whole parts that really moves them obeys more rules than these, so it waits no less, but for its
latencies the program is not far from what a good one reaches.

Prints the least waiting after some 20 s for 800 ops, and the prices of its optimum: at which ops another MiB of fast memory would shorten the step, by how much, and between which ops
the bus never rests. That is where a planner loses what it loses.

    train --planned-traces NAME ...
    bench/fluid_plan.py NAME.0 --fast 110MiB --gb-per-s 2.4       (needs Python's highspy and numpy: pip install highspy numpy)
"""
import argparse
import json
import re
import sys

MIB = 2.0**20


def bytes_of(text):
    found = re.fullmatch(r"([\d.]+)(|KiB|MiB|GiB)", text)
    if not found:
        raise argparse.ArgumentTypeError(f"'{text}' is no number of bytes: write 115343360 or 110MiB")
    return float(found[1]) * {"": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30}[found[2]]


class Program:
    """Columns and rows of a linear program that is made smaller, for HiGHS."""

    def __init__(self):
        self.upper, self.cost, self.rows = [], [], []

    def column(self, upper, cost=0.0):
        self.upper.append(upper)
        self.cost.append(cost)
        return len(self.upper) - 1

    def row(self, terms, upper, equal=False):
        self.rows.append((terms, upper, equal))
        return len(self.rows) - 1

    def solve(self):
        """The least cost, and what one more of each row's right side would save."""
        import highspy
        import numpy as np
        lp = highspy.HighsLp()
        lp.num_col_, lp.num_row_ = len(self.upper), len(self.rows)
        lp.col_cost_, lp.col_lower_, lp.col_upper_ = np.array(self.cost), np.zeros(len(self.upper)), np.array(self.upper)
        lp.row_upper_ = np.array([upper for _, upper, _ in self.rows])
        lp.row_lower_ = np.array([upper if equal else -highspy.kHighsInf for _, upper, equal in self.rows])
        starts, columns, values = [0], [], []
        for terms, _, _ in self.rows:
            for column, value in terms:
                columns.append(column)
                values.append(value)
            starts.append(len(columns))
        lp.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
        lp.a_matrix_.start_, lp.a_matrix_.index_, lp.a_matrix_.value_ = np.array(starts), np.array(columns), np.array(values)
        solver = highspy.Highs()
        solver.setOptionValue("output_flag", False)
        solver.setOptionValue("solver", "ipm")
        solver.setOptionValue("run_crossover", "off")  # a vertex is not needed, and takes minutes
        solver.passModel(lp)
        solver.run()
        if solver.getModelStatus() != highspy.HighsModelStatus.kOptimal:
            sys.exit("no plan at all: an op needs more than that much fast memory")
        return solver.getInfo().objective_function_value, [-dual for dual in solver.getSolution().row_dual]


class Step:
    """A trace, with the ops that use each tensor and its death."""

    def __init__(self, trace):
        self.ops, self.tensors = trace["ops"], {tensor["id"]: tensor for tensor in trace["tensors"]}
        self.uses = {tensor: [] for tensor in self.tensors}
        self.changes = {tensor: set() for tensor in self.tensors}
        for i, op in enumerate(self.ops):
            for tensor in sorted({*op.get("reads", []), *op.get("writes", [])}):
                self.uses[tensor].append(i)
            for tensor in op.get("writes", []):
                self.changes[tensor].add(i)
        self.death = {tensor: uses[-1] for tensor, uses in self.uses.items() if uses}
        for i, op in enumerate(self.ops):
            for tensor in op.get("frees", []):
                self.death[tensor] = max(self.death.get(tensor, i), i)

    def gaps(self, tensor):
        """(use, the op that ends the gap, whether it uses the tensor) with ops counted on into the next step; what is used no more only dies."""
        uses = self.uses[tensor]
        found = [(a, b, True) for a, b in zip(uses, uses[1:])]
        if self.tensors[tensor]["persistent"]:
            found.append((uses[-1], uses[0] + len(self.ops), True))
        elif self.death[tensor] > uses[-1]:
            found.append((uses[-1], self.death[tensor] + 1, False))
        return found


def program_of(step, fast, mib_per_ms):
    program, n = Program(), len(step.ops)
    waits = [program.column(float("inf"), 1.0) for _ in range(n)]
    bus = [[] for _ in range(n)]
    occupied = [op.get("workspace_bytes", 0) / MIB for op in step.ops]
    away_at_begin, away_at_end = [[] for _ in range(n)], [[] for _ in range(n)]
    for tensor, uses in step.uses.items():
        if not uses:
            continue
        size, persistent = step.tensors[tensor]["bytes"] / MIB, step.tensors[tensor]["persistent"]
        for i in range(n) if persistent else range(uses[0], step.death[tensor] + 1):
            occupied[i] += size
        gaps = step.gaps(tensor)
        clean = [program.column(size) for _ in gaps]  # of the slow tier's bytes, those that are the newest, when the gap begins
        written = []
        for (use, after, returns), known in zip(gaps, clean):
            out, drop = program.column(size), program.column(size)  # while what follows the use waits
            writes, drops = [out], [drop]
            bus[use % n].append((out, 1.0))
            away = program.column(size)
            program.row([(out, 1.0), (drop, 1.0), (away, -1.0)], 0.0, equal=True)
            for k in range(use + 1, after):
                i = k % n
                fetch, out, drop = program.column(size), program.column(size), program.column(size)
                last = k == after - 1
                left = program.column(0.0 if last and returns else size)
                program.row([(away, 1.0), (out, 1.0), (drop, 1.0), (fetch, -1.0), (left, -1.0)], 0.0, equal=True)
                bus[i] += [(fetch, 1.0), (out, 1.0)]
                away_at_begin[i].append((away, -1.0))
                away_at_end[i].append((left, -1.0))
                writes.append(out)
                drops.append(drop)
                away = left
            if after == use + 1 and returns:
                program.row([(away, 1.0)], 0.0)
            program.row([(column, 1.0) for column in drops] + [(known, -1.0)], 0.0)
            written.append(writes)
        for g, (_, after, _) in enumerate(gaps):
            following = (g + 1) % len(gaps) if persistent else g + 1
            if following == len(gaps):
                continue
            if after % n in step.changes[tensor]:
                program.row([(clean[following], 1.0)], 0.0)
            else:
                program.row([(clean[following], 1.0), (clean[g], -1.0)] + [(column, -1.0) for column in written[g]], 0.0)
        if not persistent and gaps:
            program.row([(clean[0], 1.0)], 0.0)
    rows = []
    for i, op in enumerate(step.ops):
        rows.append((program.row([(waits[i], -mib_per_ms)] + bus[i], mib_per_ms * op["ns"] / 1e6),
                     program.row(away_at_begin[i], fast - occupied[i]), program.row(away_at_end[i], fast - occupied[i])))
    return program, rows


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("trace")
    parser.add_argument("--fast", type=bytes_of, required=True, help="fast memory: 115343360 or 110MiB")
    parser.add_argument("--gb-per-s", type=float, required=True, help="of the bus, both directions together")
    args = parser.parse_args()
    with open(args.trace) as file:
        step = Step(json.load(file))
    mib_per_ms = args.gb_per_s * 1e6 / MIB
    program, rows = program_of(step, args.fast / MIB, mib_per_ms)
    waiting, prices = program.solve()
    ideal = sum(op["ns"] for op in step.ops) / 1e6
    print(f"no plan waits less than {waiting:.1f} ms a step beside {ideal:.1f} ms of ops, moving fractions")
    busy_since = None
    for i, (on_bus, begins, ends) in enumerate(rows):
        name = f"op {i} {step.ops[i]['name']} ({step.ops[i].get('layer', '')}, {step.ops[i]['ns'] / 1e6:.1f} ms)"
        gain = prices[begins] + prices[ends]
        if gain > 0.01:
            print(f"  a MiB more of fast memory at {name} saves {gain:.2f} ms")
        busy = prices[on_bus] * mib_per_ms > 0.5
        if busy and busy_since is None:
            busy_since = i
        if not busy and busy_since is not None:
            print(f"  from op {busy_since} to op {i - 1} the bus never rests")
            busy_since = None
    if busy_since is not None:
        print(f"  from op {busy_since} on, into the next step, the bus never rests")


if __name__ == "__main__":
    main()
