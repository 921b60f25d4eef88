"""The log of a process: one line for each event, and nothing in it of what callers sent.

A line carries the service's name and the trace id of the request it belongs to. Of an exception it has the class and
the places in our code, never the text, which may quote a prompt or a secret. The level DEBUG has the texts too, for
debugging on a private machine; secrets and personal data are masked in them. The same goes for an
exception that ends the process or a thread. Passwords in URLs are masked at every level. Further lines of an event are
indented, and control characters left out: texts of others, such as the name of an MCP server, write no line of their
own.
"""

from __future__ import annotations

import logging
import sys
import threading
import traceback
from typing import Any, TextIO

from opentelemetry import trace

from services.runtime.rpc import gone_callers
from services.runtime.security.secrets import without_passwords
from services.runtime.telemetry import SERVICE, trace_id

_MOST_CAUSES = 10
_PLAIN = dict.fromkeys((*range(32), *range(127, 160)), "") | {ord("\t"): "\t", ord("\n"): "\n  "}
_log = logging.getLogger("services")


def setup_logging(service: str, level: str, stream: TextIO | None = None) -> None:
    """Have everything that is logged written to `stream`, standard error by default."""
    handler = logging.StreamHandler(stream)
    handler.addFilter(_Origin(service))
    line = "%(asctime)s %(levelname)s %(service)s %(name)s [%(trace_id)s] %(message)s"
    handler.setFormatter(_Formatter(line, with_texts=level == "DEBUG"))
    logging.basicConfig(level=level, handlers=[handler], force=True)
    for noisy in ("httpx", "httpcore", "opentelemetry"):
        logging.getLogger(noisy).setLevel("WARNING")
    logging.getLogger(gone_callers.LOGGER).addFilter(gone_callers.is_other)
    # It warns of headers (`OTEL_…_HEADERS`) that it cannot read, with their values.
    logging.getLogger("opentelemetry.util.re").setLevel("ERROR")


def log_what_ends_us() -> None:
    """Log an uncaught exception like any other, in place of Python's own report with all its texts."""

    def ended(kind: type[BaseException], error: BaseException | None, at: Any) -> None:
        if not issubclass(kind, KeyboardInterrupt):
            _log.critical("uncaught exception", exc_info=(kind, error or kind(), at))

    sys.excepthook = ended
    threading.excepthook = lambda left: ended(left.exc_type, left.exc_value, left.exc_traceback)
    sys.unraisablehook = lambda left: ended(left.exc_type, left.exc_value, left.exc_traceback)


def whereabouts(error: BaseException | None) -> str:
    """The class of an exception and the place where it was raised, and the same for its causes and the members of a
    group."""
    causes: list[str] = []
    waiting = [error]
    while waiting and len(causes) < _MOST_CAUSES:
        if (each := waiting.pop(0)) is None:
            continue
        causes.append("".join(traceback.format_list(traceback.extract_tb(each.__traceback__))) + type(each).__name__)
        waiting += each.exceptions if isinstance(each, BaseExceptionGroup) else ()
        waiting.append(each.__cause__ or (None if each.__suppress_context__ else each.__context__))
    return "\ncaused by:\n".join(causes)


class _Origin(logging.Filter):
    """Adds the service, `process` where none is known, and the trace id of the request."""

    def __init__(self, process: str):
        super().__init__()
        self._process = process

    def filter(self, record: logging.LogRecord) -> bool:
        record.service = SERVICE.get() or self._process
        record.trace_id = trace_id() if trace.get_current_span() is not trace.INVALID_SPAN else "-"
        return True


class _Formatter(logging.Formatter):
    def __init__(self, line: str, *, with_texts: bool):
        super().__init__(line)
        self._with_texts = with_texts

    def format(self, record: logging.LogRecord) -> str:
        return without_passwords(super().format(record).translate(_PLAIN))

    def formatException(self, ei: Any) -> str:
        if not self._with_texts:
            return whereabouts(ei[1])
        from services.runtime.security.mask_all import mask_all  # with its rules, for this level alone

        return mask_all(super().formatException(ei))
