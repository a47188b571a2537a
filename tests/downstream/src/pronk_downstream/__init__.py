"""What an extension of somebody else does with pronk, one function for each thing."""

from pronk_downstream._native import (
    Fleet,
    acquire,
    caught_in_cpp,
    engine_of,
    make_scheduler,
    nanobind_version,
    raise_error,
    start,
)

__all__ = [
    "Fleet",
    "acquire",
    "caught_in_cpp",
    "engine_of",
    "make_scheduler",
    "nanobind_version",
    "raise_error",
    "start",
]
