"""What docs/embedding.md quotes is in the files that it names, which are built and run by tests."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

PROJECT = Path(__file__).resolve().parents[2]
PAGE = PROJECT / "docs/embedding.md"
TEXT = PAGE.read_text(encoding="utf-8")
# A link to a file, the rest of its paragraph, and the block after it.
FENCE = re.compile(r"([^\n]*(?:\n(?!\n)[^\n]*)*)\n\n```\w+\n(.*?)```", re.DOTALL)
LINK = re.compile(r"\]\((\.\./[^)]+\.\w+)\)")
QUOTES = [(links[-1], code) for text, code in FENCE.findall(TEXT) if (links := LINK.findall(text))]


def test_there_are_quotes() -> None:
    assert len(QUOTES) >= 4


@pytest.mark.parametrize(("file", "code"), QUOTES, ids=[Path(file).name for file, _ in QUOTES])
def test_quotes_are_true(file: str, code: str) -> None:
    assert code in (PAGE.parent / file).read_text(encoding="utf-8")


@pytest.mark.parametrize("page", sorted(PROJECT.glob("docs/*.md")), ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8")):
        assert (page.parent / target).exists(), target


def test_versions_are_those_of_this_release() -> None:
    header = (PROJECT / "cpp/include/pronk/version.h").read_text(encoding="utf-8")
    minor = re.findall(r'PRONK_VERSION "(\d+\.\d+)\.', header)[0]
    files = [PAGE, *PROJECT.glob("examples/embed/**/*.t*"), *PROJECT.glob("tests/downstream/*.t*")]
    stated = re.compile(r"(?:pronk==|find_package\(pronk |libpronk\.so\.)(\d+\.\d+)")
    versions = [stated.findall(file.read_text(encoding="utf-8")) for file in files]
    assert all(versions)
    assert {version for found in versions for version in found} == {minor}
