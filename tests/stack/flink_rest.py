"""Flink's REST API, as far as the tests ask it: cluster, jobs, checkpoints, savepoints."""

from __future__ import annotations

import http.client
import json
from typing import Any
from urllib.parse import urlsplit

from tests.stack.process import StackError, wait_until

_ATTEMPT_S = 10


class FlinkRest:
    """The JobManager at `http://127.0.0.1:port`; each answer is Flink's JSON. StackError names what it refused."""

    def __init__(self, port: int) -> None:
        self._port = port

    def ask(self, method: str, path: str, body: dict[str, Any] | None = None) -> Any:
        """One request; OSError or HTTPException while nobody answers."""
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=_ATTEMPT_S)
        try:
            connection.request(
                method, path, None if body is None else json.dumps(body), {"Content-Type": "application/json"}
            )
            answer = connection.getresponse()
            text = answer.read().decode("utf-8")
        finally:
            connection.close()
        if answer.status >= 400:
            raise StackError(f"flink: {method} {path} was answered with {answer.status}: {_reason(text)}")
        return json.loads(text or "{}")

    def taskmanagers(self) -> dict[str, int]:
        """Registered TaskManagers by their id, with the number of their slots; none while nobody answers."""
        try:
            listed = self.ask("GET", "/taskmanagers")["taskmanagers"]
        except (OSError, http.client.HTTPException, StackError):  # starting, electing a leader, or dead
            return {}
        return {manager["id"]: manager["slotsNumber"] for manager in listed}

    def job_state(self, job_id: str) -> str:
        """RUNNING, RESTARTING, FAILED, …"""
        state: str = self.ask("GET", f"/jobs/{job_id}")["state"]
        return state

    def exceptions(self, job_id: str) -> str:
        """The first lines of why the job failed last, empty when it never did."""
        history = self.ask("GET", f"/jobs/{job_id}/exceptions")["exceptionHistory"]["entries"]
        return "\n".join(history[0]["stacktrace"].splitlines()[:40]) if history else ""

    def checkpoints(self, job_id: str) -> Any:
        """Counts, summary, latest and history of the job's checkpoints."""
        return self.ask("GET", f"/jobs/{job_id}/checkpoints")

    def cancel(self, job_id: str, timeout_s: float) -> None:
        """Ends the job without a savepoint; its last checkpoint stays."""
        self.ask("PATCH", f"/jobs/{job_id}?mode=cancel")
        self._await_state(job_id, "CANCELED", timeout_s)

    def stop(self, job_id: str, folder_uri: str, *, drain: bool, timeout_s: float) -> str:
        """Ends the job with a savepoint below the folder and returns the savepoint's path."""
        body = {"targetDirectory": folder_uri, "drain": drain}
        trigger = self.ask("POST", f"/jobs/{job_id}/stop", body)["request-id"]
        path = f"/jobs/{job_id}/savepoints/{trigger}"
        if not wait_until(lambda: self.ask("GET", path)["status"]["id"] == "COMPLETED", timeout_s):
            raise StackError(f"flink: job {job_id} had no savepoint after {timeout_s:g} s")
        operation = self.ask("GET", path)["operation"]
        if "location" not in operation:
            raise StackError(f"flink: job {job_id} could not be stopped: {operation['failure-cause']['stack-trace']}")
        self._await_state(job_id, "FINISHED", timeout_s)
        location: str = operation["location"]
        return urlsplit(location).path

    def _await_state(self, job_id: str, wanted: str, timeout_s: float) -> None:
        if not wait_until(lambda: self.job_state(job_id) == wanted, timeout_s):
            raise StackError(f"flink: job {job_id} is {self.job_state(job_id)}, not {wanted}, after {timeout_s:g} s")


def _reason(text: str) -> str:
    """The readable part of an error's JSON."""
    try:
        return str(json.loads(text)["errors"][-1]).split("\n\tat ", 1)[0].strip()
    except (ValueError, KeyError, IndexError):
        return text[:500]
