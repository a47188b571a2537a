"""Optional packages: imported where they are needed, or an error that says how to get them."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from pronk._errors import MissingDependencyError

if TYPE_CHECKING:
    from types import ModuleType


def require(module: str, what: str, extra: str = "agents") -> ModuleType:
    """Import ``module``.

    Args:
        module: As in an import statement.
        what: What needs it, first word of the message.
        extra: The extra of pronk that installs it.

    Raises:
        pronk.MissingDependencyError: It is not installed.
    """
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] != module.partition(".")[0]:
            raise
        raise MissingDependencyError(
            f"{what}: got no package {module}, expected it to be installed, "
            f"run: pip install 'pronk[{extra}]'",
            name=module,
        ) from None
