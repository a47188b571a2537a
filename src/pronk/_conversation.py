"""The messages of an agent, which are always whole: no call of a tool without its result."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from pronk._chat import to_json
from pronk._errors import InvalidArgumentError, InvalidTypeError

if TYPE_CHECKING:
    from pronk._agent_events import Message

_ROLES = ("system", "developer", "user", "assistant", "tool")


class Conversation:
    """A list of messages in OpenAI's form, with a system prompt first if there is one.

    Every call of a tool is followed by its result: what is not whole is refused, and an agent adds
    a message with calls only together with all their results. Reading it from another thread while
    the agent runs is safe.

    Args:
        messages: To begin with. Copied, as JSON has them: a tuple becomes a list.

    Raises:
        pronk.InvalidArgumentError, pronk.InvalidTypeError: Something is no message or cannot be
            JSON, or a call has no result.

    Example:
        >>> text = agent.conversation.to_json()
        >>> agent = pronk.Agent(scheduler, conversation=pronk.Conversation.from_json(text))
    """

    def __init__(self, messages: Iterable[Mapping[str, Any]] = ()) -> None:
        self._messages: list[Message] = []
        self.extend(messages)

    @property
    def messages(self) -> list[Message]:
        """The messages, as a new list of copies."""
        return _copy(self._messages)

    def extend(self, messages: Iterable[Mapping[str, Any]]) -> None:
        """Add messages at the end, all or none.

        Raises:
            pronk.InvalidArgumentError, pronk.InvalidTypeError: As for the class.
        """
        if isinstance(messages, (str, bytes, Mapping)) or not isinstance(messages, Iterable):
            raise InvalidTypeError(
                f"messages: got {messages!r:.80} ({type(messages).__name__}), expected a list of "
                "dicts, pass [{'role': 'user', 'content': ...}]"
            )
        added = [_checked(message) for message in messages]
        _check_calls(added)
        # One operation, so that neither a signal nor another thread finds half of it.
        self._messages.extend(added)

    def replace(self, messages: Iterable[Mapping[str, Any]]) -> None:
        """Put other messages in the place of all.

        Raises:
            pronk.InvalidArgumentError, pronk.InvalidTypeError: As for the class.
        """
        self._messages = Conversation(messages)._messages

    def fork(self) -> Conversation:
        """Return a copy that goes on by itself."""
        return Conversation(self._messages)

    def to_json(self) -> str:
        """Return the messages as a JSON array."""
        return json.dumps(self._messages, ensure_ascii=False)

    @classmethod
    def from_json(cls, text: str | bytes) -> Conversation:
        """Restore what :meth:`to_json` returned.

        Raises:
            pronk.InvalidArgumentError, pronk.InvalidTypeError: It is no JSON array of messages, or
                a call has no result.
        """
        try:
            messages = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise InvalidArgumentError(
                f"conversation: got invalid JSON ({error}), expected an array of messages, "
                "pass what to_json() returned"
            ) from None
        except TypeError:
            raise InvalidTypeError(
                f"conversation: got {text!r:.80} ({type(text).__name__}), expected JSON text, "
                "pass what to_json() returned"
            ) from None
        if not isinstance(messages, list):
            raise InvalidTypeError(
                f"conversation: got a JSON {type(messages).__name__}, expected an array of "
                "messages, pass what to_json() returned"
            )
        return cls(messages)

    def __len__(self) -> int:
        return len(self._messages)

    def __repr__(self) -> str:
        return f"<pronk.Conversation of {len(self)} messages>"


def as_messages(prompt: object) -> list[Message]:
    """Return the messages that a prompt stands for: a text is one of the user.

    Raises:
        pronk.InvalidArgumentError, pronk.InvalidTypeError: It stands for none.
    """
    if prompt is None:
        return []
    if isinstance(prompt, str):
        return [{"role": "user", "content": prompt}]
    if isinstance(prompt, Mapping):
        prompt = [prompt]
    if not isinstance(prompt, Iterable) or isinstance(prompt, bytes):
        raise InvalidTypeError(
            f"prompt: got {prompt!r:.80} ({type(prompt).__name__}), expected a text, a message, "
            "a list of messages or None, pass what the user says"
        )
    return Conversation(prompt).messages


def _checked(message: object) -> Message:
    if not isinstance(message, Mapping):
        raise InvalidTypeError(
            f"message: got {message!r:.80} ({type(message).__name__}), expected a dict, "
            "pass messages in OpenAI's form"
        )
    if message.get("role") not in _ROLES:
        raise InvalidArgumentError(
            f"message: got role {message.get('role')!r:.80}, expected one of {', '.join(_ROLES)}, "
            "pass messages in OpenAI's form"
        )
    return dict(json.loads(to_json("message", message)))


def _copy(messages: list[Message]) -> list[Message]:
    # All of it is JSON, for which this is several times faster than deepcopy().
    copied: list[Message] = json.loads(json.dumps(messages))
    return copied


def _check_calls(messages: list[Message]) -> None:
    """Check that results follow their calls at once, one each."""
    open_calls: list[str] = []
    for message in messages:
        if message["role"] == "tool":
            identifier = message.get("tool_call_id")
            if identifier not in open_calls:
                raise InvalidArgumentError(
                    f"messages: got a result of a call {identifier!r:.80}, expected one that the "
                    "message before asked for and that has no result yet, leave it out"
                )
            open_calls.remove(identifier)
            continue
        if open_calls:
            break
        calls = message.get("tool_calls") or []
        if not isinstance(calls, list):
            raise InvalidTypeError(
                f"tool_calls: got {calls!r:.80} ({type(calls).__name__}), expected a list, "
                "pass messages in OpenAI's form"
            )
        open_calls = [_id_of(call) for call in calls]
    if open_calls:
        raise InvalidArgumentError(
            f"messages: got no result of the call {open_calls[0]!r}, expected one right after the "
            "message that asks for it, add a message of role 'tool' or leave both out"
        )


def _id_of(call: object) -> str:
    identifier = call.get("id") if isinstance(call, Mapping) else None
    if not isinstance(identifier, str):
        raise InvalidArgumentError(
            f"tool_calls: got {call!r:.80}, expected a dict with an id, "
            "pass messages in OpenAI's form"
        )
    return identifier
