"""What /readyz says: every check with what is wrong, so that a person sees which part it is."""

from __future__ import annotations

import json
from collections.abc import Mapping
from http import HTTPStatus


def readiness(problems: Mapping[str, str]) -> tuple[HTTPStatus, bytes]:
    """Status and JSON by check → what is wrong in one sentence, or nothing."""
    ready = not any(problems.values())
    checks = {name: {"ok": False, "reason": why} if why else {"ok": True} for name, why in problems.items()}
    told = json.dumps({"ready": ready, "checks": checks}).encode() + b"\n"
    return (HTTPStatus.OK if ready else HTTPStatus.SERVICE_UNAVAILABLE), told
