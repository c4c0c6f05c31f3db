"""How much each user may have at once, and all of them together."""

from __future__ import annotations

from contextlib import ExitStack

import pytest

from paddleflow.base.user_limit import UserLimit
from paddleflow.errors import TooMany


def test_a_user_and_all_users_have_a_limit_and_what_ended_does_not_count() -> None:
    limit = UserLimit("sessions", 2, 3, code="TooManySessions")
    with ExitStack() as alices:
        for _ in range(2):
            alices.enter_context(limit.counted("alice"))
        with pytest.raises(TooMany, match=r"2 sessions of user\[alice\]"), limit.counted("alice"):
            pass
        with (
            limit.counted("bob"),
            pytest.raises(TooMany, match="3 sessions of this server") as raised,
            limit.counted("carol"),
        ):
            pass
        assert raised.value.code == "TooManySessions"
        with limit.counted("carol"):
            assert limit["carol"] == 1
    assert (limit["alice"], limit["bob"], limit["carol"]) == (0, 0, 0)
