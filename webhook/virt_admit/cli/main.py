"""``virt-admit``: the command line. A verb's module is imported when the verb is asked for, so that ``check`` is fast."""

from __future__ import annotations

import importlib
import sys
from typing import Final

import click
from click.shell_completion import get_completion_class

from virt_admit import __version__

VERBS: Final = {
    "check": "Judge manifest files as the webhook would.",
    "scan": "Judge a live cluster or a snapshot of one.",
    "drain": "Say what draining a node would do to its virtual machines.",
    "explain": "Say what a health check would do, and when.",
    "rules": "List the rules, or show one with its reasons.",
    "serve": "Run the webhook.",
    "certs": "Show or rotate the webhook's certificates.",
    "policy": "Compare policies.",
    "manifests": "Print what the cluster needs, as YAML.",
    "doctor": "Is the registration sound?",
}


class _Verbs(click.Group):
    def list_commands(self, _context: click.Context) -> list[str]:
        return list(VERBS)

    def get_command(self, _context: click.Context, name: str) -> click.Command | None:
        if name not in VERBS:
            return None
        command: click.Command = importlib.import_module(f"virt_admit.cli.{name}").command
        return command

    def format_commands(self, _context: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Verbs"):
            formatter.write_dl(list(VERBS.items()))


def _complete(context: click.Context, _option: click.Parameter, shell: str | None) -> None:
    """Print what a shell has to run so that it completes verbs, flags and files."""
    if shell is None or context.resilient_parsing:
        return
    completion = get_completion_class(shell)
    if completion is not None:
        click.echo(completion(context.command, {}, "virt-admit", "_VIRT_ADMIT_COMPLETE").source())
    context.exit()


@click.group(
    cls=_Verbs,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120},
    help="Nodes can always be drained, upgrades are never blocked, remediation never loops.",
)
@click.version_option(__version__, prog_name="virt-admit", message="%(prog)s %(version)s")
@click.option(
    "--completion",
    type=click.Choice(["bash", "zsh", "fish"]),
    is_eager=True,
    expose_value=False,
    callback=_complete,
    help='Print a script that completes on the command line: eval "$(virt-admit --completion bash)".',
)
def virt_admit() -> None:
    pass


def main() -> None:
    """The entry point. Exit 0 clean, 1 findings, 2 the answer cannot be trusted, 130 interrupted."""
    try:
        code = virt_admit(standalone_mode=False)
    except click.exceptions.NoArgsIsHelpError as error:
        asked = error.ctx is not None and error.ctx.parent is None  # `virt-admit` alone asks what there is
        click.echo(error.format_message(), err=not asked)
        code = 0 if asked else 2
    except click.ClickException as error:
        error.show()
        code = 2
    except (click.Abort, KeyboardInterrupt):
        click.echo("interrupted", err=True)
        code = 130
    except BrokenPipeError:  # `virt-admit rules | head`
        sys.stderr.close()
        code = 0
    sys.exit(code)
