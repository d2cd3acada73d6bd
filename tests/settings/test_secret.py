"""A secret is named by its place, read when it is used, and never shown."""

from __future__ import annotations

from pathlib import Path

import pytest

from elasticd.secret import Secret, SecretUnavailable, parse_secret
from tests.settings.conftest import GOOD, Load


def test_a_secret_is_read_from_each_place(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("hunter2\n")
    environ = {"TOKEN": "hunter3", "CREDENTIALS_DIRECTORY": str(tmp_path)}
    for reference, text in (
        ({"file": str(tmp_path / "token")}, "hunter2"),
        ({"env": "TOKEN"}, "hunter3"),
        ({"credential": "token"}, "hunter2"),
    ):
        found = parse_secret(reference).read(environ)
        assert found.get_secret_value() == text
        assert text not in f"{found!r} {found}"


def test_it_is_read_anew_each_time(tmp_path: Path) -> None:
    secret = Secret("file", str(tmp_path / "token"))
    for text in ("old", "new"):
        (tmp_path / "token").write_text(text)
        assert secret.read().get_secret_value() == text


@pytest.mark.parametrize(
    ("reference", "told"),
    [
        ({"file": "/no/such/token"}, "/no/such/token cannot be read: No such file"),
        ({"env": "TOKEN"}, "the environment has no TOKEN; set it"),
        ({"env": "EMPTY"}, "it is empty"),
        ({"env": "LINES"}, "more than one line"),
        ({"credential": "token"}, "LoadCredential=token:PATH"),
    ],
)
def test_what_cannot_be_read_is_told_with_its_place(reference: dict[str, str], told: str) -> None:
    environ = {"EMPTY": " \n", "LINES": "hunter2\nhunter3"}
    with pytest.raises(SecretUnavailable) as caught:
        parse_secret(reference).read(environ)
    assert told in str(caught.value)
    assert "hunter" not in str(caught.value)


def test_a_file_of_bytes_is_no_secret(tmp_path: Path) -> None:
    (tmp_path / "token").write_bytes(b"\xff\xfe")
    with pytest.raises(SecretUnavailable, match="is not text"):
        Secret("file", str(tmp_path / "token")).read()


@pytest.mark.parametrize(
    "value",
    ["hunter2", 5, None, {}, {"file": "a", "env": "b"}, {"value": "x"}, {"file": ""}, {"env": 3}],
)
def test_anything_but_one_reference_is_refused(value: object) -> None:
    with pytest.raises(ValueError, match=r"allowed: \{file: PATH\}") as caught:
        parse_secret(value)
    assert "hunter2" not in str(caught.value)


def test_a_credential_is_a_name_and_leads_nowhere_else() -> None:
    with pytest.raises(ValueError, match="a name, not a path"):
        parse_secret({"credential": "../token"})


def test_a_secrets_file_counts_from_the_configuration(load_text: Load, tmp_path: Path) -> None:
    config = load_text(GOOD + "weights: {token: {file: token}}\n")
    (tmp_path / "token").write_text("hunter2")
    token = config.settings.weights.token
    assert token is not None
    assert token.read().get_secret_value() == "hunter2"
    assert "hunter2" not in repr(config)
