# The stubs of what is not written with nanobind.

_core.Acquisition$:
    class Acquisition:
        """
        A permit to come: await it for the permit, or use it in ``async with``, which also gives the permit back. Once.

        Example:
            >>> permit = await scheduler.acquire_async()
        """

        def __await__(self) -> Generator[Any, Any, InferencePermit]: ...

        def __aenter__(self) -> Awaitable[InferencePermit]: ...

        def __aexit__(self, kind: object, error: object, traceback: object, /) -> Awaitable[None]: ...
