"""Runs many agents over one local llama.cpp model: a fair gate in front, one decode loop behind.

>>> engine = pronk.InferenceEngine.load("model.gguf")
>>> scheduler = pronk.InferenceScheduler(4, engine=engine, n_ctx=4096)
>>> with scheduler.acquire() as permit:
...     text = permit.generate("Once upon", max_tokens=64).result().text
"""

# General layout: the classes that do the work are bound C++ ones, out of `_core`. Python has what
# C++ is no good at: `_errors` (the exceptions), `_async` with `_hub`, `_asyncio` and `_trio`
# (waiting in an event loop), `_generate_all` (lists of prompts), `_tool*` (functions that a model
# calls), `_agent*`, `_conversation` and `_compaction` (agents), `_progress` (bars), `_exit` (the
# end of the interpreter), `_probe` (a model file tried by a child), `_logging` (llama.cpp's log),
# `_models` (the default model), `_extras` (optional packages), `_cli` (the command line).
# `pronk.testing` is public too, for those who import it. Of this module, what `__all__` names is
# public, nothing else.

from __future__ import annotations

from pronk import _check_interpreter as _check_interpreter
from pronk import _exit as _exit
from pronk import _logging as _logging
from pronk._agent import Agent
from pronk._agent_events import (
    AgentCall,
    AgentCallResult,
    AgentEvent,
    AgentResult,
    AgentUsage,
)
from pronk._agent_stream import AgentStream
from pronk._conversation import Conversation
from pronk._core import (
    Acquisition,
    ChatDelta,
    Completion,
    Deltas,
    Device,
    DeviceMemory,
    Generation,
    InferenceEngine,
    InferencePermit,
    InferenceScheduler,
    MemoryEstimate,
    Statistics,
    Timings,
    TokenLogprob,
    ToolCallDelta,
    Usage,
    devices,
)
from pronk._core import version as __version__
from pronk._errors import (
    AcquireTimeout,
    AgentBusyError,
    BackendError,
    ContextOverflowError,
    DeadlockError,
    Error,
    ForkedProcessError,
    GenerationCancelled,
    GrammarError,
    InsufficientMemoryError,
    InvalidArgumentError,
    InvalidTypeError,
    MissingDependencyError,
    ModelDownloadError,
    ModelLoadError,
    PermitBusyError,
    PermitReleasedError,
    PoolNotInitialisedError,
    QueueFullError,
    ResultTimeout,
    SchedulerClosedError,
)
from pronk._generate_all import generate_all
from pronk._models import default_model
from pronk._tool import Tool, tool

__all__ = [
    "AcquireTimeout",
    "Acquisition",
    "Agent",
    "AgentBusyError",
    "AgentCall",
    "AgentCallResult",
    "AgentEvent",
    "AgentResult",
    "AgentStream",
    "AgentUsage",
    "BackendError",
    "ChatDelta",
    "Completion",
    "ContextOverflowError",
    "Conversation",
    "DeadlockError",
    "Deltas",
    "Device",
    "DeviceMemory",
    "Error",
    "ForkedProcessError",
    "Generation",
    "GenerationCancelled",
    "GrammarError",
    "InferenceEngine",
    "InferencePermit",
    "InferenceScheduler",
    "InsufficientMemoryError",
    "InvalidArgumentError",
    "InvalidTypeError",
    "MemoryEstimate",
    "MissingDependencyError",
    "ModelDownloadError",
    "ModelLoadError",
    "PermitBusyError",
    "PermitReleasedError",
    "PoolNotInitialisedError",
    "QueueFullError",
    "ResultTimeout",
    "SchedulerClosedError",
    "Statistics",
    "Timings",
    "TokenLogprob",
    "Tool",
    "ToolCallDelta",
    "Usage",
    "__version__",
    "default_model",
    "devices",
    "generate_all",
    "tool",
]

# Users see the names that they import, in tracebacks and in help().
for _name in __all__:
    if isinstance(globals()[_name], type):
        globals()[_name].__module__ = "pronk"
del _name
