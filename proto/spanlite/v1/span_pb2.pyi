from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Mapping as _Mapping, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class SpanKind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    SPAN_KIND_UNSPECIFIED: _ClassVar[SpanKind]
    SPAN_KIND_KERNEL: _ClassVar[SpanKind]
    SPAN_KIND_MEMCPY: _ClassVar[SpanKind]
    SPAN_KIND_MEMSET: _ClassVar[SpanKind]
    SPAN_KIND_RANGE: _ClassVar[SpanKind]
    SPAN_KIND_TIMING: _ClassVar[SpanKind]
    SPAN_KIND_COUNTER: _ClassVar[SpanKind]
    SPAN_KIND_GAUGE: _ClassVar[SpanKind]

class OccupancyLimiter(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    OCCUPANCY_LIMITER_UNSPECIFIED: _ClassVar[OccupancyLimiter]
    OCCUPANCY_LIMITER_WARPS: _ClassVar[OccupancyLimiter]
    OCCUPANCY_LIMITER_BLOCKS: _ClassVar[OccupancyLimiter]
    OCCUPANCY_LIMITER_REGISTERS: _ClassVar[OccupancyLimiter]
    OCCUPANCY_LIMITER_SHARED_MEMORY: _ClassVar[OccupancyLimiter]
    OCCUPANCY_LIMITER_BARRIERS: _ClassVar[OccupancyLimiter]
SPAN_KIND_UNSPECIFIED: SpanKind
SPAN_KIND_KERNEL: SpanKind
SPAN_KIND_MEMCPY: SpanKind
SPAN_KIND_MEMSET: SpanKind
SPAN_KIND_RANGE: SpanKind
SPAN_KIND_TIMING: SpanKind
SPAN_KIND_COUNTER: SpanKind
SPAN_KIND_GAUGE: SpanKind
OCCUPANCY_LIMITER_UNSPECIFIED: OccupancyLimiter
OCCUPANCY_LIMITER_WARPS: OccupancyLimiter
OCCUPANCY_LIMITER_BLOCKS: OccupancyLimiter
OCCUPANCY_LIMITER_REGISTERS: OccupancyLimiter
OCCUPANCY_LIMITER_SHARED_MEMORY: OccupancyLimiter
OCCUPANCY_LIMITER_BARRIERS: OccupancyLimiter

class SpanLite(_message.Message):
    __slots__ = ("trace_id", "span_id", "parent_span_id", "kind", "start_unix_ns", "duration_ns", "kernel", "name", "config", "place", "correlation_id", "graph_id", "graph_node_id", "stage", "bytes", "weight")
    TRACE_ID_FIELD_NUMBER: _ClassVar[int]
    SPAN_ID_FIELD_NUMBER: _ClassVar[int]
    PARENT_SPAN_ID_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    START_UNIX_NS_FIELD_NUMBER: _ClassVar[int]
    DURATION_NS_FIELD_NUMBER: _ClassVar[int]
    KERNEL_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    CONFIG_FIELD_NUMBER: _ClassVar[int]
    PLACE_FIELD_NUMBER: _ClassVar[int]
    CORRELATION_ID_FIELD_NUMBER: _ClassVar[int]
    GRAPH_ID_FIELD_NUMBER: _ClassVar[int]
    GRAPH_NODE_ID_FIELD_NUMBER: _ClassVar[int]
    STAGE_FIELD_NUMBER: _ClassVar[int]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    WEIGHT_FIELD_NUMBER: _ClassVar[int]
    trace_id: bytes
    span_id: int
    parent_span_id: int
    kind: SpanKind
    start_unix_ns: int
    duration_ns: int
    kernel: str
    name: str
    config: LaunchConfig
    place: Place
    correlation_id: int
    graph_id: int
    graph_node_id: int
    stage: str
    bytes: int
    weight: int
    def __init__(self, trace_id: _Optional[bytes] = ..., span_id: _Optional[int] = ..., parent_span_id: _Optional[int] = ..., kind: _Optional[_Union[SpanKind, str]] = ..., start_unix_ns: _Optional[int] = ..., duration_ns: _Optional[int] = ..., kernel: _Optional[str] = ..., name: _Optional[str] = ..., config: _Optional[_Union[LaunchConfig, _Mapping]] = ..., place: _Optional[_Union[Place, _Mapping]] = ..., correlation_id: _Optional[int] = ..., graph_id: _Optional[int] = ..., graph_node_id: _Optional[int] = ..., stage: _Optional[str] = ..., bytes: _Optional[int] = ..., weight: _Optional[int] = ...) -> None: ...

class LaunchConfig(_message.Message):
    __slots__ = ("grid_x", "grid_y", "grid_z", "block_x", "block_y", "block_z", "cluster_x", "cluster_y", "cluster_z", "registers_per_thread", "static_shared_memory", "dynamic_shared_memory", "shared_memory_executed", "local_memory_per_thread", "launch_type", "copy_kind", "active_warps", "max_warps", "limiter")
    GRID_X_FIELD_NUMBER: _ClassVar[int]
    GRID_Y_FIELD_NUMBER: _ClassVar[int]
    GRID_Z_FIELD_NUMBER: _ClassVar[int]
    BLOCK_X_FIELD_NUMBER: _ClassVar[int]
    BLOCK_Y_FIELD_NUMBER: _ClassVar[int]
    BLOCK_Z_FIELD_NUMBER: _ClassVar[int]
    CLUSTER_X_FIELD_NUMBER: _ClassVar[int]
    CLUSTER_Y_FIELD_NUMBER: _ClassVar[int]
    CLUSTER_Z_FIELD_NUMBER: _ClassVar[int]
    REGISTERS_PER_THREAD_FIELD_NUMBER: _ClassVar[int]
    STATIC_SHARED_MEMORY_FIELD_NUMBER: _ClassVar[int]
    DYNAMIC_SHARED_MEMORY_FIELD_NUMBER: _ClassVar[int]
    SHARED_MEMORY_EXECUTED_FIELD_NUMBER: _ClassVar[int]
    LOCAL_MEMORY_PER_THREAD_FIELD_NUMBER: _ClassVar[int]
    LAUNCH_TYPE_FIELD_NUMBER: _ClassVar[int]
    COPY_KIND_FIELD_NUMBER: _ClassVar[int]
    ACTIVE_WARPS_FIELD_NUMBER: _ClassVar[int]
    MAX_WARPS_FIELD_NUMBER: _ClassVar[int]
    LIMITER_FIELD_NUMBER: _ClassVar[int]
    grid_x: int
    grid_y: int
    grid_z: int
    block_x: int
    block_y: int
    block_z: int
    cluster_x: int
    cluster_y: int
    cluster_z: int
    registers_per_thread: int
    static_shared_memory: int
    dynamic_shared_memory: int
    shared_memory_executed: int
    local_memory_per_thread: int
    launch_type: int
    copy_kind: int
    active_warps: int
    max_warps: int
    limiter: OccupancyLimiter
    def __init__(self, grid_x: _Optional[int] = ..., grid_y: _Optional[int] = ..., grid_z: _Optional[int] = ..., block_x: _Optional[int] = ..., block_y: _Optional[int] = ..., block_z: _Optional[int] = ..., cluster_x: _Optional[int] = ..., cluster_y: _Optional[int] = ..., cluster_z: _Optional[int] = ..., registers_per_thread: _Optional[int] = ..., static_shared_memory: _Optional[int] = ..., dynamic_shared_memory: _Optional[int] = ..., shared_memory_executed: _Optional[int] = ..., local_memory_per_thread: _Optional[int] = ..., launch_type: _Optional[int] = ..., copy_kind: _Optional[int] = ..., active_warps: _Optional[int] = ..., max_warps: _Optional[int] = ..., limiter: _Optional[_Union[OccupancyLimiter, str]] = ...) -> None: ...

class Place(_message.Message):
    __slots__ = ("gpu_uuid", "device_id", "context_id", "stream_id", "channel_id", "channel_type", "priority", "thread_id")
    GPU_UUID_FIELD_NUMBER: _ClassVar[int]
    DEVICE_ID_FIELD_NUMBER: _ClassVar[int]
    CONTEXT_ID_FIELD_NUMBER: _ClassVar[int]
    STREAM_ID_FIELD_NUMBER: _ClassVar[int]
    CHANNEL_ID_FIELD_NUMBER: _ClassVar[int]
    CHANNEL_TYPE_FIELD_NUMBER: _ClassVar[int]
    PRIORITY_FIELD_NUMBER: _ClassVar[int]
    THREAD_ID_FIELD_NUMBER: _ClassVar[int]
    gpu_uuid: str
    device_id: int
    context_id: int
    stream_id: int
    channel_id: int
    channel_type: int
    priority: int
    thread_id: int
    def __init__(self, gpu_uuid: _Optional[str] = ..., device_id: _Optional[int] = ..., context_id: _Optional[int] = ..., stream_id: _Optional[int] = ..., channel_id: _Optional[int] = ..., channel_type: _Optional[int] = ..., priority: _Optional[int] = ..., thread_id: _Optional[int] = ...) -> None: ...
