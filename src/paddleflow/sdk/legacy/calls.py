"""What all parts of the old client share: its exception, its login, and errors turned into that exception."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import wraps
from typing import Any, ParamSpec, TypeVar

from paddleflow.errors import PaddleFlowError
from paddleflow.sdk import address
from paddleflow.sdk.client import PaddleFlow
from paddleflow.sdk.transport import Transport

P = ParamSpec("P")
T = TypeVar("T")

Done = tuple[bool, None]
Options = Mapping[str, Any] | None


class PaddleFlowSDKException(Exception):
    """What went wrong, as `code`, `message` and `requestId`."""

    def __init__(self, code: str | None = None, message: str | None = None, requestId: str | None = None) -> None:  # noqa: N803
        super().__init__(code, message, requestId)
        self.code = code
        self.message = message
        self.requestId = requestId

    def __str__(self) -> str:
        return f"[PaddleFlowSDKException] code:{self.code} message:{self.message} requestId:{self.requestId}"

    def get_code(self) -> str | None:
        return self.code

    def get_message(self) -> str | None:
        return self.message

    def get_request_id(self) -> str | None:
        return self.requestId


def wrong(message: str) -> PaddleFlowSDKException:
    return PaddleFlowSDKException("InvalidRequest", message)


def translated(method: Callable[P, T]) -> Callable[P, T]:
    """Errors as existing scripts catch them."""

    @wraps(method)
    def call(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return method(*args, **kwargs)
        except PaddleFlowError as error:
            raise PaddleFlowSDKException(error.code, error.message, error.request_id) from error

    return call


def count(value: object, name: str) -> int:
    try:
        count = int(str(value))
    except ValueError:
        count = 0
    if count <= 0 or isinstance(value, bool):
        raise wrong(f"{name} should be int and greater than 0, found {value!r}")
    return count


class Calls:
    """`login` comes first. Unless a method says otherwise it returns `(True, payload)`."""

    def __init__(
        self,
        paddleflow_server_host: str,
        username: str,
        password: str,
        paddleflow_server_port: int | str = address.DEFAULT_PORT,
    ) -> None:
        if not paddleflow_server_host:
            raise wrong("paddleflow_server_host should not be none or empty")
        try:
            parsed = address.parse(paddleflow_server_host)
        except PaddleFlowError as error:
            raise PaddleFlowSDKException(error.code, error.message) from error
        server = replace(parsed, port=count(paddleflow_server_port, "paddleflow_server_port"))
        self.username = username
        self.password = password
        self._flow = PaddleFlow(Transport(str(server)))

    @property
    def _pf(self) -> PaddleFlow:
        if not self._flow.transport.token:
            raise wrong("paddleflow should login first")
        return self._flow

    @translated
    def login(self, user_name: str, password: str) -> Done:
        if not user_name or not password:
            raise wrong("user_name and password should not be none or empty")
        self._flow.login(user_name, password)
        self._flow.transport.credentials = (user_name, password)
        return True, None

    @translated
    def get_version(self) -> tuple[bool, Mapping[str, str]]:
        return True, self._pf.version()
