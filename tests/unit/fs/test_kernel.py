"""The wire format: sizes as the kernel has them, times before 1970, names."""

from __future__ import annotations

import stat

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paddleflow.fs import kernel
from paddleflow.fs.kernel import Attributes


@pytest.mark.parametrize(
    ("layout", "size"),
    [
        ("IN_HEADER", 40), ("OUT_HEADER", 16), ("ATTR", 88), ("SETATTR_IN", 88), ("INIT_IN", 64), ("INIT_OUT", 64),
        ("OPEN_OUT", 16), ("READ_IN", 40), ("RELEASE_IN", 24), ("STATFS_OUT", 80), ("FALLOCATE_IN", 32),
        ("LSEEK_IN", 24), ("DIRENT", 24),
    ],
)  # fmt: skip
def test_layouts_are_as_long_as_the_kernels(layout: str, size: int) -> None:
    assert getattr(kernel, layout).size == size


def test_an_entry_and_an_attribute_answer_are_as_long_as_the_kernels() -> None:
    found = Attributes(1, 2, 3, 4, 5, 6, stat.S_IFREG, 1, 0, 0)
    assert len(kernel.pack_entry(7, found, kernel.lasting(1.5, 0.25))) == 128
    assert len(kernel.pack_no_entry(1.0)) == 128
    assert len(kernel.pack_attr_answer(found, 1.0)) == 104
    assert kernel.ENTRY_HEAD.unpack_from(kernel.pack_entry(7, found, kernel.lasting(1.5, 0.25))) == (
        7,
        0,
        1,
        0,
        500_000_000,
        250_000_000,
    )


@given(moment=st.integers(-(2**62), 2**62))
def test_times_come_back(moment: int) -> None:
    packed = kernel.pack_attributes(Attributes(1, 0, 0, moment, 0, 0, 0, 1, 0, 0))
    fields = kernel.ATTR.unpack(packed)
    assert kernel.signed_time(fields[3], fields[6]) == moment


@given(name=st.binary(min_size=1, max_size=255).filter(lambda name: b"\0" not in name))
def test_entries_of_folders_are_padded(name: bytes) -> None:
    packed = kernel.pack_dirent(5, 1, 8, name)
    assert len(packed) % 8 == 0
    assert kernel.DIRENT.unpack_from(packed) == (5, 1, len(name), 8)
    assert packed[24 : 24 + len(name)] == name


def test_names_end_with_a_zero() -> None:
    assert kernel.names(memoryview(b"one\0two\0rest"), 2) == [b"one", b"two"]
    assert kernel.names(memoryview(b"one\0"), 1) == [b"one"]
