"""How log lines look: JSON for machines, text for people; with the id of the request that caused them."""

from __future__ import annotations

import json
import logging
import sys

from paddleflow.api.application import REQUEST_ID
from paddleflow.base.clock import local_text, rfc3339
from paddleflow.base.text import as_utf8, printable
from paddleflow.errors import Invalid

LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}
FORMATS = ("auto", "json", "text")


def configure(level: str, form: str) -> None:
    """Send everything that is logged, by us or by a library, to stderr in one form."""
    if level.lower() not in LEVELS:
        raise Invalid(f"server.log_level must be one of {', '.join(LEVELS)}, found {level!r}")
    if form not in FORMATS:
        raise Invalid(f"server.log_format must be one of {', '.join(FORMATS)}, found {form!r}")
    people = form == "text" or (form == "auto" and sys.stderr.isatty())
    handler = logging.StreamHandler()
    handler.setFormatter(TextFormatter() if people else JsonFormatter())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(LEVELS[level.lower()])
    for name in ("uvicorn", "asyncssh"):  # a line, or several, for each connection
        logging.getLogger(name).setLevel(logging.WARNING)


def _fields(record: logging.LogRecord) -> dict[str, object]:
    """The fields of a line, with the request's id when there is one."""
    request = REQUEST_ID.get()
    return ({"request": request} if request else {}) | getattr(record, "fields", {})


class JsonFormatter(logging.Formatter):
    """One JSON object a line."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, object] = {
            "at": rfc3339(record.created),
            "level": record.levelname.lower(),
            "logger": record.name,
            "event": record.getMessage(),
            **_fields(record),
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return as_utf8(json.dumps(line, default=str, ensure_ascii=False))


class TextFormatter(logging.Formatter):
    """``2026-01-31 12:00:00 info engine: begins anew  reason=…``; what clients wrote reaches a terminal as text only."""

    def format(self, record: logging.LogRecord) -> str:
        name = record.name.removeprefix("paddleflow.")
        text = f"{local_text(record.created)} {record.levelname.lower()} {name}: {printable(record.getMessage())}"
        fields = _fields(record)
        if fields:
            text += "  " + " ".join(f"{key}={printable(str(value))}" for key, value in fields.items())
        return f"{text}\n{self.formatException(record.exc_info)}" if record.exc_info else text
