"""How a mount treats its store: chosen by `mount`, followed by `remote`."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class RemoteOptions:
    """How a mount treats its store."""

    ttl: float = 10.0  #: seconds that an answer of the store is believed
    immutable: bool = False
    strict: bool = False  #: ask the store at every open
    writeback: bool = False  #: `close` and `fsync` mean durable on this machine, not in the store
    plain: bool = False  #: objects carry no attributes of ours: do not ask for them while listing
