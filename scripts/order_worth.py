#!/usr/bin/env python3
"""What the order of ops alone is worth: a row a trace of percent of ideal, the table of docs/policy.md.

    scripts/order_worth.py VEDETTE TRACE.json... [--machine v100-pcie3] [--fast-memory 25%]

The bound is of the traced order: no plan passes it that keeps the order. A plan in another order may.
"""

import argparse
import json
import subprocess


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("vedette")
    asked.add_argument("traces", nargs="+")
    asked.add_argument("--machine", default="v100-pcie3")
    asked.add_argument("--fast-memory", default="25%")
    options = asked.parse_args()
    policies = ["swapadvisor", "swapadvisor+order", "vedette", "vedette+order"]
    print("| step | " + " | ".join(policies) + " | bound as traced |\n" + "|---" * 6 + "|")
    for trace in options.traces:
        made = subprocess.run(
            [options.vedette, "compare", trace, "--machine", options.machine, "--fast-memory", options.fast_memory]
            + ["--policy", "vedette,swapadvisor", "--reorder", "--json"],
            stdout=subprocess.PIPE,
            check=False,
        )
        rows = {row["policy"]: row for row in json.loads(made.stdout or "[]")}
        if not rows:
            continue
        first = rows["vedette"]
        percents = [rows[policy]["percent_of_ideal"] for policy in policies]
        cells = ["-" if percent is None else f"{percent:.1f}" for percent in percents]
        bound = 100 * first["ideal_ns"] / first["lower_bound_ns"] if first["lower_bound_ns"] else 100
        print(f"| {first['trace']} | " + " | ".join(cells) + f" | {bound:.1f} |", flush=True)


if __name__ == "__main__":
    main()
