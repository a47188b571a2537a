"""The calls of one message of the model, and what becomes of each."""

from __future__ import annotations

import inspect
import json
import logging
import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pronk._agent_events import AgentCall, AgentCallResult, Message, Status
from pronk._tool_content import content_of, describe
from pronk._tool_parameters import Arguments, ArgumentsError, read_arguments

if TYPE_CHECKING:
    from pronk._tool import Tool
    from pronk._tool_workers import Outcome, Workers

_logger = logging.getLogger("pronk.agent")


@dataclass(eq=False)
class Job:
    """One call. It has a tool and arguments, or a result already."""

    call: AgentCall
    tool: Tool[..., Any] | None = None
    arguments: Arguments = ((), {})
    result: AgentCallResult | None = None
    started: float | None = None
    """On the monotonic clock, as is the deadline."""
    deadline: float | None = None
    in_thread: bool = False
    cancel: Callable[[], None] | None = None

    def start(self, workers: Workers) -> None:
        """Begin to run the tool."""
        assert self.tool is not None
        tool = self.tool
        args, kwargs = self.arguments
        self.started = time.monotonic()
        if tool.timeout is not None:
            self.deadline = self.started + tool.timeout
        if tool.is_async:
            self.cancel = workers.in_loop(self, lambda: tool(*args, **kwargs))
        else:
            self.in_thread = True
            workers.in_thread(self, lambda: tool(*args, **kwargs))

    def end(self, outcome: Outcome, workers: Workers, shorten: Callable[[str], str]) -> bool:
        """Take what the tool gave; False if that has yet to be awaited."""
        if inspect.isawaitable(outcome.value):
            self.in_thread = False
            self.cancel = workers.in_loop(self, lambda: outcome.value)
            return False
        error = outcome.error
        if isinstance(error, (KeyboardInterrupt, SystemExit)):
            raise error
        if error is None:
            try:
                content = content_of(outcome.value)
            except (ValueError, TypeError, RecursionError) as unreadable:
                error = unreadable
        if error is None:
            self.finish("ok", shorten(content))
        else:
            _logger.info("tool %s failed", self.call.name, exc_info=error)
            self.finish("failed", shorten(describe(error)), error)
        return True

    def finish(self, status: Status, content: str, exception: BaseException | None = None) -> None:
        """Settle the result."""
        seconds = 0.0 if self.started is None else time.monotonic() - self.started
        self.result = AgentCallResult(self.call, status, content, seconds, exception)

    def expire(self) -> None:
        """Give up a tool that takes too long."""
        assert self.tool is not None
        self.abandon()
        self.finish("timeout", f"error: timeout: got no result within {self.tool.timeout:g} s")

    def abandon(self) -> None:
        """Cancel a task; a thread is left alone."""
        if self.cancel is not None:
            self.cancel()


class Turn:
    """A message with calls, which enters the conversation together with their results."""

    def __init__(self, message: Message, tools: Mapping[str, Tool[..., Any]]) -> None:
        calls = message["tool_calls"]
        self.message = {**message, "tool_calls": [_for_history(call) for call in calls]}
        self.jobs = [_job_of(call, tools) for call in calls]

    @property
    def open_jobs(self) -> list[Job]:
        """Those without a result, in the order of the message."""
        return [job for job in self.jobs if job.result is None]

    def settle(self, status: Status, content: str) -> list[Job]:
        """Give all open jobs a result, and return them."""
        jobs = self.open_jobs
        for job in jobs:
            job.abandon()
            job.finish(status, content)
        return jobs

    def messages(self) -> list[Message]:
        """Return the message and the results, in its order. All jobs must be settled."""
        results = [job.result for job in self.jobs if job.result is not None]
        return [self.message] + [
            {
                "role": "tool",
                "tool_call_id": result.call.id,
                "name": result.call.name,
                "content": result.content,
            }
            for result in results
        ]


def with_ids(message: Mapping[str, Any], taken: set[str]) -> Message:
    """Return the message, each of its calls under an id that no other has."""
    calls = []
    for call in message.get("tool_calls") or ():
        identifier = call.get("id")
        if not identifier or identifier in taken:
            # Nine letters and digits: what the strictest templates accept.
            identifier = uuid.uuid4().hex[:9]
        taken.add(identifier)
        calls.append({**call, "id": identifier})
    return {**message, "tool_calls": calls}


def _for_history(call: Message) -> Message:
    """Return a call as later prompts have it: templates fail on arguments that are no object."""
    function = call["function"]
    text = function.get("arguments") or ""
    try:
        read_arguments(text)
        arguments = text if text.strip() else "{}"
    except ArgumentsError:
        arguments = json.dumps({"invalid_json": text}, ensure_ascii=False)
    return {**call, "function": {**function, "arguments": arguments}}


def _job_of(call: Message, tools: Mapping[str, Tool[..., Any]]) -> Job:
    function = call["function"]
    name, text = function["name"], function.get("arguments") or ""
    arguments: dict[str, Any] | str
    problem = ""
    try:
        arguments = read_arguments(text)
    except ArgumentsError as error:
        arguments, problem = text, str(error)
    job = Job(AgentCall(call["id"], name, arguments))

    tool = tools.get(name)
    if tool is None:
        known = ", ".join(tools) or "no call, for there are no tools"
        job.finish(
            "unknown_tool", f"error: unknown tool: got {name!r}, expected {known}, call one of them"
        )
        return job
    if not problem:
        assert isinstance(arguments, dict)
        try:
            job.tool, job.arguments = tool, tool.parameters.bind(arguments)
            return job
        except ArgumentsError as error:
            problem = str(error)
        except Exception as error:
            _logger.info("tool %s: arguments cannot be checked", name, exc_info=error)
            job.finish("failed", describe(error), error)
            return job
    job.finish(
        "invalid_arguments",
        f"error: invalid arguments of {name}: {problem}; expected an object that matches the "
        "schema of the tool, call it again with corrected arguments",
    )
    return job
