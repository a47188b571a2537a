"""Every exception that pronk raises.

Each derives from `Error` and from the built-in that a caller would catch. Messages read
``what: got X, expected Y, do Z``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import os

    from pronk._core import Completion

__all__ = [
    "AcquireTimeout",
    "AgentBusyError",
    "BackendError",
    "ContextOverflowError",
    "DeadlockError",
    "Error",
    "ForkedProcessError",
    "GenerationCancelled",
    "GrammarError",
    "InsufficientMemoryError",
    "InvalidArgumentError",
    "InvalidTypeError",
    "MissingDependencyError",
    "ModelDownloadError",
    "ModelLoadError",
    "PermitBusyError",
    "PermitReleasedError",
    "PoolNotInitialisedError",
    "QueueFullError",
    "ResultTimeout",
    "SchedulerClosedError",
]


class Error(Exception):
    """Base of all errors of pronk."""


class InvalidArgumentError(Error, ValueError):
    """An argument is outside its allowed range."""


class InvalidTypeError(Error, TypeError):
    """An argument has the wrong type, or there is no argument of that name."""


class ModelLoadError(Error, OSError, ValueError):
    """A model file cannot be opened, is no usable model, or its load was cancelled.

    Attributes:
        errno: Of the failed system call; None where the content is at fault.
        filename: The file, as it was given.
    """

    def __init__(
        self,
        message: str,
        errno: int | None = None,
        filename: str | bytes | os.PathLike[str] | None = None,
    ) -> None:
        super().__init__(message)
        self.errno = errno
        self.filename = filename

    # OSError would print its own attributes; the message says it all.
    def __str__(self) -> str:
        return str(self.args[0])

    def __reduce__(self) -> tuple[type[ModelLoadError], tuple[object, ...]]:
        return type(self), (self.args[0], self.errno, self.filename)


class ModelDownloadError(Error, OSError):
    """The default model is not in the cache and cannot be fetched."""


class InsufficientMemoryError(Error, MemoryError):
    """Something does not fit into the free memory of its device.

    Attributes:
        need: Bytes it needs of that device; None where that is not known, as for the others.
        have: Bytes that are free there.
        n_ctx: The largest that would fit with the same max_concurrent; None for none at all.
        max_concurrent: The largest that would fit with the same n_ctx; None for none at all.
    """

    def __init__(
        self,
        message: str,
        need: int | None = None,
        have: int | None = None,
        n_ctx: int | None = None,
        max_concurrent: int | None = None,
    ) -> None:
        super().__init__(message)
        self.need = need
        self.have = have
        self.n_ctx = n_ctx
        self.max_concurrent = max_concurrent

    def __reduce__(self) -> tuple[type[InsufficientMemoryError], tuple[object, ...]]:
        numbers = (self.need, self.have, self.n_ctx, self.max_concurrent)
        return type(self), (self.args[0], *numbers)


class ContextOverflowError(Error, ValueError):
    """A prompt does not fit into the context of a permit."""


class AcquireTimeout(Error, TimeoutError):  # noqa: N818 - says what happened, like TimeoutError
    """No permit became free in time."""


class ResultTimeout(Error, TimeoutError):  # noqa: N818
    """A generation has not ended in time. It goes on."""


class QueueFullError(Error, RuntimeError):
    """As many wait already as `max_waiting` allows."""


class SchedulerClosedError(Error, RuntimeError):
    """The scheduler was closed before or while the call waited."""


class PermitReleasedError(Error, RuntimeError):
    """The permit was used after its release."""


class PermitBusyError(Error, RuntimeError):
    """The permit already runs a generation."""


class DeadlockError(Error, RuntimeError):
    """The caller itself holds every permit: waiting for one could never end."""


class GrammarError(Error, ValueError):
    """A grammar does not parse, or the generation can no longer follow it."""


class BackendError(Error, RuntimeError):
    """llama.cpp failed to compute. The generation that was running is lost, the process is not."""


class ForkedProcessError(Error, RuntimeError):
    """The object was created in another process, of which this one is a fork."""


class PoolNotInitialisedError(Error, RuntimeError):
    """The scheduler has no engine: it is a plain semaphore so far."""


class AgentBusyError(Error, RuntimeError):
    """The agent already runs; a fork of it can run beside it."""


class MissingDependencyError(Error, ImportError):
    """A package that is installed with an extra of pronk is missing."""


class GenerationCancelled(Error):  # noqa: N818
    """A generation was cancelled before it had a result to give.

    Attributes:
        completion: What there was of it, or None.
    """

    def __init__(self, message: str, completion: Completion | None = None) -> None:
        super().__init__(message)
        self.completion = completion

    def __reduce__(self) -> tuple[type[GenerationCancelled], tuple[str]]:
        # To another process goes what it says; the completion stays here.
        return type(self), (str(self),)
