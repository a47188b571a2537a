"""Texts and token ids as prompts, for every way in which llama.cpp cuts text into tokens."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

from tiny_models import tiny_model

import pronk
from fuzz import corpus, gguf_file, mutate
from fuzz.world import BrokenError, World, finish

# Names of pre-tokenizers, one or two for each of llama.cpp's expressions. Those without a splitter
# of its own go through std::regex, which recurses.
PRE_TOKENIZERS = [
    *("default", "gpt-2", "llama-bpe", "deepseek-llm", "deepseek-coder", "deepseek-v3", "falcon"),
    *("starcoder", "command-r", "qwen2", "qwen35", "stablelm2", "olmo", "poro-chat", "chatglm-bpe"),
    *(
        "viking",
        "jais",
        "tekken",
        "smollm",
        "codeshell",
        "bloom",
        "gpt3-finnish",
        "exaone",
        "exaone4",
    ),
    *(
        "chameleon",
        "minerva-7b",
        "megrez",
        "gpt-4o",
        "superbpe",
        "trillion",
        "bailingmoe",
        "llama4",
    ),
    *("pixtral", "seed-coder", "a.x-4.0", "midm-2.0", "lfm2", "kimi-k2", "grok-2", "afmoe"),
    *("minimax-m2", "youtu", "solar-open", "tiny_aya", "granite-docling", "modern-bert", "glm4"),
]
VOCABULARIES = ["llama-spm", "bert-bge", "nomic-bert-moe", "phi-3"]
WORDS = [
    *(
        "the",
        " world",
        "日本",
        "<|im_start|>",
        "<|im_end|>",
        "<|bos|>",
        "<tool_call>",
        "<s>",
        "<unk>",
    ),
    *(
        "I'm",
        "'ll",
        "'RE",
        "3.14",
        "1,000",
        "http://a.b/c?d=e",
        "()[]{}",
        "\r\n",
        "   ",
        "\t\t",
        "0x1F",
    ),
]


class Prompt:
    def __init__(self, scratch: Path) -> None:
        self.world = World(n_ctx=512)
        self.scratch = scratch
        self.engines: dict[str, pronk.InferenceEngine] = {}
        plain = pronk.InferenceEngine.load(tiny_model("plain", scratch))
        self.tiny = pronk.InferenceScheduler(2, engine=plain, n_ctx=128, n_threads=1)
        # Vocabularies of other kinds: sentence pieces, word pieces, unigrams.
        folder = corpus.LLAMA / "models"
        paths = [folder / f"ggml-vocab-{name}.gguf" for name in VOCABULARIES]
        self.files = {path.stem: path for path in paths if path.exists()}

    def make(self, rng: random.Random) -> bytes:
        if rng.random() < 0.2:
            return json.dumps({"ids": ids(rng)}).encode()
        source = " ".join(mutate.odd_text(rng, WORDS) for _ in range(rng.randrange(1, 4)))
        if rng.random() < 0.3:
            source = mutate.text(rng, source, WORDS)
        if rng.random() < 0.02:
            source = repeated(rng)
        if rng.random() < 0.02:
            source += rng.choice(mutate.SURROGATES)
        names = PRE_TOKENIZERS if rng.random() < 0.7 else sorted(self.files) or PRE_TOKENIZERS
        return json.dumps({"text": source, "vocabulary": rng.choice(names)}).encode()

    def run(self, data: bytes) -> None:
        case = json.loads(data)
        if "ids" in case:
            self.generate(case["ids"])
            return
        source = case["text"]
        engine = self.engine(case["vocabulary"])
        for parse_special in (False, True):
            tokens = engine.tokenize(source, parse_special=parse_special)
            engine.detokenize(tokens, special=True)
            if not all(0 <= token < engine.n_vocab for token in tokens):
                raise BrokenError(f"tokenize() gave {tokens!r:.200}")
        if len(data) % 4 == 0:
            self.generate(source)

    def generate(self, prompt: Any) -> None:
        for scheduler in (self.world.scheduler, self.tiny):
            finish(scheduler.generate(prompt, max_tokens=2, seed=1))

    def engine(self, name: str) -> pronk.InferenceEngine:
        if name not in self.engines:
            path = self.files.get(name) or self.variant(name)
            self.engines[name] = pronk.InferenceEngine.load(path, vocab_only=True)
        return self.engines[name]

    def variant(self, pre_tokenizer: str) -> Path:
        """A byte-level vocabulary with that pre-tokenizer."""
        path = self.scratch / f"{pre_tokenizer}.gguf"
        if not path.exists():
            file = gguf_file.read(tiny_model("vocabulary", self.scratch).read_bytes())
            file.set("tokenizer.ggml.pre", gguf_file.STRING, pre_tokenizer.encode())
            path.write_bytes(gguf_file.write(file))
        return path

    def settle(self) -> None:
        self.world.settle()


def ids(rng: random.Random) -> Any:
    near = rng.choice([259, 400])
    found: list[Any] = [rng.randrange(260) for _ in range(rng.choice([0, 1, 5, 60, 130, 600]))]
    for _ in range(rng.randrange(3)):
        odd = rng.choice([mutate.integer(rng, near), -1, 1.5, None, "a", True, [1]])
        found.insert(rng.randrange(len(found) + 1), odd)
    return found


def repeated(rng: random.Random) -> str:
    """A long stretch that one match of a regular expression may take up."""
    unit = rng.choice(["a", "A", "\n", " ", "é", "日", "1", "!", "a1", "\u0300", "'s", "\0", "-"])
    return unit * rng.choice([5_000, 5_000, 60_000, 300_000])


def make_kind(scratch: Path) -> Prompt:
    return Prompt(scratch)
