"""The program ``kubectl_complete-virt_admit``: kubectl runs it to complete ``kubectl virt-admit``.

kubectl passes the words after the plugin's name, the last one incomplete, and reads one completion
on each line and then ``:`` with the sum of cobra's directives (k8s.io/kubectl
pkg/cmd/plugin/plugin_completion.go).
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence

from click.shell_completion import CompletionItem, ShellComplete

from virt_admit.cli.main import virt_admit

NO_FILES, FOLDERS, FILES = 4, 16, 0
"""Directives of cobra: ShellCompDirectiveNoFileComp, FilterDirs and Default."""


def answer(words: Sequence[str]) -> Iterator[str]:
    """Yield the lines that complete the last word."""
    before, incomplete = list(words[:-1]), words[-1] if words else ""
    items = ShellComplete(virt_admit, {}, "virt-admit", "").get_completions(before, incomplete)
    for item in items:
        if item.type == "plain":
            yield f"{item.value}\t{item.help.splitlines()[0]}" if item.help else str(item.value)
    yield f":{_directive(items)}"


def _directive(items: Sequence[CompletionItem]) -> int:
    types = {item.type for item in items}
    return FILES if "file" in types else FOLDERS if "dir" in types else NO_FILES


def main() -> None:
    """Complete the words of the command line."""
    print("\n".join(answer(sys.argv[1:])))
