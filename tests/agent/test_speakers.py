"""Who speaks for a group: one at a time, handed on when it ends."""

from __future__ import annotations

from collections.abc import Callable

from hypothesis import given
from hypothesis import strategies as st

from spanlite.agent.speakers import REST, SPEAK, Speakers

RANK = {"service.name": "train"}


class Heard(dict[int, bytes]):
    """What each process has been told."""

    def of(self, number: int) -> Callable[[bytes], None]:
        """The way to one."""
        self[number] = b""

        def tell(word: bytes) -> None:
            self[number] += word

        return tell


def test_the_first_speaks_and_the_next_takes_over() -> None:
    """A rank that ends must not leave its group without anybody."""
    speakers, heard = Speakers(), Heard()
    for number in (1, 2, 3):
        speakers.join(number, RANK, heard.of(number))
    assert heard == {1: SPEAK, 2: REST, 3: REST}
    speakers.leave(2)
    speakers.leave(1)
    assert heard == {1: SPEAK, 2: REST, 3: REST + SPEAK}


def test_groups_do_not_know_each_other() -> None:
    """Two programs, two jobs and two namespaces each have one that speaks."""
    speakers, heard = Speakers(), Heard()
    for number, resource in enumerate(
        (
            RANK,
            {"service.name": "serve"},
            {**RANK, "slurm.job.id": "7"},
            {**RANK, "k8s.namespace.name": "b"},
            {"process.executable.name": "python"},
        )
    ):
        speakers.join(number, resource, heard.of(number))
    assert list(heard.values()) == [SPEAK] * 5


def test_a_process_that_is_traced_already_goes_on() -> None:
    """After an agent's restart ranks come in another order; what was enabled once has its price paid."""
    speakers, heard = Speakers(), Heard()
    speakers.join(1, RANK, heard.of(1))
    speakers.join(2, {**RANK, "spanlite.collector.sampling": "duty"}, heard.of(2))
    assert heard == {1: SPEAK, 2: SPEAK}


def test_where_it_is_cheap_all_are_traced() -> None:
    """The one that speaks has found the price within its budget: stragglers among its ranks are to be seen, too."""
    speakers, heard = Speakers(), Heard()
    speakers.join(1, RANK, heard.of(1))
    speakers.join(2, RANK, heard.of(2))
    speakers.priced(2, affordable=True)
    assert heard == {1: SPEAK, 2: REST}
    speakers.priced(1, affordable=True)
    speakers.join(3, RANK, heard.of(3))
    assert heard == {1: SPEAK, 2: REST + SPEAK, 3: SPEAK}
    speakers.priced(1, affordable=False)
    speakers.leave(3)
    speakers.join(3, RANK, heard.of(3))
    assert heard[3] == REST


@given(st.lists(st.tuples(st.integers(0, 5), st.sampled_from("ab")), max_size=40))
def test_a_group_with_members_has_one_speaker(moves: list[tuple[int, str]]) -> None:
    """However they come and go; each move lets the process in, or out if it is there."""
    speakers, heard = Speakers(), Heard()
    groups: dict[int, str] = {}
    for number, name in moves:
        if number in groups:
            speakers.leave(number)
            del groups[number]
        else:
            groups[number] = name
            speakers.join(number, {"service.name": name}, heard.of(number))
        for group in set(groups.values()):
            members = [member for member in groups if groups[member] == group]
            assert sum(heard[member].endswith(SPEAK) for member in members) == 1
            assert sum(speakers.stands_for(member) for member in members if heard[member].endswith(SPEAK)) == len(
                members
            )
            assert all(speakers.stands_for(member) == 1 for member in members if heard[member].endswith(REST))


def test_one_stands_for_those_that_rest_and_no_others() -> None:
    """Where all are traced, and of a rank that is traced already, each stands for itself."""
    speakers, heard = Speakers(), Heard()
    for number in (1, 2, 3):
        speakers.join(number, RANK, heard.of(number))
    speakers.join(4, {**RANK, "spanlite.collector.sampling": "duty"}, heard.of(4))
    speakers.join(5, {"service.name": "serve"}, heard.of(5))
    assert [speakers.stands_for(number) for number in (1, 2, 3, 4, 5, 99)] == [3, 1, 1, 1, 1, 1]
    speakers.priced(1, affordable=True)
    assert [speakers.stands_for(number) for number in (1, 2, 3)] == [1, 1, 1]
