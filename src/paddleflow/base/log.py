"""Structured log lines over the standard library: a short sentence, and fields beside it.

``log = Log("engine")``, then ``log.info("serving", address=address)``. How a line looks is decided by the composition
root (``server/logs.py``); without it the standard library's defaults apply.
"""

from __future__ import annotations

import json
import logging
import sys

from paddleflow.base.clock import rfc3339


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


class _LineFormatter(logging.Formatter):
    """One JSON object per line, or text on a terminal."""

    def __init__(self, people: bool) -> None:
        super().__init__()
        self._people = people

    def format(self, record: logging.LogRecord) -> str:
        fields = {str(key): str(value) for key, value in (getattr(record, "fields", None) or {}).items()}
        at, level, message = rfc3339(record.created), record.levelname.lower(), record.getMessage()
        if self._people:
            return f"{at} {level:7} {message} " + " ".join(f"{key}={value}" for key, value in fields.items())
        return json.dumps(
            {"at": at, "level": level, "logger": record.name, "event": message, **fields}, ensure_ascii=False
        )


def log_to_stderr() -> None:
    """Send everything that is logged to stderr: for controllers, whose log is collected by the cluster."""
    handler = logging.StreamHandler()
    handler.setFormatter(_LineFormatter(sys.stderr.isatty()))
    logging.basicConfig(level=logging.INFO, handlers=[handler], force=True)
