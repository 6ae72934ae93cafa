"""Certificates for tests, made by the openssl program: an authority, a server's and a client's."""

import ssl
import subprocess
from dataclasses import dataclass
from pathlib import Path

from tests.services.find import program, require


@dataclass(frozen=True)
class Certificates:
    """PEM files. `server` is for the name given to `make_certificates`; `client` has no name that matters."""

    authority: Path
    server: Path
    server_key: Path
    client: Path
    client_key: Path

    def server_context(self, wants_client: bool = False) -> ssl.SSLContext:
        """For the receiver; with wants_client only for clients whose certificate the authority signed."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.server, self.server_key)
        if wants_client:
            context.verify_mode = ssl.CERT_REQUIRED
            context.load_verify_locations(self.authority)
        return context


def make_certificates(directory: Path, server_name: str = "IP:127.0.0.1", server_days: int = 1) -> Certificates:
    """All of them, valid for a day. server_name: as openssl writes a subjectAltName. server_days: how long the server's
    is valid; 0: up to now."""
    openssl = require("openssl", program("openssl"), "the openssl program is not installed")

    def run(*arguments: str) -> None:
        subprocess.run([openssl, *arguments], cwd=directory, check=True, capture_output=True)

    new_key = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")
    run("req", "-x509", *new_key, "-keyout", "ca.key", "-out", "ca.pem", "-days", "1", "-subj", "/CN=tests")
    for name, alternative in (("server", server_name), ("client", "DNS:client.test")):
        (directory / "extensions").write_text(f"subjectAltName={alternative}")
        run("req", *new_key, "-keyout", f"{name}.key", "-out", f"{name}.csr", "-subj", f"/CN={name}")
        days = str(server_days) if name == "server" else "1"
        signing = ("-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-days", days, "-extfile", "extensions")
        run("x509", "-req", "-in", f"{name}.csr", "-out", f"{name}.pem", *signing)
    paths = [directory / name for name in ("ca.pem", "server.pem", "server.key", "client.pem", "client.key")]
    return Certificates(*paths)
