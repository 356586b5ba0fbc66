"""A kubelet as far as the pod-resources API goes: a real gRPC server on a unix socket, with messages by protoc."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from importlib import resources
from pathlib import Path
from typing import Any

import grpc  # type: ignore[import-untyped]  # it ships no types
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from grpc_tools import protoc  # type: ignore[import-untyped]  # likewise

PROTO = Path(__file__).with_name("podresources.proto")
Answer = Callable[[grpc.ServicerContext], bytes]


def message_class(folder: Path, name: str) -> Any:
    """A message of podresources.proto, compiled by protoc."""
    target = folder / "podresources.binpb"
    include = str(resources.files("grpc_tools") / "_proto")
    words = ["protoc", f"-I{PROTO.parent}", f"-I{include}", f"--descriptor_set_out={target}", PROTO.name]
    assert protoc.main(words) == 0
    found = descriptor_pb2.FileDescriptorSet.FromString(target.read_bytes())
    pool = descriptor_pool.DescriptorPool()
    pool.Add(found.file[0])
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(f"v1.{name}"))


def listing(folder: Path, pods: Sequence[dict[str, Any]]) -> bytes:
    """A ListPodResourcesResponse."""
    message: bytes = message_class(folder, "ListPodResourcesResponse")(pod_resources=pods).SerializeToString()
    return message


@contextmanager
def kubelet(socket: Path, answer: Answer) -> Iterator[None]:
    """Answers List with the bytes, or as `answer` aborts; ends when the context does."""

    def listed(_request: bytes, context: grpc.ServicerContext) -> bytes:
        return answer(context)

    handler = grpc.method_handlers_generic_handler(
        "v1.PodResourcesLister", {"List": grpc.unary_unary_rpc_method_handler(listed)}
    )
    with ThreadPoolExecutor(2) as workers:
        server = grpc.server(workers, handlers=[handler])
        server.add_insecure_port(f"unix://{socket}")
        server.start()
        try:
            yield
        finally:
            server.stop(None).wait()


@contextmanager
def hanging_kubelet(socket: Path) -> Iterator[None]:
    """Takes calls and never answers, until the context ends."""
    ended = threading.Event()

    def wait(_context: grpc.ServicerContext) -> bytes:
        ended.wait(60)
        return b""

    with kubelet(socket, wait):
        try:
            yield
        finally:
            ended.set()
