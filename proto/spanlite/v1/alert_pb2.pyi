from spanlite.v1 import point_pb2 as _point_pb2
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Mapping as _Mapping, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Alert(_message.Message):
    __slots__ = ("id", "rule", "series", "since_unix_ns", "at_unix_ns", "resolved", "shift", "quantile", "count", "cause", "text")
    ID_FIELD_NUMBER: _ClassVar[int]
    RULE_FIELD_NUMBER: _ClassVar[int]
    SERIES_FIELD_NUMBER: _ClassVar[int]
    SINCE_UNIX_NS_FIELD_NUMBER: _ClassVar[int]
    AT_UNIX_NS_FIELD_NUMBER: _ClassVar[int]
    RESOLVED_FIELD_NUMBER: _ClassVar[int]
    SHIFT_FIELD_NUMBER: _ClassVar[int]
    QUANTILE_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    CAUSE_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    id: str
    rule: str
    series: _point_pb2.Series
    since_unix_ns: int
    at_unix_ns: int
    resolved: bool
    shift: float
    quantile: float
    count: int
    cause: str
    text: str
    def __init__(self, id: _Optional[str] = ..., rule: _Optional[str] = ..., series: _Optional[_Union[_point_pb2.Series, _Mapping]] = ..., since_unix_ns: _Optional[int] = ..., at_unix_ns: _Optional[int] = ..., resolved: bool = ..., shift: _Optional[float] = ..., quantile: _Optional[float] = ..., count: _Optional[int] = ..., cause: _Optional[str] = ..., text: _Optional[str] = ...) -> None: ...
