"""Logs on stderr: JSON lines, or plain text for people (``VIRT_ADMIT_LOG_FORMAT=text``).

The message is constant, the data is in fields. Never an object's body, a private key or user data.
"""

from __future__ import annotations

import datetime
import json
import logging
import sys
from typing import Any, Final

from virt_admit.engine.admission_review import Reply
from virt_admit.model.sanitize import line, lines
from virt_admit.rule import Action

log = logging.getLogger("virt_admit.review")

_STANDARD: Final = frozenset(logging.makeLogRecord({}).__dict__) | {
    "message",
    "asctime",
    "taskName",
    "color_message",
}


class JsonFormatter(logging.Formatter):
    """One JSON object per record: ``ts``, ``level``, ``logger``, ``msg``,
    then the ``extra`` of the call.
    """

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "ts": datetime.datetime.fromtimestamp(record.created, datetime.UTC).isoformat(
                timespec="milliseconds"
            ),
            "level": record.levelname.lower(),
            "logger": record.name,
            "msg": record.getMessage(),
        }
        line |= {key: value for key, value in record.__dict__.items() if key not in _STANDARD}
        if "object" in line:  # `name` of a record is the logger's
            line["name"] = line.pop("object")
        if record.exc_info:
            line["error"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str)


class TextFormatter(logging.Formatter):
    """For a terminal: time, level, message, and the data as ``key=value``."""

    def format(self, record: logging.LogRecord) -> str:
        data = " ".join(
            f"{key}={line(str(value))}"
            for key, value in record.__dict__.items()
            if key not in _STANDARD
        )
        text = (
            f"{self.formatTime(record, '%H:%M:%S')} {record.levelname.lower():7} "
            f"{line(record.getMessage())} {data}"
        ).rstrip()
        return (
            f"{text}\n{lines(self.formatException(record.exc_info))}" if record.exc_info else text
        )


def configure(style: str, level: str) -> None:
    """Send all logs of this process to stderr, in the style ``json`` or ``text``,
    from a level on.
    """
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(TextFormatter() if style == "text" else JsonFormatter())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())


def review(endpoint: str, answer: Reply, seconds: float) -> None:
    """Log one answered review: denials at info, all others at debug."""
    request, response = answer.request, answer.response
    level = logging.DEBUG if response.allowed else logging.INFO
    if not log.isEnabledFor(level):
        return
    subject = request.subject
    log.log(
        level,
        "reviewed",
        extra={
            "uid": request.uid,
            "endpoint": endpoint,
            "kind": request.kind.kind if request.kind else "",
            "namespace": request.namespace,
            "object": subject.name if subject else request.name,
            "operation": request.operation,
            "user": request.user,
            "dry_run": request.dry_run,
            "outcome": response.outcome,
            "rules": sorted(
                {verdict.rule.id for verdict in response.verdicts if verdict.action >= Action.WARN}
            ),
            "duration_ms": round(seconds * 1000, 3),
        },
    )
