from spanlite.v1 import span_pb2 as _span_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Iterable as _Iterable, Mapping as _Mapping, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class MetricPoint(_message.Message):
    __slots__ = ("series", "window_start_unix_ns", "window_end_unix_ns", "cumulative", "count", "spans", "sum_ns", "min_ns", "max_ns", "warp_ns", "bytes", "schema", "bucket_index", "bucket_count", "exemplar", "epoch")
    SERIES_FIELD_NUMBER: _ClassVar[int]
    WINDOW_START_UNIX_NS_FIELD_NUMBER: _ClassVar[int]
    WINDOW_END_UNIX_NS_FIELD_NUMBER: _ClassVar[int]
    CUMULATIVE_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    SPANS_FIELD_NUMBER: _ClassVar[int]
    SUM_NS_FIELD_NUMBER: _ClassVar[int]
    MIN_NS_FIELD_NUMBER: _ClassVar[int]
    MAX_NS_FIELD_NUMBER: _ClassVar[int]
    WARP_NS_FIELD_NUMBER: _ClassVar[int]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    SCHEMA_FIELD_NUMBER: _ClassVar[int]
    BUCKET_INDEX_FIELD_NUMBER: _ClassVar[int]
    BUCKET_COUNT_FIELD_NUMBER: _ClassVar[int]
    EXEMPLAR_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    series: Series
    window_start_unix_ns: int
    window_end_unix_ns: int
    cumulative: bool
    count: int
    spans: int
    sum_ns: int
    min_ns: int
    max_ns: int
    warp_ns: int
    bytes: int
    schema: int
    bucket_index: _containers.RepeatedScalarFieldContainer[int]
    bucket_count: _containers.RepeatedScalarFieldContainer[int]
    exemplar: Exemplar
    epoch: int
    def __init__(self, series: _Optional[_Union[Series, _Mapping]] = ..., window_start_unix_ns: _Optional[int] = ..., window_end_unix_ns: _Optional[int] = ..., cumulative: bool = ..., count: _Optional[int] = ..., spans: _Optional[int] = ..., sum_ns: _Optional[int] = ..., min_ns: _Optional[int] = ..., max_ns: _Optional[int] = ..., warp_ns: _Optional[int] = ..., bytes: _Optional[int] = ..., schema: _Optional[int] = ..., bucket_index: _Optional[_Iterable[int]] = ..., bucket_count: _Optional[_Iterable[int]] = ..., exemplar: _Optional[_Union[Exemplar, _Mapping]] = ..., epoch: _Optional[int] = ...) -> None: ...

class Series(_message.Message):
    __slots__ = ("gpu_uuid", "kind", "kernel", "name", "config", "stage", "workload", "namespace", "pod", "container", "host")
    GPU_UUID_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    KERNEL_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    CONFIG_FIELD_NUMBER: _ClassVar[int]
    STAGE_FIELD_NUMBER: _ClassVar[int]
    WORKLOAD_FIELD_NUMBER: _ClassVar[int]
    NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    POD_FIELD_NUMBER: _ClassVar[int]
    CONTAINER_FIELD_NUMBER: _ClassVar[int]
    HOST_FIELD_NUMBER: _ClassVar[int]
    gpu_uuid: str
    kind: _span_pb2.SpanKind
    kernel: str
    name: str
    config: _span_pb2.LaunchConfig
    stage: str
    workload: str
    namespace: str
    pod: str
    container: str
    host: str
    def __init__(self, gpu_uuid: _Optional[str] = ..., kind: _Optional[_Union[_span_pb2.SpanKind, str]] = ..., kernel: _Optional[str] = ..., name: _Optional[str] = ..., config: _Optional[_Union[_span_pb2.LaunchConfig, _Mapping]] = ..., stage: _Optional[str] = ..., workload: _Optional[str] = ..., namespace: _Optional[str] = ..., pod: _Optional[str] = ..., container: _Optional[str] = ..., host: _Optional[str] = ...) -> None: ...

class Exemplar(_message.Message):
    __slots__ = ("trace_id", "span_id", "duration_ns", "start_unix_ns")
    TRACE_ID_FIELD_NUMBER: _ClassVar[int]
    SPAN_ID_FIELD_NUMBER: _ClassVar[int]
    DURATION_NS_FIELD_NUMBER: _ClassVar[int]
    START_UNIX_NS_FIELD_NUMBER: _ClassVar[int]
    trace_id: bytes
    span_id: int
    duration_ns: int
    start_unix_ns: int
    def __init__(self, trace_id: _Optional[bytes] = ..., span_id: _Optional[int] = ..., duration_ns: _Optional[int] = ..., start_unix_ns: _Optional[int] = ...) -> None: ...
