"""The command ``virt-admit``.

The module of a verb is imported only when the verb runs, so that ``check`` starts fast.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import os
import sys
from typing import Final

import click

from virt_admit import __version__
from virt_admit.model.sanitize import cell, line, lines

VERBS: Final = {
    "check": "Judge manifest files as the webhook would.",
    "scan": "Judge a live cluster or a snapshot of one.",
    "drain": "Show what draining a node would do to its virtual machines.",
    "outage": "Show whether the cluster survives the loss of nodes.",
    "upgrade": "Rehearse an upgrade: order, waves, hours, and what stops it.",
    "plan": "Plan the changes after which nodes can be drained.",
    "explain": "Show one VM, one node or one health check: what would happen, and why.",
    "rules": "List the rules, or show one rule with its reasons.",
    "serve": "Run the webhook.",
    "watch": "Run the scan all the time: metrics and a page that follow the cluster.",
    "certs": "Show or rotate the webhook's certificates.",
    "policy": "Compare policies.",
    "manifests": "Print the webhook configurations and RBAC as YAML.",
    "doctor": "Check the installation of the webhook in a cluster.",
}

DEBUG: Final = "VIRT_ADMIT_DEBUG"
"""The environment variable that prints the traceback of an internal error."""

SERVERS: Final = frozenset(("serve", "watch"))
"""The verbs that run until they are stopped."""

COLLECT_EVERY: Final = 50_000
"""Objects between two searches for garbage, instead of 700.
A start makes 40,000 objects that stay.
"""


class _Verbs(click.Group):
    def list_commands(self, _context: click.Context) -> list[str]:
        return list(VERBS)

    def get_command(self, _context: click.Context, name: str) -> click.Command | None:
        if name not in VERBS:
            return None
        command: click.Command = importlib.import_module(f"virt_admit.cli.commands.{name}").command
        return command

    def resolve_command(
        self, context: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the command for the first argument, or suggest the verbs with similar names."""
        name = args[0]
        # a completion
        if name not in VERBS and not name.startswith("-") and not context.resilient_parsing:
            import difflib  # noqa: PLC0415 - only misspelled verbs need it

            similar = difflib.get_close_matches(name, VERBS)
            hint = (
                f"did you mean {' or '.join(similar)}?"
                if similar
                else f"use one of {', '.join(VERBS)}"
            )
            context.fail(f"no such verb {name!r}: {hint}")
        return super().resolve_command(context, args)

    def format_commands(self, _context: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Verbs"):
            formatter.write_dl(list(VERBS.items()))


def _complete(context: click.Context, _option: click.Parameter, shell: str | None) -> None:
    """Print the shell script that completes verbs, flags and files."""
    if shell is None or context.resilient_parsing:
        return
    # only --completion needs it
    from click.shell_completion import get_completion_class  # noqa: PLC0415

    completion = get_completion_class(shell)
    if completion is not None:
        click.echo(completion(context.command, {}, "virt-admit", "_VIRT_ADMIT_COMPLETE").source())
    context.exit()


@click.group(
    cls=_Verbs,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120},
    help=(
        "Keep nodes drainable, upgrades unblocked and remediation free of loops on KubeVirt "
        "clusters."
    ),
)
@click.version_option(__version__, prog_name="virt-admit", message="%(prog)s %(version)s")
@click.option(
    "--completion",
    type=click.Choice(["bash", "zsh", "fish"]),
    is_eager=True,
    expose_value=False,
    callback=_complete,
    help='Print a shell completion script: eval "$(virt-admit --completion bash)".',
)
def virt_admit() -> None:
    pass


def _see(error: click.ClickException) -> str:
    """Return where the usage of a verb is explained, in one line;
    empty for errors that are not about usage.
    """
    if not isinstance(error, click.UsageError) or error.ctx is None:
        return ""
    return (
        f"{'' if error.format_message()[-1:] in '.?)' else '.'} See: {error.ctx.command_path} "
        "--help"
    )


def _discard_output() -> None:
    """Redirect stdout to nowhere.

    Python flushes its buffer at exit and would print a second error.
    """
    with contextlib.suppress(OSError, ValueError):  # ValueError: stdout is not a file
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _print_bug(error: Exception) -> None:
    """Print one line on stderr about an exception that no verb expects, and the traceback if
    ``VIRT_ADMIT_DEBUG`` is set.
    """
    import traceback  # noqa: PLC0415 - only a bug needs it

    if os.environ.get(DEBUG):
        traceback.print_exception(error)
    what = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    report = (
        f"run it again with {DEBUG}=1 and report the traceback with the command and virt-admit "
        f"{__version__}"
    )
    click.echo(
        f"Error: internal error: {cell(what)}. This is a bug in virt-admit: {report}", err=True
    )


def main() -> None:
    """Run the command.

    Exit 0 clean, 1 findings, 2 the answer cannot be trusted, 130 interrupted.
    """
    if SERVERS.isdisjoint(sys.argv):
        gc.set_threshold(COLLECT_EVERY)
    try:
        code = virt_admit(standalone_mode=False)
        sys.stdout.flush()
    except click.exceptions.NoArgsIsHelpError as error:
        # `virt-admit` alone prints the help
        no_verb = error.ctx is not None and error.ctx.parent is None
        click.echo(error.format_message(), err=not no_verb)
        code = 0 if no_verb else 2
    except click.ClickException as error:
        from virt_admit.cli.output import Problems  # noqa: PLC0415 - the verb has imported it

        # it may quote names of a snapshot
        printable = lines if isinstance(error, Problems) else line
        click.echo(printable(f"Error: {error.format_message()}{_see(error)}"), err=True)
        code = 2
    except (click.Abort, KeyboardInterrupt):
        click.echo("interrupted", err=True)
        code = 130
    except BrokenPipeError:  # `virt-admit rules | head`
        sys.stderr.close()
        code = 0
    except OSError as error:  # `virt-admit rules > /dev/full`
        click.echo(f"Error: cannot write the output: {error.strerror or error}", err=True)
        code = 2
        _discard_output()
    except Exception as error:  # a bug. Python would exit with 1, which says "findings"
        _print_bug(error)
        code = 2
    gc.freeze()  # the process ends: a last search for garbage would take a tenth of a short run
    sys.exit(code)
