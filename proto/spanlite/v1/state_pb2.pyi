from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Iterable as _Iterable, Optional as _Optional

DESCRIPTOR: _descriptor.FileDescriptor

class PartialAggregate(_message.Message):
    __slots__ = ("format", "series", "window", "series_index", "count", "spans", "sum_ns", "min_ns", "max_ns", "warp_ns", "bytes", "exemplar_trace", "exemplar_span", "exemplar_start_ns", "buckets", "bucket_index", "bucket_count")
    FORMAT_FIELD_NUMBER: _ClassVar[int]
    SERIES_FIELD_NUMBER: _ClassVar[int]
    WINDOW_FIELD_NUMBER: _ClassVar[int]
    SERIES_INDEX_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    SPANS_FIELD_NUMBER: _ClassVar[int]
    SUM_NS_FIELD_NUMBER: _ClassVar[int]
    MIN_NS_FIELD_NUMBER: _ClassVar[int]
    MAX_NS_FIELD_NUMBER: _ClassVar[int]
    WARP_NS_FIELD_NUMBER: _ClassVar[int]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    EXEMPLAR_TRACE_FIELD_NUMBER: _ClassVar[int]
    EXEMPLAR_SPAN_FIELD_NUMBER: _ClassVar[int]
    EXEMPLAR_START_NS_FIELD_NUMBER: _ClassVar[int]
    BUCKETS_FIELD_NUMBER: _ClassVar[int]
    BUCKET_INDEX_FIELD_NUMBER: _ClassVar[int]
    BUCKET_COUNT_FIELD_NUMBER: _ClassVar[int]
    format: int
    series: _containers.RepeatedScalarFieldContainer[bytes]
    window: bytes
    series_index: bytes
    count: bytes
    spans: bytes
    sum_ns: bytes
    min_ns: bytes
    max_ns: bytes
    warp_ns: bytes
    bytes: bytes
    exemplar_trace: bytes
    exemplar_span: bytes
    exemplar_start_ns: bytes
    buckets: bytes
    bucket_index: bytes
    bucket_count: bytes
    def __init__(self, format: _Optional[int] = ..., series: _Optional[_Iterable[bytes]] = ..., window: _Optional[bytes] = ..., series_index: _Optional[bytes] = ..., count: _Optional[bytes] = ..., spans: _Optional[bytes] = ..., sum_ns: _Optional[bytes] = ..., min_ns: _Optional[bytes] = ..., max_ns: _Optional[bytes] = ..., warp_ns: _Optional[bytes] = ..., bytes: _Optional[bytes] = ..., exemplar_trace: _Optional[bytes] = ..., exemplar_span: _Optional[bytes] = ..., exemplar_start_ns: _Optional[bytes] = ..., buckets: _Optional[bytes] = ..., bucket_index: _Optional[bytes] = ..., bucket_count: _Optional[bytes] = ...) -> None: ...

class ProducerProgress(_message.Message):
    __slots__ = ("format", "taken", "newest_unix_ns", "closed_before")
    FORMAT_FIELD_NUMBER: _ClassVar[int]
    TAKEN_FIELD_NUMBER: _ClassVar[int]
    NEWEST_UNIX_NS_FIELD_NUMBER: _ClassVar[int]
    CLOSED_BEFORE_FIELD_NUMBER: _ClassVar[int]
    format: int
    taken: _containers.RepeatedScalarFieldContainer[int]
    newest_unix_ns: int
    closed_before: int
    def __init__(self, format: _Optional[int] = ..., taken: _Optional[_Iterable[int]] = ..., newest_unix_ns: _Optional[int] = ..., closed_before: _Optional[int] = ...) -> None: ...
