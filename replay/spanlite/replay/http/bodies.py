"""Bodies and addresses from templates: Jinja's, in its sandbox, compiled once, checked before anything is sent.

The only module that imports jinja2.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from jinja2 import StrictUndefined, Template, TemplateError, meta
from jinja2.sandbox import ImmutableSandboxedEnvironment

from spanlite.contract.errors import ReplayError, UsageError

VARIABLES = (
    "trace_id",
    "name",
    "start_ns",
    "duration_ns",
    "spans",
    "kernels",
    "stages",
    "gpus",
    "host",
    "resource",
    "index",
    "loop",
    "due_ns",
)
"""What a template may name; see docs/replay-http.md."""
DEFAULT_BODY = (
    '{"trace_id": {{ trace_id|tojson }}, "name": {{ name|tojson }}, "spans": {{ spans }}, '
    '"duration_ns": {{ duration_ns }}}'
)
MOST_BYTES = 16 << 20
_GLOBALS = ("range", "dict", "namespace")
_FAULTS = (TemplateError, ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError)
"""What running a template may raise for what stands in it."""


class TextTemplate:
    """A template.

    Attributes:
        source: its text, as given.
        names: the variables that it uses.
        constant: what it always makes, if it uses none.
    """

    def __init__(self, flag: str, source: str) -> None:
        """Compiles it.

        Args:
            flag: where it was given, for messages.
            source: its text.

        Raises:
            UsageError: it is none, or names what there is not.
        """
        self._flag, self.source = flag, source
        environment = ImmutableSandboxedEnvironment(undefined=StrictUndefined, keep_trailing_newline=True)
        environment.globals = {name: environment.globals[name] for name in _GLOBALS}
        try:
            tree = environment.parse(source)
            named = meta.find_undeclared_variables(tree) - set(_GLOBALS)
            if strange := sorted(named - set(VARIABLES)):
                raise UsageError(f"{flag}: nothing is called {', '.join(strange)}; there are {', '.join(VARIABLES)}")
            self._template: Template = environment.from_string(tree)
        except TemplateError as error:
            at = f" in line {line}" if (line := getattr(error, "lineno", None)) else ""
            raise UsageError(f"{flag} is no template{at}: {error.message or type(error).__name__}") from error
        self.names = frozenset(named)
        self.constant = None if named or "{" in source else source

    def check(self, facts: Mapping[str, object]) -> None:
        """Renders it once, before anything is sent.

        Raises:
            UsageError: it cannot be.
        """
        try:
            self.render(facts)
        except ReplayError as error:
            raise UsageError(str(error)) from error

    def render(self, facts: Mapping[str, object]) -> str:
        """The text for one request.

        Raises:
            ReplayError: the template does something that this trace, or the sandbox, does not allow.
        """
        if self.constant is not None:
            return self.constant
        try:
            text = self._template.render(facts)
        except _FAULTS as error:
            said = str(error) or type(error).__name__
            raise ReplayError(f"{self._flag}: request {facts['index']}, trace {facts['trace_id']}: {said}") from error
        if len(text) > MOST_BYTES:
            raise ReplayError(
                f"{self._flag}: request {facts['index']}, trace {facts['trace_id']}: {len(text)} characters; "
                f"write a template that makes at most {MOST_BYTES}"
            )
        return text


def names_of(templates: Iterable[TextTemplate | None]) -> frozenset[str]:
    """All variables that any of them uses."""
    return frozenset[str]().union(*(template.names for template in templates if template is not None))
