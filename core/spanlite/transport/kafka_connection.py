"""What a client hears from librdkafka beside its values: errors and log lines, kept and told without secrets."""

from __future__ import annotations

import json
import logging
import threading

from spanlite.runtime.clock import Clock
from spanlite.transport.kafka_reasons import reason_of
from spanlite.transport.kafka_settings import KafkaSettings
from spanlite.transport.kafka_tls import why_refused

log = logging.getLogger("spanlite.transport.kafka")

_QUIET_NS = 60_000_000_000
"""After a line of one kind, further ones are only counted for so long."""
_DOWN = ("_ALL_BROKERS_DOWN", "_AUTHENTICATION", "_SSL", "_FATAL")


class Connection:
    """State of the way to the brokers, as far as librdkafka tells.

    It takes librdkafka's callbacks, on whichever thread they come. With `level`, librdkafka's own lines are logged at
    that one: where each failure is raised they would say it twice.
    """

    def __init__(self, settings: KafkaSettings, clock: Clock, *, level: int | None = None) -> None:
        self._settings = settings
        self._clock = clock
        self._level = level
        self._lock = threading.Lock()
        self._asking = threading.Lock()
        self._lines: dict[str, tuple[int, int]] = {}
        self._healthy = True
        self._last_error = ""
        self._barred = ""
        self._asked_ns: int | None = None
        self._certificate = ""

    @property
    def healthy(self) -> bool:
        """False from the first error that leaves no broker to talk to until one is reached again."""
        return self._healthy

    @property
    def last_error(self) -> str:
        """The newest error, without secrets; empty once a broker is reached again."""
        return self._last_error

    @property
    def barred(self) -> str:
        """Why the brokers let nobody in: `auth`, `tls`, or empty when it is not that."""
        return self._barred

    def failed(self, name: str, text: str) -> None:
        """An error that concerns the connection and not one value."""
        reason = reason_of(name, text)
        cause = self._cause(text) if reason == "tls" else ""
        with self._lock:
            if name in _DOWN:
                self._healthy = False
            if reason in ("auth", "tls"):
                self._barred = reason
            # "1/1 brokers are down" says less than the error that made it so.
            if name != "_ALL_BROKERS_DOWN" or not self._last_error:
                self._last_error = self._settings.clean(f"{name.lstrip('_').lower()}: {cause}{text}")

    def _cause(self, text: str) -> str:
        """Why a certificate is refused; asked for once a minute, as it takes a connection."""
        with self._asking:  # librdkafka tells of one error in several threads: all are told the answer
            now_ns = self._clock.monotonic_ns()
            if self._asked_ns is None or now_ns - self._asked_ns >= _QUIET_NS:
                self._asked_ns = now_ns
                found = why_refused(self._settings, text)
                self._certificate = f"{found}; " if found else ""
                if found:
                    self.say(logging.ERROR, "CERTIFICATE", f"{found}: {text}")
            return self._certificate

    def works(self) -> None:
        """A broker has answered."""
        with self._lock:
            self._healthy, self._last_error, self._barred = True, "", ""

    def statistics(self, text: str) -> None:
        """librdkafka's periodic statistics, JSON: a connection that is up is all that matters here."""
        brokers = json.loads(text)["brokers"].values()
        if not self._healthy and any(broker["state"] == "UP" for broker in brokers):
            self.works()

    def log(self, level: int, message: str, *words: object) -> None:
        """A line of librdkafka's own log; words are its kind, the client's name and the text."""
        kind = str(words[0]) if words else message
        if kind == "CONFWARN":  # producers and consumers may share one file of properties
            level = logging.DEBUG
        self.say(level if self._level is None else self._level, kind, message % words)

    def say(self, level: int, kind: str, text: str) -> None:
        """Logs a line without secrets; of each kind one a minute, with the number of those left out."""
        now_ns = self._clock.monotonic_ns()
        with self._lock:
            said_ns, held_back = self._lines.get(kind, (now_ns - _QUIET_NS, 0))
            quiet = now_ns - said_ns < _QUIET_NS
            self._lines[kind] = (said_ns, held_back + 1) if quiet else (now_ns, 0)
        if not quiet:
            more = f" ({held_back} more of this kind before)" if held_back else ""
            log.log(level, "%s%s", self._settings.clean(text), more)
