"""``python -m pronk``: the command line, see ``python -m pronk --help``."""

from __future__ import annotations

from pronk._cli.app import main

__all__ = ["main"]

if __name__ == "__main__":
    main()
