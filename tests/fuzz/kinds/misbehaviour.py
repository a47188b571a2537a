"""Does what no mutant may do, so that a test can see whether the driver notices."""

from __future__ import annotations

import os
import random
import signal
import time
from pathlib import Path

import pronk

WAYS = ("accepted", "refused", "died", "raised", "hung", "memory", "unsettled")


class Misbehaviour:
    def __init__(self) -> None:
        self.last = ""

    def make(self, rng: random.Random) -> bytes:
        return rng.choice(WAYS).encode()

    def run(self, data: bytes) -> None:
        way = self.last = data.decode()
        if way == "refused":
            raise pronk.InvalidArgumentError("way: got refused, expected it, go on")
        if way == "died":
            os.kill(os.getpid(), signal.SIGSEGV)
        if way == "raised":
            raise LookupError("no error of pronk's")
        if way == "hung":
            time.sleep(3600)
        if way == "memory":
            bytearray(b"x") * (9 << 27)

    def settle(self) -> None:
        if self.last == "unsettled":
            raise AssertionError("not as before")


def make_kind(scratch: Path) -> Misbehaviour:
    del scratch
    return Misbehaviour()
