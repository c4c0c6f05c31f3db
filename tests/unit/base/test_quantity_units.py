"""Units that people write by habit: what to write instead."""

from __future__ import annotations

import pytest

from paddleflow.base.quantity import parse_quantity


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("1GB", "write 1Gi or 1G"),
        ("512MiB", "write 512Mi or 512M"),
        ("7B", "write 7"),
        ("1gb", "write 1Gi or 1G"),
        ("4g", "write 4Gi or 4G"),
        ("1.5 GB", "write 1.5Gi or 1.5G"),
        ("10mb", "write 10Mi or 10M"),
    ],
)
def test_bytes_are_written_without_b(text: str, wanted: str) -> None:
    with pytest.raises(ValueError, match="is not a Kubernetes quantity") as refused:
        parse_quantity(text)
    assert wanted in str(refused.value)
