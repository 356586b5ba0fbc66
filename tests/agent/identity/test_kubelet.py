"""The kubelet's pod-resources API against a real gRPC server, with messages by protoc from its published text."""

from __future__ import annotations

import builtins
import socket
from pathlib import Path
from typing import Any

import grpc  # type: ignore[import-untyped]  # it ships no types
import pytest

from spanlite.agent.identity.kubelet import containers_of, list_containers
from spanlite.agent.identity.pods import Container
from spanlite.agent.identity.source import Unavailable
from tests.agent.identity.kubelets import hanging_kubelet, kubelet, listing

A = "GPU-11111111-2222-3333-4444-555555555555"
B = "GPU-aaaaaaaa-bbbb-cccc-dddd-eeeeeeeeeeee"
MIG = "MIG-99999999-2222-3333-4444-555555555555"
PODS: list[dict[str, Any]] = [
    {
        "name": "train-0",
        "namespace": "ml",
        "containers": [
            {
                "name": "main",
                "devices": [
                    {
                        "resource_name": "nvidia.com/gpu",
                        "device_ids": [A, f"{B}::1"],
                        "topology": {"nodes": [{"ID": 1}]},
                    },
                    {"resource_name": "vendor.com/nic", "device_ids": ["nic-3"]},
                ],
                "cpu_ids": [1, 2, 3],
                "memory": [{"memory_type": "memory", "size": 1 << 30}],
            },
            {"name": "sidecar"},
        ],
    },
    {
        "name": "infer-7",
        "namespace": "serving",
        "containers": [
            {
                "name": "server",
                "dynamic_resources": [
                    {
                        "claim_name": "one-gpu",
                        "claim_namespace": "serving",
                        "claim_resources": [
                            {
                                "cdi_devices": [{"name": f"k8s.gpu.nvidia.com/device={MIG}"}],
                                "driver_name": "gpu.nvidia.com",
                                "pool_name": "node-1",
                                "device_name": "gpu-0-mig-1g18gb-0",
                            }
                        ],
                    }
                ],
            }
        ],
    },
]
EXPECTED = [
    Container("ml", "train-0", "main", frozenset({A, B})),
    Container("serving", "infer-7", "server", frozenset({MIG})),
]


def test_containers_with_gpus_are_listed(tmp_path: Path) -> None:
    """Over the socket: device plugins and claims, without what has no GPU; nothing where nothing runs."""
    path = tmp_path / "kubelet.sock"
    answer = listing(tmp_path, PODS)
    with kubelet(path, lambda _: answer):
        assert list_containers(path, 30) == EXPECTED
    with kubelet(path, lambda _: b""):
        assert list_containers(path, 30) == []


def test_a_kubelet_that_fails_has_a_state(tmp_path: Path) -> None:
    """No socket, a file in its place, one that nobody listens on, one that hangs, refuses, breaks or babbles."""
    states = {}

    def state(path: Path, timeout_s: float = 30) -> str:
        with pytest.raises(Unavailable) as caught:
            list_containers(path, timeout_s)
        return caught.value.state

    states["absent"] = state(tmp_path / "none")
    (tmp_path / "file").write_text("")
    states["file"] = state(tmp_path / "file")
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(tmp_path / "dead"))
    states["dead"] = state(tmp_path / "dead", 5)
    with hanging_kubelet(tmp_path / "hang"):
        states["hang"] = state(tmp_path / "hang", 0.2)
    for word, code in (("no", grpc.StatusCode.PERMISSION_DENIED), ("broken", grpc.StatusCode.INTERNAL)):
        with kubelet(tmp_path / word, lambda context, code=code: context.abort(code, "so")):  # type: ignore[misc]
            states[word] = state(tmp_path / word)
    with kubelet(tmp_path / "babble", lambda _: b"\xff\xff\xff"):
        states["babble"] = state(tmp_path / "babble")
    assert states == {
        "absent": "absent",
        "file": "absent",
        "dead": "failed",
        "hang": "timeout",
        "no": "forbidden",
        "broken": "failed",
        "babble": "failed",
    }


def test_fields_of_later_versions_are_passed_over(tmp_path: Path) -> None:
    """A newer kubelet's answer is read as far as it is known: field 9 of the response, a text."""
    assert containers_of(listing(tmp_path, PODS) + b"\x4a\x02hi") == EXPECTED


def test_without_grpc_the_state_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An agent without the extra goes on, and its metrics say what is missing."""
    found = builtins.__import__

    def without(name: str, *words: object, **named: object) -> object:
        if name == "grpc":
            raise ModuleNotFoundError(name="grpc")
        return found(name, *words, **named)  # type: ignore[arg-type]

    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "k"))
        monkeypatch.setattr(builtins, "__import__", without)
        with pytest.raises(Unavailable, match="kubernetes") as caught:
            list_containers(tmp_path / "k")
    assert caught.value.state == "not_installed"
