"""llama.cpp's log in Python's logging, as the logger ``pronk.llama``. Quiet by default."""

from __future__ import annotations

import logging

from pronk import _core

logging.getLogger("pronk").addHandler(logging.NullHandler())
_logger = logging.getLogger("pronk.llama")
_LEVELS = (logging.DEBUG, logging.INFO, logging.WARNING, logging.ERROR)


def prepare() -> None:
    """Have llama.cpp keep the lines that the logger wants, before a call that may log."""
    wanted = [index for index, level in enumerate(_LEVELS) if _logger.isEnabledFor(level)]
    _core.set_log_level(wanted[0] if wanted else len(_LEVELS) - 1)


def flush() -> None:
    """Log what was kept, after such a call."""
    for index, line in _core.drain_log():
        # A handler that raises must not keep the other lines back for the next call.
        _logger.log(_LEVELS[index], "%s", line)
