"""Which addresses may be connected to: a redirect must not lead into a private network."""

from __future__ import annotations

import ipaddress
import socket
from typing import TYPE_CHECKING
from urllib.parse import urljoin, urlsplit

from dispersion.checkpoint.remote.places import check_url
from dispersion.checkpoint.text import shown
from dispersion.errors import ArgumentError, CheckpointError

if TYPE_CHECKING:
    from ipaddress import IPv4Address, IPv6Address

_NAT64 = ipaddress.ip_network("64:ff9b::/96")


def kind(address: str) -> str | None:
    """What sort of address that is not public an IP address is; None for a public one."""
    try:
        ip: IPv4Address | IPv6Address = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return "unknown"
    if isinstance(ip, ipaddress.IPv6Address):
        inner = ip.ipv4_mapped or ip.sixtofour
        if inner is None and ip in _NAT64:
            inner = ipaddress.IPv4Address(ip.packed[-4:])
        ip = inner or ip
    if ip.is_loopback or ip.is_unspecified:
        return "loopback"
    if ip.is_link_local:
        return "link-local"
    if ip.is_multicast or ip.is_reserved:
        return "reserved"
    return None if ip.is_global else "private"


def kinds(host: str, port: int | None) -> frozenset[str]:
    """The sorts of addresses, other than public ones, that a host's name stands for.

    Raises:
        OSError: the name cannot be resolved.
    """
    found = socket.getaddrinfo(host, port or 443, type=socket.SOCK_STREAM)
    each = (kind(str(entry[4][0])) for entry in found)
    return frozenset(word for word in each if word is not None)


def next_url(current: str, location: str, first: str, name: str) -> str:
    """Where a redirect leads, if it is followed at all.

    Only https is, or http on the very host that the user named with http.

    Args:
        current: the address that answered with the redirect.
        location: the Location header.
        first: the address that the user gave.
        name: how messages name the file.

    Raises:
        CheckpointError: another scheme, a malformed address, or credentials in it.
    """
    try:
        target = urljoin(current, location)
        parts = check_url(target.partition("#")[0], "a redirect")
    except (ValueError, ArgumentError):
        msg = f"{shown(name)}: the server redirects to no proper http or https URL. Not followed."
        raise CheckpointError(msg) from None
    start = urlsplit(first)
    same = start.scheme == "http" and parts.hostname == start.hostname
    if parts.scheme != "https" and not same:
        msg = (
            f"{shown(name)}: the server redirects to {parts.scheme}://{shown(parts.hostname)}; "
            "only https is followed. Give that address itself if you trust it."
        )
        raise CheckpointError(msg)
    return parts.geturl()
