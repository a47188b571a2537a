"""The tree of exceptions: what each of them also is, and that they survive a trip elsewhere."""

from __future__ import annotations

import copy
import inspect
import pickle

import pytest

import pronk
from pronk import _errors

BUILT_IN = {
    "AcquireTimeout": (TimeoutError,),
    "AgentBusyError": (RuntimeError,),
    "BackendError": (RuntimeError,),
    "ContextOverflowError": (ValueError,),
    "DeadlockError": (RuntimeError,),
    "Error": (),
    "ForkedProcessError": (RuntimeError,),
    "GenerationCancelled": (),
    "GrammarError": (ValueError,),
    "InsufficientMemoryError": (MemoryError,),
    "InvalidArgumentError": (ValueError,),
    "InvalidTypeError": (TypeError,),
    "MissingDependencyError": (ImportError,),
    "ModelDownloadError": (OSError,),
    "ModelLoadError": (OSError, ValueError),
    "PermitBusyError": (RuntimeError,),
    "PermitReleasedError": (RuntimeError,),
    "PoolNotInitialisedError": (RuntimeError,),
    "QueueFullError": (RuntimeError,),
    "ResultTimeout": (TimeoutError,),
    "SchedulerClosedError": (RuntimeError,),
}


def test_all_are_listed() -> None:
    classes = {
        name
        for name, value in vars(_errors).items()
        if inspect.isclass(value) and issubclass(value, BaseException)
    }
    assert classes == set(BUILT_IN) == set(_errors.__all__)


@pytest.mark.parametrize("name", BUILT_IN)
def test_each_is_an_error_and_what_a_caller_would_catch(name: str) -> None:
    cls = getattr(pronk, name)
    assert issubclass(cls, pronk.Error)
    assert cls.__module__ == "pronk"
    for built_in in BUILT_IN[name]:
        assert issubclass(cls, built_in)


@pytest.mark.parametrize("name", BUILT_IN)
def test_each_can_be_pickled_and_copied(name: str) -> None:
    error = getattr(pronk, name)("what: got X, expected Y, do Z")
    for twin in (pickle.loads(pickle.dumps(error)), copy.copy(error)):
        assert type(twin) is type(error)
        assert str(twin) == "what: got X, expected Y, do Z"


def test_model_load_error_keeps_its_attributes() -> None:
    error = pronk.ModelLoadError("path: got nothing", 2, "a.gguf")
    for twin in (error, pickle.loads(pickle.dumps(error))):
        assert (twin.errno, twin.filename) == (2, "a.gguf")
        assert str(twin) == "path: got nothing"


def test_generation_cancelled_has_a_completion() -> None:
    assert pronk.GenerationCancelled("gone").completion is None
