"""The answers on the wire, as TypedDicts: what the REST API promises, the SDK returns and OpenAPI says.

Standard library only, so that the light client can import it. Field names are those of the wire. Each domain has its
section; ``Annotated[…, "sentence"]`` becomes the field's description in OpenAPI.
"""

from __future__ import annotations

from typing import Annotated, NotRequired, TypedDict

# ---- shared by all ------------------------------------------------------------------------------------------------


class Page(TypedDict):
    """What every paged list answers beside its rows."""

    maxKeys: int
    isTruncated: Annotated[bool, "whether there are rows beyond this page"]
    nextMarker: NotRequired[Annotated[str, "marker of the next page; left out on the last one"]]


class FaultDetail(TypedDict):
    """One fault of a refused document."""

    where: str
    message: str
    hint: NotRequired[str]


class ErrorBody(TypedDict):
    """Every refusal."""

    requestID: str
    code: str
    message: str
    hint: NotRequired[str]
    details: NotRequired[Annotated[list[FaultDetail], "every fault, where there are several"]]


class Name(TypedDict):
    """The name of what was made or changed."""

    name: str


# ---- users, grants, version ---------------------------------------------------------------------------------------


class Authorization(TypedDict):
    """The answer to a login."""

    authorization: Annotated[str, "token for the header x-pf-authorization"]


class WhoAmI(TypedDict):
    """Whose token this is."""

    name: str
    root: bool
    expires: Annotated[str, "RFC 3339"]
    host: str  #: equal for processes that share files and account with the caller's jobs; empty: they share none


class Username(TypedDict):
    username: str


class User(TypedDict):
    name: str
    createTime: Annotated[str, "RFC 3339"]


class UserList(Page):
    userList: list[User]


class GrantID(TypedDict):
    grantID: str


class Grant(TypedDict):
    grantID: str
    userName: str
    resourceType: str
    resourceID: str
    createTime: Annotated[str, "RFC 3339"]
    updateTime: Annotated[str, "RFC 3339"]


class GrantList(Page):
    grantList: list[Grant]


class Version(TypedDict):
    """What runs here. The names are those that existing clients print."""

    gitVersion: str
    gitCommit: str
    gitBranch: str
    buildDate: str
    goVersion: str
    compiler: str
    platform: str


# ---- health -------------------------------------------------------------------------------------------------------


class Health(TypedDict):
    status: str


# ---- tokens and the audit log -------------------------------------------------------------------------------------


class TokenMade(TypedDict):
    """A new token; it is shown this once."""

    name: str
    token: str
    scope: str
    expires: Annotated[str, "RFC 3339"]


class Secret(TypedDict):
    """A secret; its value is never answered."""

    name: str
    createTime: Annotated[str, "RFC 3339"]
    updateTime: Annotated[str, "RFC 3339, when its value was set last"]


class SecretList(Page):
    """Secrets by name."""

    secretList: list[Secret]


class Token(TypedDict):
    name: str
    scope: str
    createTime: Annotated[str, "RFC 3339"]
    expires: Annotated[str, "RFC 3339"]


class TokenList(Page):
    tokenList: list[Token]


class AuditEntry(TypedDict):
    """A request that may have changed something."""

    time: Annotated[str, "RFC 3339"]
    userName: Annotated[str, "who called, or whom a login named"]
    userID: Annotated[
        int, "which user of this name: a later one has another; 0: nobody, or an entry of an earlier version"
    ]
    address: str
    method: str
    path: str
    status: int
    requestID: str


class AuditList(Page):
    auditList: list[AuditEntry]
