"""Names that last: what a program tells of a just-in-time kernel, and what becomes of the kernel's label."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spanlite.agent.kernelsource import KernelSource, SourceTable, source_hash
from spanlite.agent.work import name_of
from spanlite.contract.columns import Kind
from spanlite.contract.names import ID_CHARS, kernel_id

ADD = (
    "def triton_poi_fused_add_{0}(in_ptr0, xnumel):\n    # triton_poi_fused_add_{0} and not triton_poi_fused_add_{0}0\n"
)


def inductor(number: int, text: str = ADD) -> KernelSource:
    name = f"triton_poi_fused_add_{number}"
    return KernelSource(name=name, kind="inductor", source=source_hash(text.format(number), name))


def test_a_kernel_that_is_only_numbered_anew_keeps_its_name() -> None:
    """One fused kernel more in the graph: the number moves, text, name and label stay."""
    plain = "def triton_poi_fused_add_{0}(in_ptr0):\n    return\n"
    before, after = inductor(3, plain), inductor(41, plain)
    assert before.source == after.source
    assert before.stable_name == after.stable_name == f"inductor:triton_poi_fused_add:{before.source[:8]}"
    assert kernel_id(before.stable_name) == before.stable_name


def test_another_text_under_the_same_name_is_another_kernel() -> None:
    """The hash tells apart what the number does not."""
    assert inductor(0).stable_name != inductor(0, ADD + "    tl.store()\n").stable_name


def test_a_name_within_a_longer_one_is_not_the_name() -> None:
    """Only whole words lose their number: `..._30` in a comment is somebody else."""
    assert source_hash("f_3 f_30 xf_3", "f_3") == source_hash("f f_30 xf_3")


@pytest.mark.parametrize(
    ("name", "function", "stable"),
    [
        ("_attn_fwd", "attention.triton:_attn_fwd", "triton:attention.triton:_attn_fwd"),
        ("_matmul_NNT_bf16_128x64", "kernels.matmul:_matmul", "triton:kernels.matmul:_matmul_NNT_bf16_128x64"),
        ("_attn_fwd", "", "_attn_fwd"),
    ],
)
def test_a_written_kernel_gets_its_module_and_keeps_its_text_out(name: str, function: str, stable: str) -> None:
    """Two packages' `_fwd_kernel` are two; an edit starts no new series, as with C++; a spelt-out variant stays one."""
    assert KernelSource(name=name, kind="triton", function=function, source="0" * 16).stable_name == stable


def test_long_names_stay_bounded_and_apart() -> None:
    """torch.compile writes names of hundreds of characters: labels are cut, and still one-to-one."""
    base = "triton_per_fused__to_copy_add_div_mul_pow_sum_" * 8
    ids = {
        kernel_id(KernelSource(name=f"{base}{number}_7", kind="inductor", source=f"{number:016x}").stable_name)
        for number in range(50)
    }
    assert len(ids) == 50
    assert max(map(len, ids)) <= ID_CHARS


texts = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=30)


@given(
    st.builds(
        KernelSource,
        name=texts.filter(bool),
        kind=st.sampled_from(["triton", "inductor"]),
        function=texts,
        file=texts,
        line=st.integers(0, 10**9 - 1),
        source=st.integers(0, 2**64 - 1).map("{:016x}".format),
        key=texts,
        config=st.dictionaries(texts.filter(bool), texts.filter(bool), max_size=4),
    )
)
def test_what_is_said_is_read_again(source: KernelSource) -> None:
    """Lines and back give the same."""
    assert KernelSource.of(source.said()) == source


@pytest.mark.parametrize(
    "said",
    [
        {},
        {"name": "", "kind": "triton"},
        {"name": "k", "kind": "cuda"},
        {"name": "k", "kind": "triton", "source": "xyz"},
    ],
)
def test_what_names_no_kernel_is_refused(said: dict[str, str]) -> None:
    """A peer of another version is told off, not believed."""
    with pytest.raises(ValueError, match="a kernel"):
        KernelSource.of(said)


def test_the_agent_renames_kernels_of_the_process_that_told_and_nothing_else() -> None:
    """By pid and name; copies keep theirs, and so does a name that two graphs of one process share."""
    table = SourceTable()
    table.begin(7)
    assert table.tell(7, inductor(0))
    assert table.tell(7, inductor(0))
    names = {0x10: "triton_poi_fused_add_0", 0x20: "gemm"}
    mine, others = name_of(names, table.of(7)), name_of(names, table.of(8))
    assert mine(Kind.KERNEL, 0x10) == inductor(0).stable_name
    assert mine(Kind.KERNEL, 0x20) == "gemm"
    assert mine(Kind.MEMCPY, 1) == "memcpy_host_to_device"
    assert others(Kind.KERNEL, 0x10) == "triton_poi_fused_add_0"
    assert table.tell(7, inductor(0, "def another():\n"))
    assert mine(Kind.KERNEL, 0x10) == "triton_poi_fused_add_0"
    table.begin(7)
    assert mine(Kind.KERNEL, 0x10) == "triton_poi_fused_add_0"


def test_the_table_is_bounded() -> None:
    """A process that compiles without end, and processes without end: the rest keeps CUPTI's names."""
    table = SourceTable(most_names=2, most_processes=2)
    assert [table.tell(1, inductor(at)) for at in range(3)] == [True, True, False]
    for pid in (2, 3):
        table.begin(pid)
    assert table.of(1)("triton_poi_fused_add_0") == "triton_poi_fused_add_0"
