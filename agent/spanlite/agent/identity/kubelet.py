"""The kubelet's list of which container has which devices: its pod-resources API, over gRPC on a unix socket.

The only module that knows grpc. The few messages are described here, field by field, as
k8s.io/kubelet/pkg/apis/podresources/v1/api.proto numbers them.
"""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from spanlite.agent.identity.pods import Container, gpu_uuids
from spanlite.agent.identity.source import Unavailable

SOCKET = Path("/var/lib/kubelet/pod-resources/kubelet.sock")
_METHOD = "/v1.PodResourcesLister/List"
_MOST_BYTES = 16 << 20
"""Of an answer, as the kubelet's own clients allow."""

_MESSAGES = {
    "ListPodResourcesResponse": (("pod_resources", 1, "PodResources"),),
    "PodResources": (("name", 1, ""), ("namespace", 2, ""), ("containers", 3, "ContainerResources")),
    "ContainerResources": (
        ("name", 1, ""),
        ("devices", 2, "ContainerDevices"),
        ("dynamic_resources", 5, "DynamicResource"),
    ),
    "ContainerDevices": (("resource_name", 1, ""), ("device_ids", 2, "repeated")),
    "DynamicResource": (("claim_resources", 4, "ClaimResource"),),
    "ClaimResource": (("cdi_devices", 1, "CDIDevice"), ("device_name", 4, "")),
    "CDIDevice": (("name", 1, ""),),
}
"""Message → fields: name, number, and "" for a text, "repeated" for texts, else the repeated message."""


def list_containers(socket: Path = SOCKET, timeout_s: float = 1.0) -> list[Container]:
    """Containers that have GPUs.

    Raises:
        Unavailable: not_installed (no grpcio), absent (no socket), forbidden, timeout, failed.
    """
    try:
        found = socket.is_socket()
    except PermissionError as error:
        raise Unavailable("forbidden", f"{socket}: {error.strerror}") from error
    if not found:
        raise Unavailable("absent", f"no kubelet listens on {socket}")
    return containers_of(_ask(socket, timeout_s))


def containers_of(answer: bytes) -> list[Container]:
    """The containers with GPUs in a ListPodResourcesResponse.

    Raises:
        Unavailable: failed, the bytes are no such message.
    """
    from google.protobuf.message import DecodeError

    message = _response_class()()
    try:
        message.ParseFromString(answer)
    except DecodeError as error:
        raise Unavailable("failed", f"the kubelet's answer cannot be read: {error}") from error
    return [
        Container(pod.namespace, pod.name, container.name, gpus)
        for pod in message.pod_resources
        for container in pod.containers
        if (gpus := gpu_uuids(_device_ids(container)))
    ]


def _device_ids(container: Any) -> list[str]:
    plugged = [one for devices in container.devices for one in devices.device_ids]
    claimed = [one for resource in container.dynamic_resources for one in resource.claim_resources]
    return [
        *plugged,
        *(one.device_name for one in claimed),
        *(device.name for one in claimed for device in one.cdi_devices),
    ]


def _ask(socket: Path, timeout_s: float) -> bytes:
    try:
        import grpc  # type: ignore[import-untyped]  # it ships no types
    except ModuleNotFoundError as error:
        raise Unavailable("not_installed", "pip install 'spanlite[kubernetes]'") from error
    # The authority is for no one's eyes; gRPC would make one of the path, which servers refuse.
    options = [("grpc.max_receive_message_length", _MOST_BYTES), ("grpc.default_authority", "localhost")]
    with grpc.insecure_channel(f"unix://{socket.absolute()}", options=options) as channel:
        try:
            answer: bytes = channel.unary_unary(_METHOD)(b"", timeout=timeout_s)
        except grpc.RpcError as error:
            code = error.code()
            word = {grpc.StatusCode.DEADLINE_EXCEEDED: "timeout", grpc.StatusCode.PERMISSION_DENIED: "forbidden"}
            raise Unavailable(
                word.get(code, "failed"), f"the kubelet answers {code.name}: {error.details()}"
            ) from error
    return answer


@lru_cache(maxsize=1)
def _response_class() -> Any:
    file = descriptor_pb2.FileDescriptorProto(name="podresources.proto", package="v1", syntax="proto3")
    kinds = descriptor_pb2.FieldDescriptorProto
    for name, fields in _MESSAGES.items():
        message = file.message_type.add(name=name)
        for field, number, kind in fields:
            nested = kind in _MESSAGES
            message.field.add(
                name=field,
                number=number,
                label=kinds.LABEL_REPEATED if kind else kinds.LABEL_OPTIONAL,
                type=kinds.TYPE_MESSAGE if nested else kinds.TYPE_STRING,
                type_name=f".v1.{kind}" if nested else None,
            )
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("v1.ListPodResourcesResponse"))
