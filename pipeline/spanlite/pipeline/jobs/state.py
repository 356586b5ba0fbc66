"""The ports of `pipeline.keyed` over Flink's keyed state. Values are byte arrays: nothing is pickled.

Flink's two execution modes treat a byte array in state differently. In process mode the type of byte arrays is what it
should be. In thread mode PyFlink turns a value of that type into a tuple of ints and back, and fails over a missing
one; a type that it does not know it hands to Java as a byte array, untouched.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from pyflink.common import Types
from pyflink.common.typeinfo import TypeInformation
from pyflink.datastream import RuntimeContext
from pyflink.datastream.state import ListStateDescriptor, MapStateDescriptor, ValueStateDescriptor

BYTES = Types.PRIMITIVE_ARRAY(Types.BYTE())
"""Of byte arrays in records, in both modes."""


class _Untouched(TypeInformation):  # type: ignore[misc]  # pyflink ships no types
    """A byte array in thread mode's state."""


def _in_thread_mode(context: RuntimeContext) -> bool:
    return ".embedded." in type(context).__module__


def _type(context: RuntimeContext) -> TypeInformation:
    return _Untouched() if _in_thread_mode(context) else BYTES


class FlinkValue:
    """One value of the current key."""

    def __init__(self, context: RuntimeContext, name: str) -> None:
        self._state = context.get_state(ValueStateDescriptor(name, _type(context)))

    def get(self) -> bytes | None:
        value = self._state.value()
        return None if value is None else bytes(value)

    def put(self, value: bytes) -> None:
        self._state.update(value)

    def clear(self) -> None:
        self._state.clear()


class FlinkLog:
    """A list of the current key."""

    def __init__(self, context: RuntimeContext, name: str) -> None:
        self._state = context.get_list_state(ListStateDescriptor(name, _type(context)))

    def read(self) -> list[bytes]:
        return [bytes(value) for value in self._state.get() or ()]

    def append(self, value: bytes) -> None:
        self._state.add(value)

    def replace(self, values: Sequence[bytes]) -> None:
        if values:
            self._state.update(list(values))
        else:
            self._state.clear()


class FlinkTable:
    """Named values of the current key; names are kept as text, since Java compares byte arrays by identity."""

    def __init__(self, context: RuntimeContext, name: str) -> None:
        self._state = context.get_map_state(MapStateDescriptor(name, Types.STRING(), _type(context)))
        self._in_thread_mode = _in_thread_mode(context)

    def values(self) -> Iterable[bytes]:
        return [bytes(value) for value in self._state.values()]

    def put_all(self, pairs: Iterable[tuple[bytes, bytes]]) -> None:
        if self._in_thread_mode:
            self._state.put_all({name.hex(): value for name, value in pairs})
            return
        # Process mode's put_all wants no dict, which its signature asks for; its put only fills a cache.
        for name, value in pairs:
            self._state.put(name.hex(), value)
