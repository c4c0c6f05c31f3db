"""Addresses that no store may have, whoever names it: those of metadata services, which give a machine's own credentials to whoever
asks from there. Called with the address of each connection before anything is said on it: a name may lead elsewhere the next time."""

from __future__ import annotations

from ipaddress import IPv6Address, ip_address

from paddleflow.errors import Forbidden

#: Of several clouds, besides the link-local addresses.
METADATA = frozenset(map(ip_address, ("100.100.100.200", "168.63.129.16", "192.0.0.192", "fd00:ec2::254")))


def refuse_metadata_service(address: str) -> None:
    """`Forbidden` for one of them."""
    found = ip_address(address.partition("%")[0])
    if isinstance(found, IPv6Address) and found.ipv4_mapped is not None:
        found = found.ipv4_mapped
    if found.is_link_local or found in METADATA:
        raise Forbidden(
            f"{address} is never connected to: it is where machines of a cloud get their credentials",
            hint="give the store an address that is not link-local",
        )
