"""URLs and files of secrets: what is read of them, and that nothing of them is ever shown (G11)."""

import base64
import traceback
from pathlib import Path

import pytest

from outboxd import redact
from outboxd.config.load import parse
from outboxd.config.report import Bad
from outboxd.config.schema import Config, Http
from outboxd.config.urls import check_http, parse_database, secrets_of
from outboxd.errors import ConfigError

SECRET = "hunter2-s3cr3t"
REST = "publishers: {console: {type: console}}\noutbox_worker: {direct: [console]}\n"
KEY = base64.b64encode(b"k" * 24).decode()


@pytest.fixture(autouse=True)
def _forget(monkeypatch: pytest.MonkeyPatch) -> None:
    """Secrets become known to the whole process; one test's must not mask another's text."""
    monkeypatch.setattr(redact, "_known", frozenset())


def http(tmp_path: Path, settings: str, **files: str) -> tuple[Config, Http]:
    for name, content in files.items():
        (tmp_path / name).write_text(content)
    settings = settings.replace("@", str(tmp_path))
    text = f"publishers: {{hook: {{type: http, {settings}}}}}\nlanes: {{x: {{direct: [hook]}}}}"
    config = parse(text, {}, "outbox.yaml")
    publisher = config.publishers["hook"]
    assert isinstance(publisher, Http)
    return config, publisher


def problems(text: str) -> tuple[str, ...]:
    with pytest.raises(ConfigError) as caught:
        parse(text, {}, "outbox.yaml")
    shown = "".join(traceback.format_exception(caught.value)) + repr(caught.value)
    assert SECRET not in shown
    return caught.value.problems


def test_a_mysql_url_is_taken_apart_and_decoded() -> None:
    assert parse_database("mysql://a%40b:p%2Fw%3A@Db.Example:3307/na%20me?ssl_ca=/x%26y&ssl_mode=verify_ca") == {
        "scheme": "mysql", "path": "", "host": "db.example", "port": 3307, "user": "a@b", "password": "p/w:",
        "name": "na me", "ssl_ca": "/x&y", "ssl_mode": "VERIFY_CA",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("url", "host", "port", "password"),
    [
        ("mysql://u@h/d", "h", 3306, None),
        ("mysql://u:@h/d", "h", 3306, ""),
        ("mysql://u:p@ss@h/d", "h", 3306, "p@ss"),
        ("mysql://u@[::1]:33/d", "::1", 33, None),
        ("MySQL://u@my_db/d", "my_db", 3306, None),
        ("mysql://u@/d?unix_socket=/run/s.sock", "", 3306, None),
    ],
)
def test_forms_of_a_mysql_url(url: str, host: str, port: int, password: str | None) -> None:
    parsed = parse_database(url)
    assert (parsed["host"], parsed["port"], parsed["password"]) == (host, port, password)


@pytest.mark.parametrize(
    ("url", "path"),
    [("sqlite:///a.db", "a.db"), ("sqlite:////var/a.db", "/var/a.db"), ("sqlite:///a%20b%3F.db", "a b?.db")],
)
def test_forms_of_a_sqlite_url(url: str, path: str) -> None:
    assert parse_database(url) == {"scheme": "sqlite", "path": path}


@pytest.mark.parametrize(
    ("url", "problem"),
    [
        ("postgres://u@h/d", "unknown scheme"),
        ("outbox.db", "unknown scheme"),
        ("sqlite:a.db", "write sqlite:///relative.db or"),
        ("sqlite:///", "names no file"),
        ("sqlite:///:memory:", "a database in memory is lost"),
        ("sqlite:///a.db?mode=ro", "takes no options"),
        ("mysql://h/d", "names no user"),
        ("mysql://u@/d", "names no host"),
        ("mysql://u@h", "names no database"),
        ("mysql://u@h/a/b", "names no database"),
        ("mysql://u@h:0/d", "has port 0"),
        ("mysql://u@h:99999/d", "has a host or port that cannot be read"),
        ("mysql://u@h h/d", "has a host that cannot be read"),
        ("mysql://u@[::1/d", "has a host or port that cannot be read"),
        ("mysql://u@h/d?ssl=1", "has an unknown option after the ?"),
        ("mysql://u@h/d?ssl_mod=1", "has an unknown option after the ?, did you mean ssl_mode?"),
        ("mysql://u@h/d?ssl_ca=", "gives ssl_ca no value"),
        ("mysql://u@h/d?ssl_ca=a&ssl_ca=b", "gives ssl_ca twice"),
        ("mysql://u@h/d?ssl_mode=require", "has an unknown ssl_mode, did you mean REQUIRED?"),
        ("mysql://u@h/d?ssl_mode=VERIFY_IDENTITY", "asks to verify the server but names no authority"),
        ("mysql://u@h/d?ssl_cert=a", "needs both ssl_cert and ssl_key"),
        ("mysql://u@h/%ff", "is percent-encoded, but not as UTF-8"),
        ("mysql://u@h/a%00", "holds an encoded control character"),
        (f"mysql://u:{SECRET}/x@h/d", "has a host or port that cannot be read, percent-encode"),
        (f"mysql://u:{SECRET}#x@h/d", "has a host or port that cannot be read, percent-encode"),
        (f"mysql://u:{SECRET}?x@h/d", "has a host or port that cannot be read, percent-encode"),
        (f"mysql://u:[{SECRET}@h/d", "has a host or port that cannot be read, percent-encode"),
        (f"mysql://u:{SECRET}@h/d#x", "has a fragment (#), percent-encode"),
        (f"{SECRET}://u@h/d", "unknown scheme"),
        (f"mysql://u@h/d?{SECRET}=1", "has an unknown option after the ?"),
    ],
)
def test_a_database_url_that_cannot_be_used_is_refused_without_showing_it(url: str, problem: str) -> None:
    """G11: a URL with a password is the secret that is mistyped most often."""
    (line,) = problems(REST + f"database: {{url: '{url}'}}")
    assert line.startswith(f"database.url: {problem}")


@pytest.mark.parametrize(
    ("url", "problem"),
    [
        ("ftp://h/", "unknown scheme"),
        ("//h/", "unknown scheme"),
        ("http:///x", "names no host"),
        ("http://h:x/", "has a host or port that cannot be read"),
        ("http://h/#x", "has a fragment"),
        ("http://h/a b", "holds spaces or characters beyond ASCII"),
        ("http://hö/", "holds spaces or characters beyond ASCII"),
        ("http://[::1/", "has a host or port that cannot be read"),
        ("http://a\\b/", "has a host that cannot be read"),
    ],
)
def test_an_http_url_that_cannot_be_used_is_refused(url: str, problem: str) -> None:
    with pytest.raises(Bad, match=problem.replace("(", r"\(")):
        check_http(url)


def test_secrets_of_a_url_are_its_credentials_and_longer_query_values() -> None:
    assert set(secrets_of("https://u:p%40ss@h/x?v=1&token=abcdefgh%21")) == {
        "p%40ss", "p@ss", "u:p@ss", "abcdefgh%21", "abcdefgh!",
    }  # fmt: skip
    assert secrets_of("https://sk_live@h/") == ["sk_live", "sk_live"]
    assert secrets_of("mysql://app@h/d") == []


def test_files_of_secrets_are_read_without_the_newline_at_the_end(tmp_path: Path) -> None:
    settings = "url: 'https://h/', authorization_file: @/auth, secret_file: @/key"
    config, publisher = http(tmp_path, settings, auth="Bearer abcdef\n", key=f"whsec_{KEY}\r\n")
    assert publisher.authorization == "Bearer abcdef"
    assert publisher.secret == b"k" * 24
    assert {"Bearer abcdef", "abcdef", f"whsec_{KEY}", KEY} <= set(config.secrets)
    assert redact.redact(f"refused abcdef and {KEY}") == "refused *** and ***"


def test_a_webhook_key_may_be_base64_alone(tmp_path: Path) -> None:
    assert http(tmp_path, "url: 'https://h/', secret_file: @/key", key=KEY)[1].secret == b"k" * 24


@pytest.mark.parametrize(
    ("key", "content", "problem"),
    [
        ("secret_file", SECRET, "the file holds no Standard Webhooks secret, which is whsec_ and base64"),
        ("secret_file", "whsec_" + base64.b64encode(b"k" * 23).decode(),
         "the file holds a Standard Webhooks secret of a wrong length, make one of 24 to 64 bytes"),
        ("secret_file", "", "file 'file': is empty, write the secret into it"),
        ("secret_file", "\n", "file 'file': is empty, write the secret into it"),
        ("authorization_file", f"a\n{SECRET}\n",
         "file 'file': holds more than one line of text, write the secret alone into it"),
        ("authorization_file", f"Bearer {SECRET}é",
         "the file holds more than one line of visible ASCII, write the value of the header alone into it"),
    ],
)  # fmt: skip
def test_a_file_with_no_usable_secret_is_refused_without_showing_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, key: str, content: str, problem: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("file").write_text(content)
    found = problems(
        f"publishers: {{hook: {{type: http, url: 'http://h/', {key}: file}}}}\nlanes: {{x: {{direct: [hook]}}}}"
    )
    assert found == (f"publishers.hook.{key}: {problem}",)


def test_a_secret_in_two_places_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Which of the two counts would be a guess."""
    monkeypatch.chdir(tmp_path)
    Path("file").write_text(SECRET)
    mysql = "database: {url: 'mysql://u:%s@h/d', password_file: file}"
    assert problems(REST + mysql % SECRET) == (
        "database.password_file: the url has a password already, keep one of the two",
    )
    assert problems(REST + "database: {password_file: file}") == (
        "database.password_file: a SQLite file has no password, remove it or give a mysql:// url",
    )
    hook = "publishers: {hook: {type: http, %s}}\nlanes: {x: {direct: [hook]}}"
    settings = f"url: 'http://u:{SECRET}@h/', headers: {{Authorization: {SECRET}}}, authorization_file: file"
    assert problems(hook % settings) == (
        "publishers.hook: sets Authorization in headers and in the url and in authorization_file, keep one",
    )
    assert problems(hook % "url: 'http://h/', authorization_file: file, forward_headers: [Authorization]") == (
        "publishers.hook.forward_headers[0]: this publisher sets that header itself, remove one",
    )


def test_a_password_file_gives_the_password(tmp_path: Path) -> None:
    (tmp_path / "password").write_text("pässword ")
    config = parse(REST + f"database: {{url: 'mysql://u@h/d', password_file: {tmp_path}/password}}", {}, "x")
    assert config.database.password == "pässword "
    assert config.secrets == ("pässword ",)


def test_no_secret_shows_in_the_repr_of_a_configuration(tmp_path: Path) -> None:
    """G11: whoever logs a configuration while looking for a fault must not log its secrets."""
    (tmp_path / "auth").write_text(f"Bearer {SECRET}-auth")
    (tmp_path / "key").write_text(f"whsec_{KEY}")
    text = f"""
database: {{url: "mysql://u:{SECRET}-db@h/d"}}
lanes: {{x: {{direct: [hook]}}}}
publishers:
  hook: {{type: http, url: "https://h/?token={SECRET}-query", headers: {{X-Api-Key: {SECRET}-header}},
         authorization_file: {tmp_path}/auth, secret_file: {tmp_path}/key}}
"""
    config = parse(text, {}, "outbox.yaml")
    assert SECRET not in repr(config)
    assert repr(b"k" * 24) not in repr(config)
    for part in ("auth", "db", "query", "header"):
        assert f"{SECRET}-{part}" in config.secrets
    assert config.database.shown == "mysql://u@h:3306/d"
    assert config.database.password == f"{SECRET}-db"


def test_what_came_out_of_the_environment_is_not_shown() -> None:
    """G11: a variable that holds a secret may be put at the wrong key."""
    text = REST + "log: {level: '${S}'}\nsupervisor: {stable_after: '${S}'}\nnode_id: ${S} x"
    with pytest.raises(ConfigError) as caught:
        parse(text, {"S": SECRET}, "outbox.yaml")
    assert SECRET not in str(caught.value)
    assert caught.value.problems[1].startswith("supervisor.stable_after: the value from the environment is no duration")


def test_ordinary_short_header_values_are_no_secrets(tmp_path: Path) -> None:
    """Else `prod` would be masked wherever it stands in a log."""
    config, _ = http(tmp_path, "url: 'https://h/?v=1', headers: {X-Stage: prod, X-Long: abcdefghijklmnop}")
    assert config.secrets == ("abcdefghijklmnop",)
