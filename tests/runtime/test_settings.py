"""Defaults from file and environment."""

from __future__ import annotations

from pathlib import Path

import pytest

from spanlite.contract.errors import UsageError
from spanlite.runtime.settings import defaults

FLAGS = {"window": False, "top_k": False, "quiet": True}
COMMANDS = ("ingest", "demo")


def test_the_environment_wins_over_the_file(tmp_path: Path) -> None:
    """One value in both places: the variable's is taken; the file fills in the rest."""
    file = tmp_path / "spanlite.toml"
    file.write_text('[ingest]\nwindow = "2s"\ntop-k = 7\n[demo]\nport = 1\n')
    found = defaults(
        "ingest", FLAGS, config=file, environment={"SPANLITE_INGEST_WINDOW": "3s", "HOME": "/"}, commands=COMMANDS
    )
    assert found == {"window": "3s", "top_k": "7"}


def test_the_file_may_be_named_by_a_variable(tmp_path: Path) -> None:
    """SPANLITE_CONFIG is the flag's twin, and switches are read as such."""
    file = tmp_path / "spanlite.toml"
    file.write_text("[ingest]\nquiet = true\n")
    assert defaults("ingest", FLAGS, environment={"SPANLITE_CONFIG": str(file)}) == {"quiet": True}


@pytest.mark.parametrize(
    ("environment", "said"),
    [
        ({"SPANLITE_INGEST_WINDW": "3s"}, "did you mean SPANLITE_INGEST_WINDOW"),
        ({"SPANLITE_INJEST_WINDOW": "3s"}, "SPANLITE_INJEST_WINDOW is not known"),
        ({"SPANLITE_INGEST_QUIET": "perhaps"}, "must be true or false"),
    ],
)
def test_a_slip_in_the_environment_is_named(environment: dict[str, str], said: str) -> None:
    """An unknown or senseless variable stops the start instead of being ignored."""
    with pytest.raises(UsageError, match=said):
        defaults("ingest", FLAGS, environment=environment, commands=COMMANDS)


def test_variables_of_other_commands_and_tools_are_left_alone() -> None:
    """A node sets variables for several commands at once."""
    environment = {"SPANLITE_DEMO_PORT": "1", "SPANLITE_RECORDINGS": "x", "SPANLITE_DISABLE": "1"}
    assert defaults("ingest", FLAGS, environment=environment, commands=COMMANDS) == {}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('[ingest]\nwindw = "2s"\n', "did you mean window"),
        ("[ingest\n", "no valid TOML"),
        ("ingest = 3\n", "must be a table"),
    ],
)
def test_a_slip_in_the_file_is_named(tmp_path: Path, text: str, said: str) -> None:
    """The message names the file and what is wrong in it."""
    file = tmp_path / "spanlite.toml"
    file.write_text(text)
    with pytest.raises(UsageError, match=said) as caught:
        defaults("ingest", FLAGS, config=file, environment={}, commands=COMMANDS)
    assert str(file) in str(caught.value)


def test_a_missing_file_is_an_error(tmp_path: Path) -> None:
    """A file that was named must be there."""
    with pytest.raises(UsageError, match="No such file"):
        defaults("ingest", FLAGS, config=tmp_path / "none.toml", environment={}, commands=COMMANDS)
