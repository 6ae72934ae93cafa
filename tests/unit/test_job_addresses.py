"""Which addresses a job may call."""

import pytest

from outboxd.jobs.addresses import refusal

PUBLIC = ["8.8.8.8", "93.184.216.34", "2606:4700::1111", "::ffff:8.8.8.8", "64:ff9b::808:808", "2002:808:808::1"]
PRIVATE = [
    "10.0.0.1", "10.255.255.255", "172.16.0.1", "172.31.255.255", "192.168.0.1", "127.0.0.1", "127.255.255.254",
    "0.0.0.0", "0.1.2.3", "100.64.0.1", "100.127.255.254", "192.0.0.192", "198.18.0.1", "224.0.0.1", "239.255.255.255",
    "240.0.0.1", "255.255.255.255", "::", "::1", "fc00::1", "fd12:3456::1", "fec0::1", "ff02::1", "ff0e::1",
    "2001:db8::1", "64:ff9b:1::808:808",
    "::ffff:10.0.0.1", "::ffff:127.0.0.1", "::ffff:0.0.0.0", "::127.0.0.1", "64:ff9b::10.0.0.1", "2002:7f00:1::",
    "2002:a00:1::1", "2001:0:a00:1::1",
]  # fmt: skip
NEVER = [
    "169.254.169.254", "169.254.0.1", "169.254.170.2", "100.100.100.200", "168.63.129.16", "fe80::1", "fe80::1%eth0",
    "febf::1", "fd00:ec2::254", "fd00:ec2::23", "fd20:ce::254",
    "::ffff:169.254.169.254", "::ffff:a9fe:a9fe", "::169.254.169.254", "64:ff9b::169.254.169.254",
    "64:ff9b:1::169.254.169.254", "2002:a9fe:a9fe::1", "2001:0:a9fe:a9fe::1",
]  # fmt: skip


@pytest.mark.parametrize("address", PUBLIC)
def test_a_public_address_may_be_called(address: str) -> None:
    """Whatever the setting says, and however the address is written."""
    assert [refusal(address, allow_private) for allow_private in (True, False)] == ["", ""]


@pytest.mark.parametrize("address", PRIVATE)
def test_a_private_address_may_be_called_where_the_setting_says_so(address: str) -> None:
    """Also one that stands in an IPv6 address; the reason names the setting."""
    assert refusal(address, allow_private=True) == ""
    assert refusal(address, allow_private=False) == (
        f"{address} is a private address, and jobs.allow_private_targets is false"
    )


@pytest.mark.parametrize("address", NEVER)
def test_where_clouds_keep_credentials_no_job_may_call(address: str) -> None:
    """Whatever the setting says, and however the address is written."""
    reason = f"{address} is link-local, or where clouds keep credentials: no job may call it"
    assert [refusal(address, allow_private) for allow_private in (True, False)] == [reason, reason]


@pytest.mark.parametrize("text", ["", "localhost", "1.2.3", "/run/socket"])
def test_what_is_no_address_may_not_be_called(text: str) -> None:
    """Nobody can tell where it leads."""
    assert refusal(text, allow_private=True) == f"{text} is no address"
