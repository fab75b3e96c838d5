"""The forge's answers and notices against their documented shapes: no unknown name, each value of its kind."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

SHAPES: dict[str, dict[str, str]] = json.loads((Path(__file__).parent / "gitea_shapes.json").read_text())
PAYLOADS = {
    "push": "PushPayload",
    "pull_request": "PullRequestPayload",
    "pull_request_approved": "PullRequestPayload",
    "status": "CommitStatusPayload",
    "workflow_run": "WorkflowRunPayload",
}
"""The shape of each kind of notice."""

_KINDS = {"string": str, "integer": int, "boolean": bool, "array": list, "any": object}


def faults_of(value: Any, shape: str) -> list[str]:
    """What is wrong about an answer or a notice, by the documented shape of that name."""
    if not isinstance(value, dict):
        return [f"{shape}: no object"]
    wrong = [f"{shape}.{name} is not documented" for name in value if name not in SHAPES[shape]]
    for name in value.keys() & SHAPES[shape].keys():
        wrong += _faults(value[name], f"{shape}.{name}", SHAPES[shape][name])
    return wrong


def _faults(value: Any, where: str, kind: str) -> list[str]:
    if kind.endswith(" or null"):
        return [] if value is None else _faults(value, where, kind.removesuffix(" or null"))
    if kind.startswith("array of "):
        if not isinstance(value, list):
            return [f"{where}: {kind}"]
        return [fault for each in value for fault in faults_of(each, kind.removeprefix("array of "))]
    if kind in SHAPES:
        return faults_of(value, kind)
    fits = isinstance(value, _KINDS[kind]) and not (kind == "integer" and isinstance(value, bool))
    return [] if fits else [f"{where}: {kind}"]
