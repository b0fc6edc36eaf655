"""An executor on a Dask cluster that already runs (extra `distributed`)."""

from __future__ import annotations

import gc
from contextlib import contextmanager
from typing import TYPE_CHECKING

from dispersion.errors import ArgumentError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from concurrent.futures import Executor

_SECONDS = 20


@contextmanager
def executor_at(address: str) -> Iterator[Executor]:
    """The cluster behind a scheduler's address, as an executor for `dispersion.audit`.

    The workers need this package in the same version, and the checkpoint under the same path. What
    a worker that dies takes along, the cluster does again.

    Raises:
        ArgumentError: no package for clusters, a malformed address, or nobody answers there.

    """
    try:
        from distributed import Client
    except ImportError:
        msg = (
            "scheduler needs the package distributed. "
            "Install it: pip install 'distributed>=2024.8'."
        )
        raise ArgumentError(msg) from None
    client, reason = None, ""
    try:
        client = Client(address, timeout=_SECONDS, set_as_default=False)  # type: ignore[no-untyped-call]
    except (OSError, ValueError, TypeError) as error:
        reason = " ".join(str(error).split()) or type(error).__name__
    if client is None:
        # A half-made client closes itself when it is collected. That must not happen later, while
        # another one starts: both would wait for the same lock for ever.
        gc.collect()
        msg = (
            f"scheduler must be the address of a running Dask scheduler, as in tcp://HOST:8786. "
            f"Got {address!r}: {reason}."
        )
        raise ArgumentError(msg)
    with client:
        yield client.get_executor(pure=False)  # type: ignore[no-untyped-call]
