"""Who may use what: the same table for queues and storages."""

from __future__ import annotations

from paddleflow.cli import output
from paddleflow.cli.session import Session


def show(session: Session, kind: str, header: str, username: str | None, maxsize: int) -> None:
    """The grants of one kind of thing, of all users or of one."""
    page = session.client.grants.page(user=username, max_keys=maxsize)
    rows = [[grant.user, grant.resource] for grant in page if grant.resource_type == kind]
    output.show(session, ["user name", header], rows, empty="no grantlist found ")
    output.more(page.next_marker, "-m")
