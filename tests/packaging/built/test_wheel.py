"""What is in the wheel: all that users build against, and nothing else."""

from __future__ import annotations

import email
import io
import re
import subprocess
import sys
import zipfile
from collections import Counter
from pathlib import Path, PurePosixPath

import pytest
from elftools.elf.dynamic import DynamicSection
from elftools.elf.elffile import ELFFile

from built.installation import PROJECT, run

HEADER = (PROJECT / "cpp/include/pronk/version.h").read_text(encoding="utf-8")
VERSION = re.findall(r'PRONK_VERSION "(.+)"', HEADER)[0]
ABI = VERSION.rpartition(".")[0]
NAME = f"libpronk.{ABI}.dylib" if sys.platform == "darwin" else f"libpronk.so.{ABI}"
LIBRARY = f"pronk/lib/{NAME}"
EXTENSION = "pronk/_core.abi3.so"
needs_elf = pytest.mark.skipif(sys.platform != "linux", reason="reads ELF files")


@pytest.fixture(scope="module")
def archive(wheel: Path) -> zipfile.ZipFile:
    return zipfile.ZipFile(wheel)


@pytest.fixture(scope="module")
def names(archive: zipfile.ZipFile) -> set[str]:
    return {name for name in archive.namelist() if not name.endswith("/")}


def in_project(pattern: str, root: str) -> set[str]:
    return {str(path.relative_to(PROJECT / root)) for path in (PROJECT / root).glob(pattern)}


def test_one_wheel_for_all_pythons(wheel: Path, archive: zipfile.ZipFile) -> None:
    print(f"{wheel.name}: {wheel.stat().st_size / 1e6:.2f} MB")
    assert wheel.name.startswith(f"pronk-{VERSION}-cp310-abi3-")
    text = archive.read(f"pronk-{VERSION}.dist-info/METADATA").decode()
    metadata = email.message_from_string(text)
    assert metadata["Version"] == VERSION
    assert metadata["Requires-Python"] == ">=3.10"
    # A cap would part the extensions that share one backend.
    assert "nanobind-backend>=1.0" in metadata.get_all("Requires-Dist", [])


def test_contents(names: set[str]) -> None:
    """The list is complete: a file that a build of llama.cpp leaves behind fails it."""
    info = f"pronk-{VERSION}.dist-info"
    licences = {name for name in names if name.startswith(f"{info}/licenses/")}
    assert {PurePosixPath(name).name for name in licences} >= {"LICENSE", "NOTICE.md"}
    cmake = {"pronkConfig", "pronkConfigVersion", "pronkExtension", "pronkTargets"}
    targets = {name for name in names if name.startswith("pronk/lib/cmake/pronk/pronkTargets-")}
    assert len(targets) == 1  # of the one build type
    expected = {
        *(f"pronk/{name}" for name in in_project("**/*.py", "src/pronk")),
        *(f"pronk/include/pronk/{name}" for name in in_project("*.h", "cpp/include/pronk")),
        *(f"pronk/lib/cmake/pronk/{name}.cmake" for name in cmake),
        *(f"{info}/{name}" for name in ("METADATA", "WHEEL", "RECORD", "entry_points.txt")),
        "pronk/py.typed",
        "pronk/_core.pyi",
        EXTENSION,
        LIBRARY,
    }
    assert names - licences - targets == expected


def test_no_file_is_there_twice(archive: zipfile.ZipFile, names: set[str]) -> None:
    """A wheel holds no symlinks: each would be a whole copy."""
    sums = Counter((archive.getinfo(n).CRC, archive.getinfo(n).file_size) for n in names)
    assert [key for key, count in sums.items() if count > 1 and key[1] > 0] == []


def test_entry_points(archive: zipfile.ZipFile) -> None:
    text = archive.read(f"pronk-{VERSION}.dist-info/entry_points.txt").decode()
    assert "[cmake.root]\npronk = pronk\n" in text
    assert "[console_scripts]\npronk = pronk.__main__:main\n" in text


def elf(archive: zipfile.ZipFile, name: str) -> ELFFile:
    return ELFFile(io.BytesIO(archive.read(name)))


def dynamic(file: ELFFile, tag: str) -> list[str]:
    section = file.get_section_by_name(".dynamic")
    assert isinstance(section, DynamicSection)
    attribute = {"DT_NEEDED": "needed", "DT_SONAME": "soname", "DT_RUNPATH": "runpath"}[tag]
    return [getattr(entry, attribute) for entry in section.iter_tags(tag)]


@needs_elf
def test_how_the_libraries_find_each_other(archive: zipfile.ZipFile) -> None:
    assert dynamic(elf(archive, LIBRARY), "DT_SONAME") == [NAME]
    extension = elf(archive, EXTENSION)
    assert NAME in dynamic(extension, "DT_NEEDED")
    assert dynamic(extension, "DT_RUNPATH") == ["$ORIGIN/lib"]
    # Nothing of llama.cpp and no OpenMP runtime, which another package may bring too.
    system = {"libc.so.6", "libm.so.6", "libstdc++.so.6", "libgcc_s.so.1", "libpthread.so.0"}
    loader = {"libdl.so.2", "librt.so.1", "ld-linux-x86-64.so.2", "ld-linux-aarch64.so.1"}
    for file in (LIBRARY, EXTENSION):
        needed = set(dynamic(elf(archive, file), "DT_NEEDED"))
        assert needed <= system | loader | {NAME}, file


@needs_elf
def test_libpronk_exports_pronk_alone(archive: zipfile.ZipFile) -> None:
    """A symbol of llama.cpp or ggml would be shared with another copy in the process."""
    symbols = elf(archive, LIBRARY).get_section_by_name(".dynsym")
    exported = {
        symbol.name for symbol in symbols.iter_symbols() if symbol["st_shndx"] != "SHN_UNDEF"
    }
    # Functions and static members of pronk; its typeinfo and tables of virtual functions.
    ours = {name for name in exported if re.match(r"_Z(NK?|T[ISV]NK?)5pronk", name)}
    assert len(ours) > 50
    assert exported - ours == set()


@needs_elf
def test_auditwheel_finds_nothing_to_add(wheel: Path) -> None:
    said = run(sys.executable, "-m", "auditwheel", "show", wheel, cwd=wheel.parent)
    print(said)
    text = " ".join(said.split())
    assert re.search(r'is consistent with the following platform tag: "manylinux_2_\d+_', text)


def test_abi3audit_finds_no_call_beyond_the_stable_abi(wheel: Path) -> None:
    said = subprocess.run(
        [Path(sys.executable).parent / "abi3audit", "--strict", "--summary", wheel],
        capture_output=True,
        text=True,
        check=False,
    )
    assert said.returncode == 0, said.stdout + said.stderr
    assert "1 extensions scanned" in said.stderr + said.stdout
