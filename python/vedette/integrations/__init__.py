"""Callbacks for other people's training loops: vedette.integrations.transformers and vedette.integrations.lightning."""

from .._shown import phases


def figures_of(guard):
    """What a callback logs, all of it numbers: of a step since the last log, and the phase as its place in the list above."""
    now = guard.progress
    return {"vedette/stall_ms": now["stall_ms"], "vedette/moved_mib": now["moved_mib"],
            "vedette/phase": phases.index(now["phase"]) if now["phase"] in phases else -1}
