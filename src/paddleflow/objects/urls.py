"""A store from its URL: the one place that knows which scheme is which class."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import unquote

from paddleflow.base.names import nearest
from paddleflow.errors import Invalid
from paddleflow.objects.local import LocalStore
from paddleflow.objects.memory import MemoryStore
from paddleflow.objects.s3 import Bucket, S3Store
from paddleflow.objects.signature import Credentials
from paddleflow.objects.store import ObjectStore, shorten

SCHEMES = ("file", "local", "s3", "mock")


@dataclass(frozen=True, slots=True)
class Access:
    """What a URL does not say: where the server of a bucket is, and who asks."""

    endpoint: str = ""  #: empty: AWS's own
    region: str = "us-east-1"
    access_key: str = ""  #: empty: ask without a signature
    secret_key: str = ""
    token: str = ""  #: of temporary credentials
    verify: bool = True


def open_store(url: str, access: Access | None = None) -> ObjectStore:
    """The store that a URL names: ``file:///data/team``, ``s3://bucket/prefix`` or ``mock://name``."""
    scheme, separator, rest = url.partition("://")
    match scheme.lower() if separator else "":
        case "file" | "local":
            return LocalStore("/" + unquote(rest).lstrip("/"), name=url)
        case "s3":
            return S3Store(bucket_of(url, access or Access()))
        case "mock":
            return MemoryStore(url)
        case "":
            raise Invalid(
                f"{shorten(url)} is no URL of a store", hint="write it as file:///data/team or s3://bucket/prefix"
            )
        case other:
            raise Invalid(f"{shorten(url)}: no store of type {shorten(other)}", hint=nearest(other, SCHEMES))


def bucket_of(url: str, access: Access) -> Bucket:
    name, _, prefix = url.partition("://")[2].partition("/")
    if bool(access.access_key) != bool(access.secret_key):
        raise Invalid("an access key needs a secret key, and the other way round")
    return Bucket(
        endpoint=access.endpoint or f"https://s3.{access.region}.amazonaws.com",
        name=name,
        prefix=prefix,
        region=access.region,
        credentials=Credentials(access.access_key, access.secret_key, access.token) if access.access_key else None,
        verify=access.verify,
    )
