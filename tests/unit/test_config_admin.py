"""The section `admin`: where it listens, who is let in, and that no token is ever shown (G11)."""

import hashlib
import os
import traceback
from pathlib import Path

import pytest

from outboxd import redact
from outboxd.config import admin
from outboxd.config.load import parse
from outboxd.config.schema import Admin, Config, Token
from outboxd.errors import ConfigError

REST = "publishers: {console: {type: console}}\noutbox_worker: {direct: [console]}\n"
TOKEN = "a-token-nobody-knows"
DIGEST = hashlib.sha256(TOKEN.encode()).hexdigest()


@pytest.fixture(autouse=True)
def _forget(monkeypatch: pytest.MonkeyPatch) -> None:
    """Secrets become known to the whole process; one test's must not mask another's text."""
    monkeypatch.setattr(redact, "_known", frozenset())


def config(text: str) -> Config:
    return parse(f"{REST}admin: {{{text}}}", {"RUNTIME_DIRECTORY": "/run/test"}, "outbox.yaml")


def problems(text: str) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        config(text)
    shown = "".join(traceback.format_exception(caught.value)) + repr(caught.value)
    assert TOKEN not in shown
    return list(caught.value.problems)


def problem(text: str) -> str:
    (line,) = problems(text)
    return line


def test_without_the_section_it_listens_on_this_machine_only() -> None:
    """The default of a port that shows what is relayed must be a harmless one."""
    assert config("").admin == Admin(host="127.0.0.1", port=9464, socket="/run/test/outboxd.sock")


@pytest.mark.parametrize(
    ("text", "host", "port"),
    [
        ("127.0.0.1:9464", "127.0.0.1", 9464),
        ("0.0.0.0:80", "0.0.0.0", 80),
        ("'[::1]:9464'", "::1", 9464),
        ("'[::]:1'", "::", 1),
        ("relay-1.internal:65535", "relay-1.internal", 65535),
        ("localhost:0", "localhost", 0),
        ("''", "", 0),
        ("null", "", 0),
    ],
)
def test_where_it_listens(text: str, host: str, port: int) -> None:
    """Empty is nowhere; the Unix socket is always there."""
    made = config(f"listen: {text}").admin
    assert (made.host, made.port, made.socket) == (host, port, "/run/test/outboxd.sock")


@pytest.mark.parametrize("text", ["9464", "':9464'", "127.0.0.1", "127.0.0.1:65536", "'::1:9'", "'http://h:1'", "[]"])
def test_what_is_no_address_is_refused(text: str) -> None:
    assert problem(f"listen: {text}").startswith("admin.listen: ")


def test_the_socket_is_an_absolute_path_that_the_kernel_takes() -> None:
    """Children keep it however the working directory changes; a longer one would be cut silently by some systems."""
    assert config("socket: here.sock").admin.socket == str(Path.cwd() / "here.sock")
    longest = "/" + "x" * (admin.MOST_SOCKET_BYTES - 1)
    assert config(f"socket: {longest}").admin.socket == longest
    assert problem(f"socket: {longest}x").startswith("admin.socket: the path is longer than 107 bytes")


@pytest.mark.parametrize(
    ("environ", "is_writable", "is_root", "folder"),
    [
        ({"RUNTIME_DIRECTORY": "/run/a:/run/b"}, False, False, "/run/a"),
        ({"XDG_RUNTIME_DIR": "/run/user/7"}, False, False, "/run/user/7/outboxd"),
        ({"XDG_RUNTIME_DIR": "/run/user/7"}, True, False, "/run/outboxd"),
        ({}, False, True, "/run/outboxd"),
        ({}, False, False, "/tmp/outboxd-7"),
    ],
)
def test_the_runtime_directory_is_the_service_s_else_the_machine_s_else_the_user_s(
    monkeypatch: pytest.MonkeyPatch, environ: dict[str, str], is_writable: bool, is_root: bool, folder: str
) -> None:
    """A command finds the daemon of the same user without being told where."""
    monkeypatch.setattr(os, "geteuid", lambda: 0 if is_root else 7)
    monkeypatch.setattr(os, "access", lambda *_: is_writable)
    assert admin.runtime_directory(environ) == folder


def test_hosts_are_names_without_port() -> None:
    made = config("hosts: [Metrics.Example, '[fd00::1]', 10.0.0.1]").admin
    assert made.hosts == ("metrics.example", "[fd00::1]", "10.0.0.1")
    for text in ("'a:9464'", "'http://a'", "'*'", "'a b'", "'::1'"):
        assert "no host name, write it without scheme and port" in problem(f"hosts: [{text}]")


# tokens


def test_a_token_of_its_own_file_may_do_everything(tmp_path: Path) -> None:
    (tmp_path / "token").write_text(TOKEN + "\n")
    made = config(f"token_file: {tmp_path}/token")
    assert made.admin.tokens == (Token("token_file", DIGEST, ("*",)),)
    assert TOKEN in made.secrets
    assert TOKEN not in repr(made)
    assert DIGEST not in repr(made)
    assert redact.redact(f"it is {TOKEN}") == "it is ***"


def test_a_short_token_is_refused_without_showing_it(tmp_path: Path) -> None:
    """It would be guessed."""
    (tmp_path / "token").write_text("fifteen-letters")
    line = problem(f"token_file: {tmp_path}/token")
    assert line.startswith("admin.token_file: the token is shorter than 16 characters")
    assert "fifteen" not in line


@pytest.mark.parametrize("content", ["", "two\nlines-of-a-token-file", None])
def test_a_file_that_holds_no_token_is_refused(tmp_path: Path, content: str | None) -> None:
    if content is not None:
        (tmp_path / "token").write_text(content)
    assert problem(f"token_file: {tmp_path}/token").startswith("admin.token_file: file ")


def tokens_file(tmp_path: Path, text: str) -> str:
    (tmp_path / "tokens.yaml").write_text(text)
    return f"tokens_file: {tmp_path}/tokens.yaml"


def test_a_file_of_tokens_names_who_may_do_what(tmp_path: Path) -> None:
    """The file holds hashes only, so it may be read by who must not use them."""
    text = f"- {{name: ops, sha256: {DIGEST.upper()}, permissions: ['dead:*', lanes:read]}}\n"
    text += f"- name: jobs\n  sha256: {'0' * 64}\n  permissions: ['sys:job:*', '*']\n"
    made = config(tokens_file(tmp_path, text)).admin
    assert made.tokens == (Token("ops", DIGEST, ("dead:*", "lanes:read")), Token("jobs", "0" * 64, ("sys:job:*", "*")))


def test_both_files_may_be_given(tmp_path: Path) -> None:
    (tmp_path / "token").write_text(TOKEN)
    text = tokens_file(tmp_path, f"[{{name: ops, sha256: '{'0' * 64}', permissions: []}}]")
    made = config(f"token_file: {tmp_path}/token, {text}").admin
    assert [token.name for token in made.tokens] == ["token_file", "ops"]


ENTRY = f"name: a, sha256: '{'0' * 64}'"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("{a: b}", "expected a list, got a mapping"),
        (f"[{{{ENTRY}}}]", "expected the keys name, sha256 and permissions"),
        (f"[{{{ENTRY}, permissions: [], more: 1}}]", "expected the keys name, sha256 and permissions"),
        ("[{name: a, sha256: abc, permissions: []}]", "expected 64 hexadecimal digits"),
        (f"[{{name: a, sha256: {TOKEN}, permissions: []}}]", "expected 64 hexadecimal digits"),
        (f"[{{{ENTRY}, permissions: dead:read}}]", "expected a list, got text"),
        (f"[{{{ENTRY}, permissions: [everything]}}]", "'everything' is no permission, write one of lanes:read"),
        (f"[{{{ENTRY}, permissions: ['dead:read:']}}]", "is no permission"),
        (f"[{{{ENTRY}, permissions: []}}, {{{ENTRY}, permissions: []}}]", "two tokens are named a"),
        (f"[{TOKEN}]", "expected a mapping"),
        ("[", "line 1"),
    ],
)
def test_a_file_of_tokens_that_cannot_be_used_is_refused(tmp_path: Path, text: str, told: str) -> None:
    """Who is let in must not depend on what a typing error was taken for; a token in the wrong place is not shown."""
    found = problems(tokens_file(tmp_path, text))
    assert all(line.startswith("admin.tokens_file") for line in found)
    assert any(told in line for line in found), found


def test_unknown_keys_are_refused_with_the_nearest() -> None:
    assert problem("lisen: ''") == "admin.lisen: unknown key, did you mean listen?"


def test_the_folder_of_metrics_is_an_absolute_path() -> None:
    made = parse(REST + "metrics_dir: here", {}, "outbox.yaml")
    assert made.metrics_dir == str(Path.cwd() / "here")
    assert parse(REST, {}, "outbox.yaml").metrics_dir is None


def test_a_permission_that_allows_nothing_is_warned_of(tmp_path: Path) -> None:
    """A slip of the pen would be noticed only when a person in a hurry is refused."""
    text = tokens_file(tmp_path, f"[{{name: ops, sha256: '{'0' * 64}', permissions: [dead:reda, 'dead:*']}}]")
    (warning,) = config(text).warnings
    assert "'dead:reda' allows nothing here, known are lanes:read" in warning
