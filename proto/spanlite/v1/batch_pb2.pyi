from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Iterable as _Iterable, Mapping as _Mapping, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Compression(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    COMPRESSION_UNSPECIFIED: _ClassVar[Compression]
    COMPRESSION_NONE: _ClassVar[Compression]
    COMPRESSION_ZSTD: _ClassVar[Compression]

class SamplingMode(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    SAMPLING_MODE_UNSPECIFIED: _ClassVar[SamplingMode]
    SAMPLING_MODE_FULL: _ClassVar[SamplingMode]
    SAMPLING_MODE_DUTY_CYCLE: _ClassVar[SamplingMode]
    SAMPLING_MODE_TRACES: _ClassVar[SamplingMode]
    SAMPLING_MODE_COUNTS_ONLY: _ClassVar[SamplingMode]
COMPRESSION_UNSPECIFIED: Compression
COMPRESSION_NONE: Compression
COMPRESSION_ZSTD: Compression
SAMPLING_MODE_UNSPECIFIED: SamplingMode
SAMPLING_MODE_FULL: SamplingMode
SAMPLING_MODE_DUTY_CYCLE: SamplingMode
SAMPLING_MODE_TRACES: SamplingMode
SAMPLING_MODE_COUNTS_ONLY: SamplingMode

class SpanBatch(_message.Message):
    __slots__ = ("format", "producer", "sequence", "session", "first_row", "rows", "emit_unix_ns", "first_start_unix_ns", "last_end_unix_ns", "clock", "sampling", "resource", "gpus", "compression", "body_size", "body")
    class ResourceEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    FORMAT_FIELD_NUMBER: _ClassVar[int]
    PRODUCER_FIELD_NUMBER: _ClassVar[int]
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    SESSION_FIELD_NUMBER: _ClassVar[int]
    FIRST_ROW_FIELD_NUMBER: _ClassVar[int]
    ROWS_FIELD_NUMBER: _ClassVar[int]
    EMIT_UNIX_NS_FIELD_NUMBER: _ClassVar[int]
    FIRST_START_UNIX_NS_FIELD_NUMBER: _ClassVar[int]
    LAST_END_UNIX_NS_FIELD_NUMBER: _ClassVar[int]
    CLOCK_FIELD_NUMBER: _ClassVar[int]
    SAMPLING_FIELD_NUMBER: _ClassVar[int]
    RESOURCE_FIELD_NUMBER: _ClassVar[int]
    GPUS_FIELD_NUMBER: _ClassVar[int]
    COMPRESSION_FIELD_NUMBER: _ClassVar[int]
    BODY_SIZE_FIELD_NUMBER: _ClassVar[int]
    BODY_FIELD_NUMBER: _ClassVar[int]
    format: int
    producer: bytes
    sequence: int
    session: int
    first_row: int
    rows: int
    emit_unix_ns: int
    first_start_unix_ns: int
    last_end_unix_ns: int
    clock: ClockAnchor
    sampling: Sampling
    resource: _containers.ScalarMap[str, str]
    gpus: _containers.RepeatedCompositeFieldContainer[Gpu]
    compression: Compression
    body_size: int
    body: bytes
    def __init__(self, format: _Optional[int] = ..., producer: _Optional[bytes] = ..., sequence: _Optional[int] = ..., session: _Optional[int] = ..., first_row: _Optional[int] = ..., rows: _Optional[int] = ..., emit_unix_ns: _Optional[int] = ..., first_start_unix_ns: _Optional[int] = ..., last_end_unix_ns: _Optional[int] = ..., clock: _Optional[_Union[ClockAnchor, _Mapping]] = ..., sampling: _Optional[_Union[Sampling, _Mapping]] = ..., resource: _Optional[_Mapping[str, str]] = ..., gpus: _Optional[_Iterable[_Union[Gpu, _Mapping]]] = ..., compression: _Optional[_Union[Compression, str]] = ..., body_size: _Optional[int] = ..., body: _Optional[bytes] = ...) -> None: ...

class ClockAnchor(_message.Message):
    __slots__ = ("cupti_ns", "unix_ns", "uncertainty_ns")
    CUPTI_NS_FIELD_NUMBER: _ClassVar[int]
    UNIX_NS_FIELD_NUMBER: _ClassVar[int]
    UNCERTAINTY_NS_FIELD_NUMBER: _ClassVar[int]
    cupti_ns: int
    unix_ns: int
    uncertainty_ns: int
    def __init__(self, cupti_ns: _Optional[int] = ..., unix_ns: _Optional[int] = ..., uncertainty_ns: _Optional[int] = ...) -> None: ...

class Sampling(_message.Message):
    __slots__ = ("mode", "weight")
    MODE_FIELD_NUMBER: _ClassVar[int]
    WEIGHT_FIELD_NUMBER: _ClassVar[int]
    mode: SamplingMode
    weight: int
    def __init__(self, mode: _Optional[_Union[SamplingMode, str]] = ..., weight: _Optional[int] = ...) -> None: ...

class Gpu(_message.Message):
    __slots__ = ("uuid", "index", "name", "compute_major", "compute_minor", "multiprocessors", "pci_bus_id", "mig_profile", "mig_instance")
    UUID_FIELD_NUMBER: _ClassVar[int]
    INDEX_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    COMPUTE_MAJOR_FIELD_NUMBER: _ClassVar[int]
    COMPUTE_MINOR_FIELD_NUMBER: _ClassVar[int]
    MULTIPROCESSORS_FIELD_NUMBER: _ClassVar[int]
    PCI_BUS_ID_FIELD_NUMBER: _ClassVar[int]
    MIG_PROFILE_FIELD_NUMBER: _ClassVar[int]
    MIG_INSTANCE_FIELD_NUMBER: _ClassVar[int]
    uuid: str
    index: int
    name: str
    compute_major: int
    compute_minor: int
    multiprocessors: int
    pci_bus_id: str
    mig_profile: str
    mig_instance: str
    def __init__(self, uuid: _Optional[str] = ..., index: _Optional[int] = ..., name: _Optional[str] = ..., compute_major: _Optional[int] = ..., compute_minor: _Optional[int] = ..., multiprocessors: _Optional[int] = ..., pci_bus_id: _Optional[str] = ..., mig_profile: _Optional[str] = ..., mig_instance: _Optional[str] = ...) -> None: ...

class SpanColumns(_message.Message):
    __slots__ = ("strings", "configs", "places", "nodes", "traces", "gap", "duration", "config", "place", "node", "kind", "stage", "trace", "parent", "correlation", "bytes", "range_number", "weight")
    STRINGS_FIELD_NUMBER: _ClassVar[int]
    CONFIGS_FIELD_NUMBER: _ClassVar[int]
    PLACES_FIELD_NUMBER: _ClassVar[int]
    NODES_FIELD_NUMBER: _ClassVar[int]
    TRACES_FIELD_NUMBER: _ClassVar[int]
    GAP_FIELD_NUMBER: _ClassVar[int]
    DURATION_FIELD_NUMBER: _ClassVar[int]
    CONFIG_FIELD_NUMBER: _ClassVar[int]
    PLACE_FIELD_NUMBER: _ClassVar[int]
    NODE_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    STAGE_FIELD_NUMBER: _ClassVar[int]
    TRACE_FIELD_NUMBER: _ClassVar[int]
    PARENT_FIELD_NUMBER: _ClassVar[int]
    CORRELATION_FIELD_NUMBER: _ClassVar[int]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    RANGE_NUMBER_FIELD_NUMBER: _ClassVar[int]
    WEIGHT_FIELD_NUMBER: _ClassVar[int]
    strings: _containers.RepeatedScalarFieldContainer[str]
    configs: Configs
    places: Places
    nodes: Nodes
    traces: Traces
    gap: Column
    duration: Column
    config: Column
    place: Column
    node: Column
    kind: Column
    stage: Column
    trace: Column
    parent: Column
    correlation: Column
    bytes: Column
    range_number: Column
    weight: Column
    def __init__(self, strings: _Optional[_Iterable[str]] = ..., configs: _Optional[_Union[Configs, _Mapping]] = ..., places: _Optional[_Union[Places, _Mapping]] = ..., nodes: _Optional[_Union[Nodes, _Mapping]] = ..., traces: _Optional[_Union[Traces, _Mapping]] = ..., gap: _Optional[_Union[Column, _Mapping]] = ..., duration: _Optional[_Union[Column, _Mapping]] = ..., config: _Optional[_Union[Column, _Mapping]] = ..., place: _Optional[_Union[Column, _Mapping]] = ..., node: _Optional[_Union[Column, _Mapping]] = ..., kind: _Optional[_Union[Column, _Mapping]] = ..., stage: _Optional[_Union[Column, _Mapping]] = ..., trace: _Optional[_Union[Column, _Mapping]] = ..., parent: _Optional[_Union[Column, _Mapping]] = ..., correlation: _Optional[_Union[Column, _Mapping]] = ..., bytes: _Optional[_Union[Column, _Mapping]] = ..., range_number: _Optional[_Union[Column, _Mapping]] = ..., weight: _Optional[_Union[Column, _Mapping]] = ...) -> None: ...

class Column(_message.Message):
    __slots__ = ("width", "base", "planes")
    WIDTH_FIELD_NUMBER: _ClassVar[int]
    BASE_FIELD_NUMBER: _ClassVar[int]
    PLANES_FIELD_NUMBER: _ClassVar[int]
    width: int
    base: int
    planes: bytes
    def __init__(self, width: _Optional[int] = ..., base: _Optional[int] = ..., planes: _Optional[bytes] = ...) -> None: ...

class Configs(_message.Message):
    __slots__ = ("rows", "kernel", "name", "grid_x", "grid_y", "grid_z", "block_x", "block_y", "block_z", "cluster_x", "cluster_y", "cluster_z", "registers_per_thread", "static_shared_memory", "dynamic_shared_memory", "shared_memory_executed", "local_memory_per_thread", "launch_type", "copy_kind", "active_warps", "max_warps", "limiter")
    ROWS_FIELD_NUMBER: _ClassVar[int]
    KERNEL_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
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
    rows: int
    kernel: Column
    name: Column
    grid_x: Column
    grid_y: Column
    grid_z: Column
    block_x: Column
    block_y: Column
    block_z: Column
    cluster_x: Column
    cluster_y: Column
    cluster_z: Column
    registers_per_thread: Column
    static_shared_memory: Column
    dynamic_shared_memory: Column
    shared_memory_executed: Column
    local_memory_per_thread: Column
    launch_type: Column
    copy_kind: Column
    active_warps: Column
    max_warps: Column
    limiter: Column
    def __init__(self, rows: _Optional[int] = ..., kernel: _Optional[_Union[Column, _Mapping]] = ..., name: _Optional[_Union[Column, _Mapping]] = ..., grid_x: _Optional[_Union[Column, _Mapping]] = ..., grid_y: _Optional[_Union[Column, _Mapping]] = ..., grid_z: _Optional[_Union[Column, _Mapping]] = ..., block_x: _Optional[_Union[Column, _Mapping]] = ..., block_y: _Optional[_Union[Column, _Mapping]] = ..., block_z: _Optional[_Union[Column, _Mapping]] = ..., cluster_x: _Optional[_Union[Column, _Mapping]] = ..., cluster_y: _Optional[_Union[Column, _Mapping]] = ..., cluster_z: _Optional[_Union[Column, _Mapping]] = ..., registers_per_thread: _Optional[_Union[Column, _Mapping]] = ..., static_shared_memory: _Optional[_Union[Column, _Mapping]] = ..., dynamic_shared_memory: _Optional[_Union[Column, _Mapping]] = ..., shared_memory_executed: _Optional[_Union[Column, _Mapping]] = ..., local_memory_per_thread: _Optional[_Union[Column, _Mapping]] = ..., launch_type: _Optional[_Union[Column, _Mapping]] = ..., copy_kind: _Optional[_Union[Column, _Mapping]] = ..., active_warps: _Optional[_Union[Column, _Mapping]] = ..., max_warps: _Optional[_Union[Column, _Mapping]] = ..., limiter: _Optional[_Union[Column, _Mapping]] = ...) -> None: ...

class Places(_message.Message):
    __slots__ = ("rows", "gpu", "device_id", "context_id", "stream_id", "channel_id", "channel_type", "priority", "thread_id")
    ROWS_FIELD_NUMBER: _ClassVar[int]
    GPU_FIELD_NUMBER: _ClassVar[int]
    DEVICE_ID_FIELD_NUMBER: _ClassVar[int]
    CONTEXT_ID_FIELD_NUMBER: _ClassVar[int]
    STREAM_ID_FIELD_NUMBER: _ClassVar[int]
    CHANNEL_ID_FIELD_NUMBER: _ClassVar[int]
    CHANNEL_TYPE_FIELD_NUMBER: _ClassVar[int]
    PRIORITY_FIELD_NUMBER: _ClassVar[int]
    THREAD_ID_FIELD_NUMBER: _ClassVar[int]
    rows: int
    gpu: Column
    device_id: Column
    context_id: Column
    stream_id: Column
    channel_id: Column
    channel_type: Column
    priority: Column
    thread_id: Column
    def __init__(self, rows: _Optional[int] = ..., gpu: _Optional[_Union[Column, _Mapping]] = ..., device_id: _Optional[_Union[Column, _Mapping]] = ..., context_id: _Optional[_Union[Column, _Mapping]] = ..., stream_id: _Optional[_Union[Column, _Mapping]] = ..., channel_id: _Optional[_Union[Column, _Mapping]] = ..., channel_type: _Optional[_Union[Column, _Mapping]] = ..., priority: _Optional[_Union[Column, _Mapping]] = ..., thread_id: _Optional[_Union[Column, _Mapping]] = ...) -> None: ...

class Nodes(_message.Message):
    __slots__ = ("rows", "graph_id", "graph_node_id")
    ROWS_FIELD_NUMBER: _ClassVar[int]
    GRAPH_ID_FIELD_NUMBER: _ClassVar[int]
    GRAPH_NODE_ID_FIELD_NUMBER: _ClassVar[int]
    rows: int
    graph_id: Column
    graph_node_id: Column
    def __init__(self, rows: _Optional[int] = ..., graph_id: _Optional[_Union[Column, _Mapping]] = ..., graph_node_id: _Optional[_Union[Column, _Mapping]] = ...) -> None: ...

class Traces(_message.Message):
    __slots__ = ("rows", "ids", "remote_parent", "start_unix_ns")
    ROWS_FIELD_NUMBER: _ClassVar[int]
    IDS_FIELD_NUMBER: _ClassVar[int]
    REMOTE_PARENT_FIELD_NUMBER: _ClassVar[int]
    START_UNIX_NS_FIELD_NUMBER: _ClassVar[int]
    rows: int
    ids: bytes
    remote_parent: Column
    start_unix_ns: Column
    def __init__(self, rows: _Optional[int] = ..., ids: _Optional[bytes] = ..., remote_parent: _Optional[_Union[Column, _Mapping]] = ..., start_unix_ns: _Optional[_Union[Column, _Mapping]] = ...) -> None: ...
