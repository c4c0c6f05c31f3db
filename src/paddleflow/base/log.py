"""Structured log lines over the standard library: a short sentence, and fields beside it.

``log = Log("engine")``, then ``log.info("serving", address=address)``. How a line looks is decided by the composition
root (``server/logs.py``); without it the standard library's defaults apply.
"""

from __future__ import annotations

import logging


class Log:
    """A logger whose lines carry fields."""

    def __init__(self, name: str) -> None:
        self._logger = logging.getLogger(f"paddleflow.{name}")

    def debug(self, event: str, **fields: object) -> None:
        self._log(logging.DEBUG, event, fields)

    def info(self, event: str, **fields: object) -> None:
        self._log(logging.INFO, event, fields)

    def warning(self, event: str, **fields: object) -> None:
        self._log(logging.WARNING, event, fields)

    def error(self, event: str, **fields: object) -> None:
        self._log(logging.ERROR, event, fields)

    def _log(self, level: int, event: str, fields: dict[str, object]) -> None:
        if self._logger.isEnabledFor(level):
            self._logger.log(level, event, extra={"fields": fields})
