"""The documents of logins, users and grants."""

from __future__ import annotations

from typing import Annotated, ClassVar

from pydantic import Field, field_validator

from paddleflow.base.names import TOKEN, USER
from paddleflow.spec.document import Document
from paddleflow.spec.fields import named, one_of
from paddleflow.spec.query import PageQuery, Query

MOST_SECRET_BYTES = 64 * 2**10  #: of the value of a secret


class LoginDocument(Document):
    """A name and a password, to be changed for a token."""

    username: str = Field(max_length=256)
    password: str = Field(max_length=1024)


class UserDocument(Document):
    """A new user."""

    code: ClassVar[str] = "InvalidArguments"

    username: str = Field(description=USER.wanted, max_length=256)
    password: str = Field(
        description="at least 6 characters, among them a digit and a lower-case letter", max_length=1024
    )


class PasswordDocument(Document):
    """Another password for a user."""

    password: str = Field(
        description="at least 6 characters, among them a digit and a lower-case letter", max_length=1024
    )


class UserQuery(PageQuery):
    """All users, or one."""

    user: str = Field(default="", description="only the user of this name")


class GrantDocument(Document):
    """What a user may use from now on."""

    user_name: str = Field(max_length=256)
    resource_type: str = Field(description="queue, user or fs", max_length=256)
    resource_id: str = Field(alias="resourceID", description="name of the queue or user, id of the fs", max_length=256)


class GrantKey(Query):
    """Which grant is taken back."""

    username: str
    resource_type: str
    resource_id: str = Field(alias="resourceID")


class GrantQuery(PageQuery):
    """All grants, or those of one user."""

    username: str = Field(default="", description="only the grants of this user")


SCOPES = ("read", "submit", "admin")
_MOST_HOURS = 24 * 366 * 5


class SecretDocument(Document):
    """PUT /secret/{name}: the value of a secret."""

    code: ClassVar[str] = "InvalidArguments"

    value: str = Field(min_length=1, description="at most 64 KiB", repr=False)

    @field_validator("value")
    @classmethod
    def _short(cls, value: str) -> str:
        if len(value.encode("utf-8", "surrogatepass")) > MOST_SECRET_BYTES:
            raise ValueError(f"the value has more than {MOST_SECRET_BYTES} bytes")
        return value


class TokenDocument(Document):
    """A token for a script."""

    name: Annotated[str, named(TOKEN)] = Field(description=TOKEN.wanted)
    scope: Annotated[str, one_of("scope", SCOPES)] = Field(
        default="submit",
        description="read: only look; submit: also jobs, runs, pipelines, schedules and storages; admin: all that the user may do",
    )
    hours: float = Field(default=24 * 90, gt=0, le=_MOST_HOURS, description="hours after which it ends")


class AuditQuery(PageQuery):
    """The audit log, or that of one user."""

    user: str = Field(default="", max_length=256, description="only what this user did")
