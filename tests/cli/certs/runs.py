"""Runs of `virt-admit certs`."""

from __future__ import annotations

from pathlib import Path

from click.testing import CliRunner

from virt_admit.cli import main

NAME = "virt-admit-webhook.virt-admit.svc"


def run(*args: object, stdin: str = "") -> tuple[int, str, str]:
    """Exit code, stdout, and what stderr would say."""
    result = CliRunner().invoke(
        main.virt_admit, ["certs", *map(str, args)], input=stdin, standalone_mode=False
    )
    if isinstance(result.exception, main.click.ClickException):
        return 2, result.stdout, result.exception.format_message()
    assert result.exception is None, result.exception
    return result.return_value, result.stdout, result.stderr


def serving_cert(folder: Path) -> bytes:
    return (folder / "tls.crt").read_bytes()
