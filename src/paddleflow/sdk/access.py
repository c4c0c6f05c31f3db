"""Users, grants, and who one is."""

from __future__ import annotations

from collections.abc import Iterator

from paddleflow.errors import NotFound
from paddleflow.sdk.area import PAGE, Area
from paddleflow.sdk.records import Page, Record, record, wire
from paddleflow.sdk.transport import segment


@record
class User(Record):
    """A user; `create_time` is RFC 3339."""

    name: str = wire()
    create_time: str = wire()


@record
class Grant(Record):
    """That a user may use a resource (of type queue, user or fs)."""

    id: str = wire(key="grantID")
    user: str = wire(key="userName")
    resource_type: str = wire()
    resource: str = wire(key="resourceID")
    create_time: str = wire()
    update_time: str = wire()


@record
class WhoAmI(Record):
    """Whose token this is, and until when it counts."""

    name: str = wire()
    root: bool = wire(False)
    expires: str = wire()


class Users(Area):
    """Users. All but the own password is for root."""

    def create(self, name: str, password: str) -> User:
        self._transport.call("POST", "/user", body={"username": name, "password": password})
        return User(name=name)

    def set_password(self, name: str, password: str) -> None:
        """Ends all tokens of that user."""
        self._transport.call("PUT", f"/user/{segment(name)}", body={"password": password})

    def delete(self, name: str) -> None:
        self._transport.call("DELETE", f"/user/{segment(name)}", settled=NotFound)

    def page(self, *, max_keys: int = PAGE, marker: str | None = None, name: str | None = None) -> Page[User]:
        query = {"maxKeys": max_keys, "marker": marker, "user": name}
        return self._page("/user", "userList", User.of, query)

    def list(self) -> Iterator[User]:
        return self._pages(lambda marker: self.page(marker=marker))


class Grants(Area):
    """Who may use what. For root."""

    def create(self, user: str, resource: str, *, resource_type: str = "queue") -> None:
        body = {"userName": user, "resourceType": resource_type, "resourceID": resource}
        self._transport.call("POST", "/grant", body=body)

    def delete(self, user: str, resource: str, *, resource_type: str = "queue") -> None:
        query = {"username": user, "resourceType": resource_type, "resourceID": resource}
        self._transport.call("DELETE", "/grant", query=query, settled=NotFound)

    def page(self, *, max_keys: int = PAGE, marker: str | None = None, user: str | None = None) -> Page[Grant]:
        query = {"username": user, "maxKeys": max_keys, "marker": marker}
        return self._page("/grant", "grantList", Grant.of, query)

    def list(self, *, user: str | None = None) -> Iterator[Grant]:
        return self._pages(lambda marker: self.page(marker=marker, user=user))


@record
class Token(Record):
    """A token for scripts; `token`, its text, only where it was just made."""

    name: str = wire()
    scope: str = wire()
    create_time: str = wire()
    expires: str = wire()
    token: str = wire()


@record
class AuditEntry(Record):
    """A request that may have changed something."""

    time: str = wire()
    user: str = wire(key="userName")
    user_id: int = wire(0, key="userID")
    address: str = wire()
    method: str = wire()
    path: str = wire()
    status: int = wire(0)
    request_id: str = wire(key="requestID")


class Tokens(Area):
    """One's tokens for scripts."""

    def create(self, name: str, *, scope: str = "submit", hours: float = 24 * 90) -> Token:
        """A new token of scope read, submit or admin; its text is given this once."""
        return Token.of(self._transport.call("POST", "/token", body={"name": name, "scope": scope, "hours": hours}))

    def list(self) -> Iterator[Token]:
        yield from self._page("/token", "tokenList", Token.of, {})

    def revoke(self, name: str) -> None:
        self._transport.call("DELETE", f"/token/{segment(name)}", settled=NotFound)


@record
class Secret(Record):
    """A secret; its value is never given back."""

    name: str = wire()
    create_time: str = wire()
    update_time: str = wire()


class Secrets(Area):
    """One's secrets: named values that jobs are given."""

    def set(self, name: str, value: str) -> None:
        """A new one, or another value: jobs that start from now on are given it."""
        self._transport.call("PUT", f"/secret/{segment(name)}", body={"value": value})

    def list(self) -> Iterator[Secret]:
        yield from self._page("/secret", "secretList", Secret.of, {})

    def delete(self, name: str) -> None:
        self._transport.call("DELETE", f"/secret/{segment(name)}", settled=NotFound)


class Audit(Area):
    """Who changed what, newest first. For root."""

    def page(self, *, max_keys: int = PAGE, marker: str | None = None, user: str | None = None) -> Page[AuditEntry]:
        query = {"maxKeys": max_keys, "marker": marker, "user": user}
        return self._page("/audit", "auditList", AuditEntry.of, query)

    def list(self, *, user: str | None = None) -> Iterator[AuditEntry]:
        return self._pages(lambda marker: self.page(marker=marker, user=user))
