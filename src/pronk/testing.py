"""For tests of programs that use pronk: a model that is a script instead of weights, and a clock.

A :class:`ScriptedModel` needs no model file and answers in microseconds. Its ``engine`` is a
:class:`pronk.InferenceEngine` and works wherever a loaded one works; everything above it, from the
gate to the decode loop, is the real thing. What it says is known in advance, and it plays every
failure that a real model can show.

Example:
    >>> model = pronk.testing.ScriptedModel()
    >>> model.script("2 + 2 = ", "4")
    >>> with pronk.InferenceScheduler(2, engine=model.engine) as scheduler:
    ...     scheduler.generate("2 + 2 = ", temperature=0).result().text
    '4'
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from pronk._core import ManualClock
from pronk._core import ScriptedModel as _ScriptedModel

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from pronk import InferenceEngine

__all__ = [
    "BatchItem",
    "Counters",
    "FaultKind",
    "FaultPoint",
    "ManualClock",
    "MemoryKind",
    "RecordedBatch",
    "ScriptedModel",
    "SequenceKey",
]

ManualClock.__module__ = __name__

MemoryKind = Literal["plain", "sliding_window", "recurrent", "hybrid"]
FaultPoint = Literal["decode", "seq_remove", "seq_copy", "make_backend"]
FaultKind = Literal[
    "no_slot",
    "aborted",
    "invalid_batch",
    "no_memory",
    "failed",
    "runtime_error",
    "bad_alloc",
    "foreign_exception",
    "sleep",
    "block",
    "nan_logits",
    "impossible_logits",
    "refuse",
]


class SequenceKey(NamedTuple):
    """Names a sequence.

    Example:
        >>> tokens = model.sequences[SequenceKey(context=0, seq=1)]
    """

    context: int
    """Which context, in order of creation, from 0."""
    seq: int
    """Which sequence in it."""


class BatchItem(NamedTuple):
    """One token of a batch.

    Example:
        >>> tokens = [item.token for item in model.batches[0].items if item.seq == 0]
    """

    token: int
    """Its id."""
    pos: int
    """Its place in the sequence, from 0."""
    seq: int
    """Which sequence of the context."""
    output: bool
    """Whether logits were asked for."""


class RecordedBatch(NamedTuple):
    """One call of decode.

    Example:
        >>> model.record()
        >>> scheduler.generate("Hello", max_tokens=2).result()
        >>> sizes = [len(batch.items) for batch in model.batches]
    """

    context: int
    """Which context, in order of creation, from 0."""
    call: int
    """Number of the decode, over all contexts, from 1."""
    items: tuple[BatchItem, ...]
    """Its tokens, in order."""
    result: str
    """'ok', 'no_slot', 'aborted', 'invalid_batch', 'no_memory', 'failed' or 'exception'."""


@dataclass(frozen=True)
class Counters:
    """What was done to a scripted model so far.

    Example:
        >>> before = model.counters.items
        >>> scheduler.generate("Hello", max_tokens=1).result()
        >>> evaluated = model.counters.items - before
    """

    decode_calls: int
    """Decodes begun; one held at its entry not yet."""
    decodes_finished: int
    seq_remove_calls: int
    seq_copy_calls: int
    items: int
    """Tokens that went through the model."""
    outputs: int
    """Rows of logits computed."""
    contexts_made: int
    contexts_alive: int
    most_decoding: int
    """Most decodes under way at once."""
    most_sequences: int
    """Most different sequences in one batch."""
    sequence_items: Mapping[SequenceKey, int]
    """Tokens that went through the model, by sequence."""


class ScriptedModel:
    """A model that is a script.

    Greedy decoding (``temperature=0``) follows a rule that mixes every token that a sequence holds
    into the choice of the next: a wrong reuse of a prefix, a token out of place or a token of
    somebody else changes the text. :meth:`expected` says what the right text is. Uses of the
    backend that would abort the process with a real model are listed by :attr:`violations`; a test
    should assert that there are none.

    May be used from any thread. When the last reference goes, all that it holds goes on.

    Args:
        pieces: Text of the tokens 0, 1, 2, ...; None stands for the 256 single bytes. Three special
            tokens follow: ``<bos>``, ``<eos>`` and ``<eot>``. A text is cut into the longest
            pieces, from left to right.
        memory_kind: What the memory of a sequence allows, after the rules of llama.cpp: "plain",
            "sliding_window", "recurrent" or "hybrid".
        n_swa: Tokens in the window, 1 or more with "sliding_window", else 0.
        n_ctx_train: Context of the model in tokens.
        add_bos: Put ``<bos>`` before a tokenized text.
        seed: Another seed is another model: other answers to the same prompts.
        chat_template: Jinja text; None is ChatML, with the tools in the system message and calls
            written as ``<tool_call>{"name": ..., "arguments": {...}}</tool_call>``.
        clock: Delays advance this clock instead of taking real time.

    Raises:
        pronk.InvalidArgumentError, pronk.InvalidTypeError: A bad argument.

    Example:
        >>> model = ScriptedModel(memory_kind="recurrent")
        >>> scheduler = pronk.InferenceScheduler(1, engine=model.engine, n_ctx=256)
        >>> done = scheduler.generate("Hello", temperature=0, max_tokens=8).result()
        >>> assert done.text == model.expected_text("Hello", 8)
        >>> assert not model.violations
    """

    def __init__(
        self,
        *,
        pieces: Iterable[str | bytes] | None = None,
        memory_kind: MemoryKind = "plain",
        n_swa: int = 0,
        n_ctx_train: int = 4096,
        add_bos: bool = False,
        seed: int = 0,
        chat_template: str | None = None,
        clock: ManualClock | None = None,
    ) -> None:
        self._core = _ScriptedModel(
            pieces, memory_kind, n_swa, n_ctx_train, add_bos, seed, chat_template, clock
        )

    def __repr__(self) -> str:
        return (
            f"<pronk.testing.ScriptedModel memory_kind={self.engine.memory_kind!r} "
            f"n_vocab={self.engine.n_vocab}>"
        )

    @property
    def engine(self) -> InferenceEngine:
        """The model as schedulers take it. Keep the ScriptedModel as long as it is to hold."""
        return self._core.engine

    # What it says.

    def script(self, prompt: str | Sequence[int], completion: str | bytes | Sequence[int]) -> None:
        """Have greedy decoding say ``completion`` after exactly ``prompt``, then ``<eos>``.

        Args:
            prompt: Text, tokenized as for a generation, or token ids.
            completion: Text, bytes, which need not be whole UTF-8, or token ids.

        Raises:
            pronk.InvalidArgumentError: The prompt is empty, or a token id is out of range.

        Example:
            >>> model.script("Name a colour", "blue")
        """
        self._core.script(prompt, completion)

    def script_chat(
        self,
        messages: Sequence[Mapping[str, Any]],
        reply: str | bytes | Sequence[int],
        **chat_options: Any,
    ) -> None:
        """Have greedy decoding say ``reply`` to exactly these ``messages``, then ``<eos>``.

        Args:
            messages: As for ``chat()``.
            reply: What the model says, in the format of its template, or token ids.
            **chat_options: ``tools``, ``tool_choice`` and the like, as the chat will have them.

        Raises:
            pronk.InvalidArgumentError: As ``engine.tokenize_chat()`` does.

        Example:
            >>> model.script_chat([{"role": "user", "content": "1 + 1?"}], "2")
        """
        self.script(self.engine.tokenize_chat(messages, **chat_options), reply)

    def expected(self, prompt: str | Sequence[int], n: int) -> list[int]:
        """Return the token ids that greedy decoding gives after ``prompt``.

        Args:
            prompt: Text, tokenized as for a generation, or token ids.
            n: Tokens at most; fewer when the end token comes first, which is not included.
        """
        return self._core.expected(prompt, n)

    def expected_text(self, prompt: str | Sequence[int], n: int) -> str:
        """Return the text of :meth:`expected`, which takes the same ``prompt`` and ``n``."""
        return self.engine.detokenize(self.expected(prompt, n))

    # How it fails.

    def fault(
        self,
        kind: FaultKind,
        *,
        point: FaultPoint = "decode",
        call: int | None = None,
        times: int | None = 1,
        applied: int = 0,
        seconds: float = 0.0,
        ignore_abort: bool = False,
    ) -> None:
        """Have a call go wrong. Several faults may wait at once, for the same call too.

        Args:
            kind: How. For "decode": "no_slot", "aborted", "invalid_batch", "no_memory" and "failed"
                are what it returns; "sleep" takes ``seconds`` longer; "block" lasts until
                :meth:`release_blocked` or an abort; "nan_logits" and "impossible_logits" (all minus
                infinity) spoil its result. For "seq_remove": "refuse". For "make_backend", the
                creation of a context: "no_memory", "failed" and "block". For any: "runtime_error",
                "bad_alloc" and "foreign_exception" (no ``std::exception``) are thrown.
            point: Which function of the backend.
            call: Which call of it, counted from 1 over all contexts; None is the next one, or the
                one that :meth:`hold` holds.
            times: So many calls in a row; None for ever.
            applied: Tokens of the batch that have taken effect when decode fails.
            seconds: Of "sleep".
            ignore_abort: "block" like a hung device: an abort does not end it.

        Raises:
            pronk.InvalidArgumentError: The point cannot show that kind.

        Example:
            >>> model.fault("no_slot", call=3, times=2)
            >>> model.fault("refuse", point="seq_remove", times=None)
        """
        self._core.add_fault(kind, point, call, times, applied, seconds, ignore_abort)

    def clear_faults(self) -> None:
        """Forget all faults that have not happened yet."""
        self._core.clear_faults()

    def wait_blocked(self, timeout: float | None = 10.0, count: int = 1) -> bool:
        """Wait until ``count`` calls are in a "block". Return False at the timeout."""
        return self._core.wait_blocked(timeout, count)

    def release_blocked(self) -> None:
        """Let every call that is in a "block" go on."""
        self._core.release_blocked()

    # When it runs.

    def hold(self) -> None:
        """Have every decode wait at its entry from now on, so that races can be played by hand.

        A held decode is freed by :meth:`step`, :meth:`resume` and by an abort, hence by closing the
        scheduler.

        Example:
            >>> model.hold()
            >>> generation = scheduler.generate("Hello", temperature=0, max_tokens=8)
            >>> assert model.wait_held()    # the first decode is about to begin
            >>> model.step()                # it runs, and the next one is held
            >>> assert model.wait_held()
            >>> generation.cancel()
            >>> model.resume()
        """
        self._core.hold()

    def wait_held(self, timeout: float | None = 10.0, count: int = 1) -> bool:
        """Wait until ``count`` decodes wait at their entry. Return False at the timeout."""
        return self._core.wait_held(timeout, count)

    def step(self, n: int = 1) -> None:
        """Let the next ``n`` decodes pass, held or still to come, besides those let before."""
        self._core.step(n)

    def resume(self) -> None:
        """End :meth:`hold`."""
        self._core.resume()

    def wait_decodes(self, count: int, timeout: float | None = 10.0) -> bool:
        """Wait until ``count`` decodes in all have finished. Return False at the timeout."""
        return self._core.wait_decodes(count, timeout)

    def set_delay(self, per_decode: float, per_token: float = 0.0) -> None:
        """Have every decode take time: real, or on the clock of the model.

        Args:
            per_decode: Seconds for each decode.
            per_token: Seconds more for each token in it.
        """
        self._core.set_delay(per_decode, per_token)

    # What was done to it.

    @property
    def counters(self) -> Counters:
        """A snapshot of the counters."""
        values = self._core.counters()
        by_key = {SequenceKey(*key): n for key, n in values.pop("sequence_items").items()}
        return Counters(**values, sequence_items=by_key)

    @property
    def violations(self) -> list[str]:
        """Uses of the backend that would have aborted the process with a real model."""
        return self._core.violations()

    def record(self, on: bool = True) -> None:
        """Start keeping every batch for :attr:`batches`, or stop where ``on`` is False."""
        self._core.record(on)

    @property
    def batches(self) -> list[RecordedBatch]:
        """The batches kept so far, in the order in which they finished."""
        return [
            RecordedBatch(context, call, tuple(BatchItem(*item) for item in items), result)
            for context, call, items, result in self._core.batches()
        ]

    @property
    def sequences(self) -> dict[SequenceKey, list[int]]:
        """The tokens that each sequence holds; empty ones are left out."""
        return {SequenceKey(*key): tokens for key, tokens in self._core.sequences().items()}

    @property
    def cells_used(self) -> int:
        """KV cells in use; one that several sequences share counts once."""
        return self._core.cells_used()
