"""Callbacks for other people's training loops: vedette.integrations.transformers and vedette.integrations.lightning."""

_phases = ("warm-up", "profiling", "foreseen", "planned")


def figures_of(guard):
    """What a callback logs, all of it numbers: of a step since the last log, and the phase as its place in the list above."""
    now = guard.progress
    return {"vedette/stall_ms": now["stall_ms"], "vedette/moved_mib": now["moved_mib"],
            "vedette/phase": _phases.index(now["phase"]) if now["phase"] in _phases else -1}
