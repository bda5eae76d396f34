"""Which addresses the portal may connect to on behalf of people: the internet, and listed networks.

A webhook is an address that somebody typed, and the portal stands inside a network that this person may
not reach. Names are therefore resolved once, and the connection goes to the address that was looked at.
"""

from __future__ import annotations

import socket
from collections.abc import Iterable
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network

#: IPv6 networks that stand for IPv4 addresses behind a translator: NAT64 and 6to4.
_NAT64 = ip_network("64:ff9b::/96")
_LOCAL_NAT64 = ip_network("64:ff9b:1::/48")
#: What older versions of Python take for the internet: addresses for protocols (one is a cloud's metadata),
#: relays and examples; and the address at which Azure's machines find their host.
_INSIDE = [
    ip_network(network)
    for network in ("fec0::/10", "192.0.0.0/24", "192.88.99.0/24", "3fff::/20", "168.63.129.16/32")
]


class AddressRefused(Exception):
    """The address is not on the internet and in no listed network; the message is for people."""


def is_allowed(address: Address, listed: Iterable[Network] = ()) -> bool:
    """Whether the portal may connect there for somebody."""
    meant = _meant(address)
    if any(meant.version == network.version and meant in network for network in listed):
        return True
    inside = any(meant in network for network in _INSIDE if network.version == meant.version)
    if meant.is_multicast or inside or meant in _LOCAL_NAT64:
        return False
    return meant.is_global and not meant.is_reserved


def _meant(address: Address) -> Address:
    """The IPv4 address inside an IPv6 one, where there is one: that is where the packets go."""
    if isinstance(address, IPv4Address):
        return address
    if address.ipv4_mapped:
        return address.ipv4_mapped
    if address.sixtofour:
        return address.sixtofour
    if address.teredo:
        return address.teredo[1]
    number = int(address)
    if address in _NAT64 or (number >> 32 == 0 and number > 1):
        return IPv4Address(number & 0xFFFFFFFF)
    return address


def resolve(host: str, port: int, listed: Iterable[Network] = ()) -> str:
    """The address to connect to for a host. Raises AddressRefused, or OSError if there is no such host.

    Names that have a private address beside a public one are refused as a whole.
    """
    listed = list(listed)
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    numbers = [str(entry[4][0]) for entry in found]
    for number in numbers:
        if not is_allowed(ip_address(number.partition("%")[0]), listed):
            named = host if host == number else f"{host} ({number})"
            raise AddressRefused(
                f"{named} is inside a network, not on the internet. CATHERDER_WEBHOOK_ALLOW can list it."
            )
    return numbers[0]
