"""The parent: hands mutants to children, notices what kills them, and gathers the findings."""

from __future__ import annotations

import contextlib
import json
import os
import re
import select
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fuzz import known

# Importing pronk and making models, on a busy machine too.
START_SECONDS = 120.0
# A child is replaced after so many mutants: what one leaves behind must not decide about others.
MUTANTS_PER_CHILD = 2000


@dataclass(frozen=True)
class Outcome:
    """How a mutant ended."""

    what: str  # "accepted", "refused", or of a finding "died", "raised", "hung", "memory"
    error: str = ""  # name of the exception or of the signal
    detail: str = ""

    @property
    def fine(self) -> bool:
        return self.what in ("accepted", "refused")

    @property
    def place(self) -> str:
        """What findings of one cause have in common."""
        lines = [line.strip() for line in self.detail.splitlines() if line.strip()]
        if self.what == "died":
            asserts = [
                line for line in lines if re.search(r"GGML_ASSERT|: fatal error|what\(\)", line)
            ]
            aborts = [line for line in lines if re.match(r".*\.(cpp|c|h):\d+: ", line)]
            found = (asserts or aborts or ["no message"])[-1]
            return re.sub(r"^\S*/(?=[^/]+\.(cpp|c|h):)", "", found)[:160]
        if self.what == "raised":
            frames = [line for line in lines if line.startswith("File ")]
            return f"{frames[-1] if frames else ''} {lines[-1] if lines else ''}"[-200:]
        return ""


@dataclass
class Finding:
    kind: str
    seed: int
    number: int
    outcome: Outcome
    alone: bool | None = None  # whether it happens in a fresh child too
    path: Path | None = None
    known: str | None = None  # why it is listed as a limit
    times: int = 1

    def __str__(self) -> str:
        lines = [
            f"{self.kind}: {self.outcome.what} {self.outcome.error} at seed {self.seed}, number "
            f"{self.number}, {self.times} time(s): {self.outcome.place}"
        ]
        if self.known:
            lines.append(f"  known: {self.known}")
        if self.alone is False:
            lines.append("  not alone: only after other mutants, or by chance")
        if self.path:
            lines.append(f"  saved as {self.path}")
            lines.append(f'  again: make fuzz ARGS="--kind {self.kind} --replay {self.path}"')
        return "\n".join(lines)


@dataclass
class Report:
    """What came of one kind."""

    kind: str
    seed: int
    outcomes: Counter[str] = field(default_factory=Counter)
    findings: dict[tuple[str, str, str], Finding] = field(default_factory=dict)
    seconds: float = 0.0
    slowest: tuple[float, int] = (0.0, -1)

    @property
    def tried(self) -> int:
        return sum(self.outcomes.values())

    @property
    def new(self) -> list[Finding]:
        return [finding for finding in self.findings.values() if not finding.known]


class Child:
    """A process that tries mutants; a new one takes its place when it dies or hangs."""

    def __init__(self, kind: str, seed: int, hang_seconds: float) -> None:
        self.kind, self.seed, self.hang_seconds = kind, seed, hang_seconds
        self._process: subprocess.Popen[bytes] | None = None
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - closed in close()
        self._unread = b""
        self._tried = 0

    def ask(self, **request: Any) -> Outcome:
        """Try one mutant."""
        if self._tried >= MUTANTS_PER_CHILD:
            self.stop()
        process = self._process or self._start()
        self._tried += 1
        assert process.stdin is not None
        self._errors.seek(0)
        self._errors.truncate()
        try:
            process.stdin.write(json.dumps(request).encode() + b"\n")
            process.stdin.flush()
        except BrokenPipeError:
            return self._ended()
        answer = self._read(self.hang_seconds)
        if answer is None:
            return self._ended()
        if answer == "":
            process.send_signal(signal.SIGABRT)  # its faulthandler says where it is
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(10)
            detail = self._said()
            self.stop()
            return Outcome("hung", "", detail)
        said = json.loads(answer)
        return Outcome(said["outcome"], said.get("error", ""), said.get("detail", ""))

    def _start(self) -> subprocess.Popen[bytes]:
        folders = [str(Path(__file__).resolve().parents[1]), *filter(None, sys.path)]
        environment = {"PYTHONPATH": os.pathsep.join(folders), "GGML_NO_BACKTRACE": "1"}
        self._process = subprocess.Popen(
            [sys.executable, "-m", "fuzz.worker", self.kind, str(self.seed)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            env={**os.environ, **environment},
        )
        self._unread, self._tried = b"", 0
        if not self._read(START_SECONDS):
            self.stop()
            raise RuntimeError(f"the child for {self.kind} did not start: {self._said()}")
        return self._process

    def _read(self, seconds: float) -> str | None:
        """A line; "" when none came in time, None at the end of the process."""
        assert self._process is not None
        assert self._process.stdout is not None
        descriptor = self._process.stdout.fileno()
        deadline = time.monotonic() + seconds
        while b"\n" not in self._unread:
            left = max(0.0, deadline - time.monotonic())
            if not select.select([descriptor], [], [], left)[0]:
                return ""
            data = os.read(descriptor, 1 << 16)
            if not data:
                return None
            self._unread += data
        line, _, self._unread = self._unread.partition(b"\n")
        return line.decode()

    def _said(self) -> str:
        self._errors.seek(0)
        return self._errors.read()[-6000:].decode(errors="replace")

    def _ended(self) -> Outcome:
        assert self._process is not None
        code = self._process.wait()
        name = signal.Signals(-code).name if code < 0 else f"exit code {code}"
        detail = self._said()
        self.stop()
        return Outcome("died", name, detail)

    def stop(self) -> None:
        if self._process is None:
            return
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe:
                with contextlib.suppress(OSError):
                    pipe.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(5)
        self._process.kill()
        self._process.wait()
        self._process = None

    def close(self) -> None:
        self.stop()
        self._errors.close()


@contextlib.contextmanager
def child(kind: str, seed: int, hang_seconds: float) -> Iterator[Child]:
    made = Child(kind, seed, hang_seconds)
    try:
        yield made
    finally:
        made.close()


@dataclass
class Campaign:
    """So many mutants of one kind, or for so long.

    Args:
        kind: One of `kinds.NAMES`.
        seed: What the mutants are made from.
        count: How many; None for as many as there is time for.
        seconds: For how long; None for as long as it takes.
        jobs: Children at a time.
        hang_seconds: After which a mutant counts as hung.
        folder: Where findings are saved; None saves none.
    """

    kind: str
    seed: int
    count: int | None = None
    seconds: float | None = None
    jobs: int = 1
    hang_seconds: float = 60.0
    folder: Path | None = None
    first: int = 0

    def run(self) -> Report:
        report = Report(self.kind, self.seed)
        lock = threading.Lock()
        errors: list[BaseException] = []
        began = time.monotonic()
        numbers = iter(range(self.first, sys.maxsize))

        def next_number() -> int | None:
            with lock:
                if self.seconds is not None and time.monotonic() - began > self.seconds:
                    return None
                number = next(numbers)
                over = self.count is not None and number - self.first >= self.count
                return None if over or errors else number

        def work() -> None:
            try:
                with child(self.kind, self.seed, self.hang_seconds) as runner:
                    while (number := next_number()) is not None:
                        start = time.monotonic()
                        outcome = runner.ask(number=number)
                        took = time.monotonic() - start
                        with lock:
                            report.outcomes[f"{outcome.what} {outcome.error}".strip()] += 1
                            report.slowest = max(report.slowest, (took, number))
                        if not outcome.fine:
                            self._add(report, lock, number, outcome)
            except BaseException as error:
                errors.append(error)

        threads = [threading.Thread(target=work) for _ in range(self.jobs)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        report.seconds = time.monotonic() - began
        if errors:
            raise errors[0]
        return report

    def _add(self, report: Report, lock: threading.Lock, number: int, outcome: Outcome) -> None:
        key = (outcome.what, outcome.error, outcome.place)
        with lock:
            if key in report.findings:
                report.findings[key].times += 1
                return
            finding = Finding(self.kind, self.seed, number, outcome)
            report.findings[key] = finding
        finding.known = known.reason(self.kind, outcome)
        with child(self.kind, self.seed, self.hang_seconds) as fresh:
            if self.folder is not None:
                self.folder.mkdir(parents=True, exist_ok=True)
                finding.path = self.folder / f"{self.kind}-{self.seed}-{number}"
                fresh.ask(number=number, save=str(finding.path))
                finding.path.with_suffix(".txt").write_text(outcome.detail, encoding="utf-8")
            if finding.known is None:
                finding.alone = not fresh.ask(number=number).fine


def replay(kind: str, path: Path, hang_seconds: float) -> Outcome:
    """Try a mutant that was saved."""
    with child(kind, 0, hang_seconds) as runner:
        return runner.ask(file=str(path))
