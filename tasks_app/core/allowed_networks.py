"""Protection against server-side request forgery: only the internet and listed networks may be reached.

Users enter the URLs of webhooks and forges, and the portal may be inside a network that they cannot access.
Host names are therefore resolved once, and the connection goes to the IP address that was checked.
"""

from __future__ import annotations

import socket
from collections.abc import Iterable
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network

IpAddress = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network

#: IPv6 networks that stand for IPv4 addresses behind a translator: NAT64 and 6to4.
_NAT64 = ip_network("64:ff9b::/96")
_LOCAL_NAT64 = ip_network("64:ff9b:1::/48")
#: Networks that older versions of Python take for the internet: protocol assignments (one is a cloud's
#: metadata service), relays and examples; and the IP address of the host of Azure's machines.
_NOT_INTERNET = [
    ip_network(network)
    for network in ("fec0::/10", "192.0.0.0/24", "192.88.99.0/24", "3fff::/20", "168.63.129.16/32")
]


class IpAddressRefused(Exception):
    """The IP address is neither on the internet nor in a listed network; the message is for people."""


def is_allowed(ip: IpAddress, listed: Iterable[Network] = ()) -> bool:
    """Return whether the portal may connect to this IP address for a user."""
    ip = _embedded_ipv4(ip)
    if any(ip.version == network.version and ip in network for network in listed):
        return True
    inside = any(ip in network for network in _NOT_INTERNET if network.version == ip.version)
    if ip.is_multicast or inside or ip in _LOCAL_NAT64:
        return False
    return ip.is_global and not ip.is_reserved


def _embedded_ipv4(address: IpAddress) -> IpAddress:
    """Return the IPv4 address embedded in an IPv6 one, to which packets go, or the IP address itself."""
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
    """Return the IP address of a host. Raises IpAddressRefused, or OSError for an unknown host.

    A name with a public and a private IP address is refused.
    """
    listed = list(listed)
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    addresses = [str(entry[4][0]) for entry in found]
    for address in addresses:
        if not is_allowed(ip_address(address.partition("%")[0]), listed):
            name = host if host == address else f"{host} ({address})"
            raise IpAddressRefused(
                f"{name} is inside a network, not on the internet. CATHERDER_WEBHOOK_ALLOW can list it."
            )
    return addresses[0]
