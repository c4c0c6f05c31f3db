"""How the operator's log lines look: one JSON object a line, or text on a terminal."""

from __future__ import annotations

import json
import logging
import sys

from paddleflow.base.clock import rfc3339


class _Lines(logging.Formatter):
    def __init__(self, people: bool) -> None:
        super().__init__()
        self._people = people

    def format(self, record: logging.LogRecord) -> str:
        fields = {str(key): str(value) for key, value in (getattr(record, "fields", None) or {}).items()}
        at, level, said = rfc3339(record.created), record.levelname.lower(), record.getMessage()
        if self._people:
            return f"{at} {level:7} {said} " + " ".join(f"{key}={value}" for key, value in fields.items())
        return json.dumps(
            {"at": at, "level": level, "logger": record.name, "event": said, **fields}, ensure_ascii=False
        )


def configure() -> None:
    """Send everything that is logged to stderr."""
    handler = logging.StreamHandler()
    handler.setFormatter(_Lines(sys.stderr.isatty()))
    logging.basicConfig(level=logging.INFO, handlers=[handler], force=True)
