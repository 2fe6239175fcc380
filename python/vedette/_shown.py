"""A guard and its counters as small tables, for notebooks, and as scalars for a SummaryWriter."""

import html

phases = ("warm-up", "profiling", "foreseen", "planned")


def words_of_bytes(count):
    """"12.5 MiB": the largest unit that leaves one."""
    value, units = float(count), ["B", "KiB", "MiB", "GiB", "TiB"]
    while value >= 1024 and len(units) > 1:
        value /= 1024
        units.pop(0)
    return f"{count} B" if units[0] == "B" else f"{value:.1f} {units[0]}"


def _words_of(name, value):
    if "bytes" in name.split("_") or name == "moved_between_slow_tiers":
        return words_of_bytes(value)
    if name.endswith("_ns"):
        return f"{value / 1e6:,.1f} ms"
    return f"{value:,}"


def table(title, rows):
    """`rows`: pairs of text. Everything is escaped, and no style but alignment is set: a notebook has its own."""
    lines = "".join(f"<tr><th style='text-align:left'>{html.escape(str(label))}</th>"
                    f"<td style='text-align:right'>{html.escape(str(value))}</td></tr>" for label, value in rows)
    return f"<table><caption style='text-align:left'>{html.escape(title)}</caption>{lines}</table>"


def of_counters(counters):
    """Those that are not 0; a GPU's are 0 on a CPU, and the far tier's where there is one."""
    names = [name for name, member in vars(type(counters)).items() if isinstance(member, property)]
    values = {name: getattr(counters, name) for name in names}
    rows = [(name, _words_of(name, value)) for name, value in values.items() if value != 0]
    return table("vedette counters", rows or [("steps", "0")])


def of_guard(guard):
    closed = guard.is_closed
    if not closed and guard.phase == "off":
        return table("vedette guard, switched off", [])
    now = guard.counters
    rows = [("phase", "closed" if closed else guard.phase), ("steps", f"{now.steps:,}"),
            ("in fast memory", words_of_bytes(now.resident_bytes) + ("" if closed else f" of {words_of_bytes(guard.budget)}")),
            ("alive, at most", f"{words_of_bytes(now.live_bytes)}, {words_of_bytes(now.peak_bytes)}"),
            ("fetched, written", f"{words_of_bytes(now.bytes_in)}, {words_of_bytes(now.bytes_out)}"),
            ("stalls", f"{now.stall_ns / 1e6:,.1f} ms in {now.stall_count:,}"), ("faults", f"{now.faults:,}")]
    if now.gpu_bytes:
        rows.append(("on the GPU", f"{words_of_bytes(now.gpu_bytes)}, {words_of_bytes(now.gpu_beside_bytes)} beside the budget"))
    return table("vedette guard", rows)


def scalars_of(progress, counters, budget):
    """By tag; `progress` as guard.progress has it."""
    phase = progress["phase"]
    return {"vedette/stall_ms": progress["stall_ms"], "vedette/moved_mib": progress["moved_mib"],
            "vedette/resident_mib": counters.resident_bytes / (1 << 20), "vedette/budget_mib": budget / (1 << 20),
            "vedette/phase": phases.index(phase) if phase in phases else -1}
