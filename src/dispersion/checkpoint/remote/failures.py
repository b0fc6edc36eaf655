"""What can go wrong on the way, in words that hold no address, header or token."""

from __future__ import annotations

import contextlib
import ssl
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from dispersion.checkpoint.text import shown
from dispersion.errors import CheckpointError

if TYPE_CHECKING:
    from collections.abc import Iterator

CONNECT, SILENCE = 10.0, 30.0  # seconds to connect; seconds without a byte


class Interrupted(Exception):
    """A failure that may be gone at the next try, after `wait` seconds if the server named any."""

    def __init__(self, reason: str, wait: float = 0.0) -> None:
        super().__init__(reason)
        self.reason, self.wait = reason, wait


@contextlib.contextmanager
def told(url: str, name: str) -> Iterator[None]:
    """Turn what urllib3 and the socket raise into an error of ours.

    Args:
        url: where the request goes.
        name: how messages name the file.

    Raises:
        Interrupted: another try may help.
        CheckpointError: it will not.
    """
    from urllib3 import exceptions as errors

    host = shown(urlsplit(url).hostname)
    try:
        yield
    except (errors.SSLError, ssl.SSLError) as error:
        if "CERTIFICATE" in str(error).upper():
            msg = (
                f"{shown(name)} cannot be read: the certificate of {host} cannot be verified. "
                "Check the address; SSL_CERT_FILE may name further certificates."
            )
            raise CheckpointError(msg) from None
        reason = f"the TLS connection to {host} failed"
    except errors.NameResolutionError:
        reason = f"the name {host} cannot be resolved"
    except (errors.NewConnectionError, errors.ProxyError):  # the first is a timeout to urllib3
        reason = f"no connection to {host}"
    except errors.ConnectTimeoutError:
        reason = f"{host} did not answer within {CONNECT:g} s"
    except (errors.ReadTimeoutError, TimeoutError):
        reason = f"{host} sent nothing for {SILENCE:g} s"
    except errors.LocationValueError:
        msg = f"{shown(name)} cannot be read: {host} is no proper host name."
        raise CheckpointError(msg) from None
    except (errors.HTTPError, OSError):
        reason = f"{host} broke the connection off"
    else:
        return
    raise Interrupted(reason)
