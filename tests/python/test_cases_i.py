"""Cases I: what the installed package does beside others. See CASES.md."""

from __future__ import annotations

import ctypes
import importlib.util
import sys
from pathlib import Path

import pytest
from conftest import Child

import pronk

GPUS = [device for device in pronk.devices() if device.kind != "cpu"]

GENERATE = """
import sys
{first}
import {second}
engine = pronk.InferenceEngine.load(sys.argv[1])
with pronk.InferenceScheduler(1, engine=engine, n_ctx=64, n_threads=1) as scheduler:
    print(scheduler.generate("a", max_tokens=8, temperature=0).result(20).tokens)
"""


@pytest.mark.skipif(bool(GPUS), reason="there is a GPU")
@pytest.mark.parametrize("layers", [1, 99, -1])
def test_layers_for_a_gpu_that_is_not_there(tiny_plain: Path, layers: int) -> None:
    """I03: asking for them is an error that says why; where layers are can be read."""
    with pytest.raises(pronk.InvalidArgumentError, match=rf"n_gpu_layers: got {layers}, .*GPU"):
        pronk.InferenceEngine.load(tiny_plain, n_gpu_layers=layers)
    engine = pronk.InferenceEngine.load(tiny_plain, n_gpu_layers="auto")
    assert engine.n_gpu_layers == 0
    assert [device.kind for device in engine.devices] == ["cpu"]


@pytest.mark.skipif(sys.platform == "win32", reason="other names there")
@pytest.mark.parametrize("symbol", ["llama_decode", "ggml_init", "gguf_init_from_file"])
def test_nothing_of_llama_cpp_can_be_seen(symbol: str) -> None:
    """I05: another copy of it in the process can neither take our symbols nor give us its own."""
    package = Path(pronk.__file__).parent
    libraries = [
        *(path for path in package.glob("lib/libpronk*") if not path.is_symlink()),
        *package.glob("_core*.so"),
    ]
    assert len(libraries) == 2
    for path in libraries:
        with pytest.raises(AttributeError):
            getattr(ctypes.CDLL(str(path)), symbol)


OTHERS = [name for name in ("numpy", "llama_cpp", "torch") if importlib.util.find_spec(name)]


@pytest.mark.parametrize("other", OTHERS)
def test_beside_other_packages(tiny_plain: Path, child: Child, other: str) -> None:
    """I05: imported before or after, both work; packages with a ggml of their own if installed."""
    before = child(GENERATE.format(first=f"import {other}", second="pronk"), tiny_plain)
    after = child(GENERATE.format(first="import pronk", second=other), tiny_plain)
    assert before.stdout == after.stdout != ""
