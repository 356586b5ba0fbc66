"""Series numbered once: from the tables of a batch to ids, and from ids back to labels."""

from __future__ import annotations

from collections.abc import Sequence

from spanlite.contract.batch import Batch
from spanlite.contract.columns import CONFIG, Int32, Table
from spanlite.contract.names import stage_label
from spanlite.contract.points import Launch, Series
from spanlite.contract.series_codec import decode_series, encode_series

_NAMES_BYTES = 8
"""CONFIG starts with the two text indexes, which differ from batch to batch; the rest of an entry is its identity."""


class SeriesRegistry:
    """Numbers series in the order in which they are first seen.

    Not thread-safe; partials are comparable only within one registry.
    """

    def __init__(self) -> None:
        self.series: list[Series] = []
        self._by_series: dict[Series, int] = {}
        self._by_entry: dict[tuple[object, ...], int] = {}
        self._encoded: dict[int, bytes] = {}
        self._by_encoded: dict[bytes, int] = {}

    def resolve(self, batch: Batch, kind: Int32, config: Int32, stage: Int32, gpu: Int32) -> list[int]:
        """Ids of the series that equally long index columns of a batch name; one entry a series, not a span.

        Stages that differ in their number only (request:1, request:2) are one series, so an id may come twice.

        Args:
            kind: Kind; config: index into the batch's configs; stage: into its strings; gpu: 1 + index into its GPUs.
        """
        columns = batch.columns
        strings, configs = columns.strings, columns.configs
        raw = configs.tobytes()
        size = CONFIG.itemsize
        kernels, names = configs["kernel"].tolist(), configs["name"].tolist()
        uuids = ["", *(each.uuid for each in batch.gpus)]
        owner = _owner(batch)
        labels = {s: stage_label(strings[s]) for s in set(stage.tolist())}
        ids: list[int] = []
        for k, c, s, g in zip(kind.tolist(), config.tolist(), stage.tolist(), gpu.tolist(), strict=True):
            launch, stage_text = raw[c * size + _NAMES_BYTES : (c + 1) * size], labels[s]
            entry = (strings[names[c]], launch, k, stage_text, uuids[g], owner)
            number = self._by_entry.get(entry)
            if number is None:
                kernel, name = strings[kernels[c]], strings[names[c]]
                series = Series(uuids[g], k, kernel, name, _launch(configs, c), stage_text, *owner)
                number = self._by_entry[entry] = self.number(series)
            ids.append(number)
        return ids

    def number(self, series: Series) -> int:
        """Id of a series, new or known."""
        known = self._by_series.get(series)
        if known is None:
            known = self._by_series[series] = len(self.series)
            self.series.append(series)
        return known

    def encoded(self, number: int) -> bytes:
        """A series as bytes."""
        known = self._encoded.get(number)
        if known is None:
            known = self._encoded[number] = encode_series(self.series[number])
        return known

    def numbers_encoded(self, data: Sequence[bytes]) -> list[int]:
        """Ids of series by their bytes.

        Raises:
            PointError: they are none.
        """
        for one in data:
            if one not in self._by_encoded:
                self._by_encoded[one] = self.number(decode_series(one))
        return list(map(self._by_encoded.__getitem__, data))


def _owner(batch: Batch) -> tuple[str, str, str, str, str]:
    get = batch.resource.get
    return (
        get("workload", ""),
        get("k8s.namespace.name", ""),
        get("k8s.pod.name", ""),
        get("k8s.container.name", ""),
        get("host.name", ""),
    )


def _launch(configs: Table, at: int) -> Launch:
    entry = configs[at]

    def number(name: str) -> int:
        return int(entry[name])

    def shape(name: str) -> tuple[int, int, int]:
        return number(f"{name}_x"), number(f"{name}_y"), number(f"{name}_z")

    rest = [number(name) for name in Launch._fields[3:]]
    return Launch(shape("grid"), shape("block"), shape("cluster"), *rest)
