"""Which addresses a job may call. Pure.

An IPv6 address that stands for an IPv4 one is judged by both, since a translator on the way may turn it into the other.
"""

from collections.abc import Iterator
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network

Address = IPv4Address | IPv6Address

_NEVER = tuple(
    ip_network(text)
    for text in (
        "169.254.0.0/16",  # link-local; AWS, Azure, Google Cloud and others tell a machine its secrets there
        "fe80::/10",
        "100.100.100.200/32",  # Alibaba Cloud
        "168.63.129.16/32",  # Azure's platform
        "fd00:ec2::/32",  # AWS: ::254 for machines, ::23 for pods
        "fd20:ce::254/128",  # Google Cloud
    )
)
"""Link-local addresses, and others where clouds answer with credentials to whoever asks."""

_NEARBY = tuple(ip_network(text) for text in ("192.0.0.0/24", "fec0::/10", "64:ff9b:1::/48"))
"""Private ones that not every Python counts among those: of protocols, site-local, translated within a site."""

_IPV4_AT_THE_END = tuple(ip_network(text) for text in ("::/96", "64:ff9b::/96", "64:ff9b:1::/48"))
"""IPv4-compatible, and NAT64 (RFC 6052, RFC 8215)."""


def refusal(text: str, allow_private: bool) -> str:
    """Why a job may not call this address, "" if it may. A text that is no address may not be called."""
    try:
        address = ip_address(text.partition("%")[0])
    except ValueError:
        return f"{text} is no address"
    faces = list(_faces(address))
    if any(_is_in(face, _NEVER) for face in faces):
        return f"{text} is link-local, or where clouds keep credentials: no job may call it"
    if not allow_private and any(_is_private(face) for face in faces):
        return f"{text} is a private address, and jobs.allow_private_targets is false"
    return ""


def _faces(address: Address) -> Iterator[Address]:
    """The address and every IPv4 address in it."""
    if isinstance(address, IPv4Address):
        yield address
        return
    if address.ipv4_mapped is not None:  # the kernel connects to the IPv4 address
        yield address.ipv4_mapped
        return
    yield address
    if address.sixtofour is not None:
        yield address.sixtofour
    if address.teredo is not None:
        yield from address.teredo
    if int(address) > 1 and _is_in(address, _IPV4_AT_THE_END):
        yield IPv4Address(int(address) & 0xFFFFFFFF)


def _is_private(address: Address) -> bool:
    """Is it none of a public host's: private, loopback, shared, reserved, unspecified, multicast?"""
    return not address.is_global or address.is_multicast or _is_in(address, _NEARBY)


def _is_in(address: Address, networks: tuple[IPv4Network | IPv6Network, ...]) -> bool:
    return any(address in network for network in networks)
