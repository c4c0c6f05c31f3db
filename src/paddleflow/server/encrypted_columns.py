"""Every column that holds encrypted values: what a server checks its keys against at its start, and what a rotation rewrites."""

from __future__ import annotations

from paddleflow.access.secrets import ENCRYPTED as SECRETS
from paddleflow.queues.credentials import ENCRYPTED as CLUSTERS
from paddleflow.storage.secrets import ENCRYPTED as STORAGES
from paddleflow.store.encryption import EncryptedColumn

ENCRYPTED_COLUMNS: tuple[EncryptedColumn, ...] = (*STORAGES, *SECRETS, CLUSTERS)
