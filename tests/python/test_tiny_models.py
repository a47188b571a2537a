"""The tiny models are what the other tests take them for, by llama.cpp's own word."""

from __future__ import annotations

import hashlib
import os
import random
import subprocess
import sys
from pathlib import Path
from typing import Any, get_args

import pytest
from fixtures_models import Tiny
from reference_program import GreedyRun, ReferenceFailedError, ReferenceProgram
from tiny_models import GENERATING_KINDS, KINDS, SLIDING_WINDOW, Kind, tiny_model
from tiny_models.vocabulary import BOS, EOS, EOT, build_vocabulary

_HERE = Path(__file__).parent
_N_PREDICT = 64
_SEED = 20

_VOCABULARY = build_vocabulary()
_BOS = _VOCABULARY.id_of(BOS)
_STORY = "Once upon a time"


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _is_text(raw: bytes) -> bool:
    try:
        raw.decode()
    except UnicodeDecodeError:
        return False
    return True


def _random_prompts(count: int, length: int) -> list[str]:
    generator = random.Random(_SEED)
    print(f"prompts of seed {_SEED}")
    return ["".join(generator.choices("abcdefgh \n", k=length)) for _ in range(count)]


def _runs(reference: ReferenceProgram, model: Path, **options: Any) -> list[GreedyRun]:
    prompts = [_STORY, "日本語 😀", *_random_prompts(10, 40)]
    return reference.greedy(model, prompts, n_predict=_N_PREDICT, **options)


# --- the files ---------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_same_seed_same_bytes(kind: Kind, tmp_path: Path) -> None:
    first = tiny_model(kind, tmp_path / "first")
    second = tiny_model(kind, tmp_path / "second")
    assert _sha256(first) == _sha256(second)


def test_same_bytes_in_another_process(tmp_path: Path) -> None:
    here = tiny_model("hybrid", tmp_path / "here")
    script = (
        "import sys, pathlib, tiny_models as t; t.tiny_model('hybrid', pathlib.Path(sys.argv[1]))"
    )
    there = tmp_path / "there"
    subprocess.run(
        [sys.executable, "-c", script, str(there)],
        env={**os.environ, "PYTHONPATH": str(_HERE), "PYTHONHASHSEED": "7"},
        check=True,
        timeout=60,
    )
    assert _sha256(here) == _sha256(there / here.name)


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "vocabulary"])
def test_another_seed_gives_another_model(kind: Kind, tmp_path: Path) -> None:
    assert _sha256(tiny_model(kind, tmp_path)) != _sha256(tiny_model(kind, tmp_path, seed=1))


@pytest.mark.parametrize("kind", KINDS)
def test_files_are_small(kind: Kind, tiny: Tiny) -> None:
    assert tiny(kind).stat().st_size < 600_000


def test_file_is_written_once(tmp_path: Path) -> None:
    path = tiny_model("plain", tmp_path)
    before = path.stat()
    assert tiny_model("plain", tmp_path) == path
    after = path.stat()
    assert (before.st_ino, before.st_mtime_ns) == (after.st_ino, after.st_mtime_ns)
    assert list(tmp_path.iterdir()) == [path], "unfinished files are left over"


def test_unknown_kind_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="got 'huge', expected one of plain, swa"):
        tiny_model("huge", tmp_path)  # type: ignore[arg-type]


def test_kinds_are_all_named() -> None:
    assert set(get_args(Kind)) == {*GENERATING_KINDS, "encoder", "vocabulary"}


# --- memory types ------------------------------------------------------------------------------

_PLAIN = {
    "has_memory": True,
    "is_recurrent": False,
    "is_hybrid": False,
    "n_swa": 0,
    "can_step_back": True,
    "can_step_back_with_snapshot": True,
}
_HYBRID = {**_PLAIN, "is_hybrid": True, "can_step_back": False}
_EXPECTED: dict[Kind, dict[str, Any]] = {
    "plain": _PLAIN,
    "stops": _PLAIN,
    "raw_bytes": _PLAIN,
    "swa": {**_PLAIN, "n_swa": SLIDING_WINDOW},
    "recurrent": {
        **_PLAIN,
        "is_recurrent": True,
        "can_step_back": False,
        "can_step_back_with_snapshot": False,
    },
    "hybrid": {**_HYBRID, "can_step_back_with_snapshot": False},
    "rollback": _HYBRID,
    "encoder": {
        **_PLAIN,
        "has_memory": False,
        "can_step_back": False,
        "can_step_back_with_snapshot": False,
    },
}


@pytest.mark.parametrize("kind", _EXPECTED)
def test_memory_type(kind: Kind, tiny: Tiny, reference: ReferenceProgram) -> None:
    info = reference.info(tiny(kind))
    assert {key: info[key] for key in _PLAIN} == _EXPECTED[kind]


def test_encoder_cannot_generate(tiny: Tiny, reference: ReferenceProgram) -> None:
    with pytest.raises(ReferenceFailedError, match="no memory"):
        reference.greedy(tiny("encoder"), [_STORY], n_predict=1)


def test_vocabulary_has_no_weights(tiny: Tiny, reference: ReferenceProgram) -> None:
    with pytest.raises(ReferenceFailedError, match="cannot load"):
        reference.greedy(tiny("vocabulary"), [_STORY], n_predict=1)


# --- the tokenizer -----------------------------------------------------------------------------


def test_special_tokens(tiny_plain: Path, reference: ReferenceProgram) -> None:
    info = reference.info(tiny_plain)
    eos, eot = _VOCABULARY.id_of(EOS), _VOCABULARY.id_of(EOT)
    assert (info["bos"], info["eos"], info["eot"]) == (_BOS, eos, eot)
    assert info["eog"] == sorted((eos, eot))
    assert info["n_vocab"] == len(_VOCABULARY)
    assert info["add_bos"]
    assert info["has_chat_template"]


@pytest.mark.parametrize("kind", KINDS)
def test_all_kinds_tokenize_alike(kind: Kind, tiny: Tiny, reference: ReferenceProgram) -> None:
    text = "<|im_start|>user\nA の 日本 é 7<|im_end|><tool_call>"
    (tokens,) = reference.tokenize(tiny(kind), [text])
    assert tokens[0] == _BOS
    assert tokens[1] == _VOCABULARY.id_of("<|im_start|>")
    assert tokens[-1] == _VOCABULARY.id_of("<tool_call>")
    assert b"".join(_VOCABULARY.raw[token] for token in tokens).decode() == (
        "user\nA の 日本 é 7<tool_call>"
    )


def test_every_readable_token_is_reached(tiny: Tiny, reference: ReferenceProgram) -> None:
    texts = {
        token: raw.decode() for token, raw in enumerate(_VOCABULARY.raw) if raw and _is_text(raw)
    }
    reached = reference.tokenize(tiny("vocabulary"), list(texts.values()))
    assert dict(zip(texts, reached, strict=True)) == {token: [_BOS, token] for token in texts}


def test_characters_can_be_split(tiny: Tiny, reference: ReferenceProgram) -> None:
    ((_, first, second),) = reference.tokenize(tiny("vocabulary"), ["の"])
    assert _VOCABULARY.raw[first] + _VOCABULARY.raw[second] == "の".encode()


# --- the text ----------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", GENERATING_KINDS)
def test_output_is_varied(kind: Kind, tiny: Tiny, reference: ReferenceProgram) -> None:
    runs = _runs(reference, tiny(kind))
    assert len({tuple(run.tokens) for run in runs}) == len(runs), "two prompts, one text"
    for run in runs:
        if run.finish_reason == "length":
            assert len(run.tokens) == _N_PREDICT
            assert len(set(run.tokens)) >= 20, run.text


@pytest.mark.parametrize("kind", GENERATING_KINDS)
def test_the_whole_prompt_matters(kind: Kind, tiny: Tiny, reference: ReferenceProgram) -> None:
    prompt = list(_random_prompts(1, 60)[0].encode())
    prompts = [prompt]
    for position in (0, 20, 40, 50, 58):
        changed = list(prompt)
        changed[position] = ord("Z")
        prompts.append(changed)
    base, *others = reference.greedy(tiny(kind), prompts, n_predict=1, top=len(_VOCABULARY))
    for other in others:
        difference = max(abs(dict(base.top[0])[token] - logit) for token, logit in other.top[0])
        assert difference > 0.01, "a token of the prompt left no trace"


@pytest.mark.parametrize("kind", GENERATING_KINDS)
def test_chunks_of_the_prompt_do_not_matter(
    kind: Kind, tiny: Tiny, reference: ReferenceProgram
) -> None:
    whole = _runs(reference, tiny(kind))
    for n_ubatch in (1, 7):
        chunked = _runs(reference, tiny(kind), n_ubatch=n_ubatch)
        assert [run.tokens for run in chunked] == [run.tokens for run in whole]


@pytest.mark.parametrize("kind", [k for k in GENERATING_KINDS if k != "raw_bytes"])
def test_text_is_utf8_with_split_characters(
    kind: Kind, tiny: Tiny, reference: ReferenceProgram
) -> None:
    split = 0
    for run in _runs(reference, tiny(kind)):
        text = run.raw.decode(errors="ignore")
        # Only the last character may be incomplete.
        assert run.raw.startswith(text.encode())
        assert len(run.raw) - len(text.encode()) <= 3
        split += sum(not _is_text(_VOCABULARY.raw[token]) for token in run.tokens)
        assert not any(ord(character) < 0x20 and character != "\n" for character in text)
    assert split >= 5


def test_raw_bytes_are_not_utf8(tiny: Tiny, reference: ReferenceProgram) -> None:
    runs = _runs(reference, tiny("raw_bytes"))
    assert sum("\ufffd" in run.text for run in runs) >= len(runs) - 1


def test_only_stops_ends_by_itself(tiny: Tiny, reference: ReferenceProgram) -> None:
    for kind in GENERATING_KINDS:
        reasons = [run.finish_reason for run in _runs(reference, tiny(kind))]
        if kind == "stops":
            assert {"stop", "length"} == set(reasons), "expected some of both"
        else:
            assert set(reasons) == {"length"}, kind


def test_stop_token_ends_the_run(tiny: Tiny, reference: ReferenceProgram) -> None:
    for run in _runs(reference, tiny("stops")):
        stops = [step for step, token in enumerate(run.tokens) if token == _VOCABULARY.id_of(EOT)]
        assert stops == ([len(run.tokens) - 1] if run.finish_reason == "stop" else [])


def test_tokens_and_text_agree(tiny_any: Path, reference: ReferenceProgram) -> None:
    for run in _runs(reference, tiny_any):
        assert run.raw == b"".join(_VOCABULARY.raw[token] for token in run.tokens)
        assert run.tokens == [step[0][0] for step in run.top]


# --- the reference program ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("prompt", "complaint"),
    [
        ([], "got no token"),
        ([0, len(_VOCABULARY)], f"got token {len(_VOCABULARY)}, expected 0 to"),
        ([-1], "got token -1"),
    ],
)
def test_reference_refuses_bad_prompts(
    prompt: list[int], complaint: str, tiny_plain: Path, reference: ReferenceProgram
) -> None:
    with pytest.raises(ReferenceFailedError, match=complaint):
        reference.greedy(tiny_plain, [prompt], n_predict=1)


def test_decided_ends_at_a_near_tie() -> None:
    top = [[(5, 9.0), (7, 8.0)], [(6, 9.0), (7, 8.9)], [(8, 9.0), (7, 1.0)]]
    run = GreedyRun([1], [5, 6, 8], "length", b"", top)
    assert run.decided(0.5) == [5]
    assert run.decided(0.01) == [5, 6, 8]
