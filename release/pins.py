"""The digests that a release needs: the commits of GitHub's actions and the digest of the base
image.

Actions are named by commit, with the tag as a comment, and the base image by tag.
`make release-pins` looks both up again at a release and writes them; `make release-check` refuses a
release without them. A digest is never typed by hand.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import yaml

from release.settings import run
from release.tools import tool

USES = re.compile(
    r"uses: (?P<action>[\w.-]+/[\w.-]+)(?P<path>[\w./-]*)@(?P<ref>\S+)(?: +# (?P<tag>\S+))?"
)
BASE = re.compile(r"^ARG PYTHON=(?P<image>[^@\s]+)(?P<digest>@sha256:[0-9a-f]{64})?$", re.MULTILINE)
PINNED = re.compile(r"[\w.-]+/[\w./-]+@[0-9a-f]{40}")
Lookup = Callable[[str, str], str]


def files(root: Path) -> list[Path]:
    """Return the files that name actions."""
    return [*sorted((root / ".github" / "workflows").glob("*.y*ml")), root / "action.yml"]


def actions(node: Any) -> Iterator[str]:
    """Yield each action that a workflow or an action uses, however the YAML is written."""
    children = node.values() if isinstance(node, dict) else node if isinstance(node, list) else ()
    if isinstance(node, dict) and isinstance(used := node.get("uses"), str):
        yield used
    for child in children:
        yield from actions(child)


def missing(root: Path) -> Iterator[str]:
    """Yield a line for each digest that is missing."""
    for file in files(root):
        for used in actions(yaml.safe_load(file.read_text())):
            if not PINNED.fullmatch(used):
                yield f"{file.relative_to(root)}: {used} has no commit, so its code can change"
    base = BASE.search((root / "Dockerfile").read_text())
    if base is None or not base["digest"]:
        yield "Dockerfile: the base image has no digest"


def write(root: Path, commit_of: Lookup, digest_of: Callable[[str], str]) -> None:
    """Look up every digest, and write it with its tag."""

    def pinned(found: re.Match[str]) -> str:
        tag = found["tag"] or found["ref"]
        return f"uses: {found['action']}{found['path']}@{commit_of(found['action'], tag)} # {tag}"

    for file in files(root):
        file.write_text(USES.sub(pinned, file.read_text()))
    dockerfile = root / "Dockerfile"
    text = dockerfile.read_text()
    dockerfile.write_text(BASE.sub(lambda found: _with_digest(found["image"], digest_of), text))


def _with_digest(image: str, digest_of: Callable[[str], str]) -> str:
    return f"ARG PYTHON={image}@{digest_of(image)}"


def commit_of(action: str, tag: str) -> str:
    """Ask GitHub for the commit of a tag. Raises ValueError if there is none."""
    return commit_of_tag(f"https://github.com/{action}", tag)


def commit_of_tag(url: str, tag: str) -> str:
    """Ask a git server for the commit of a tag;
    for an annotated tag that is the line with ``^{}``.
    """
    lines = run("git", "ls-remote", url, f"refs/tags/{tag}", f"refs/tags/{tag}^{{}}").splitlines()
    if not lines:
        raise ValueError(f"{url} has no tag {tag}")
    return max(lines, key=lambda line: line.endswith("^{}")).split()[0]


def digest_of(image: str) -> str:
    """Ask a registry for the digest of an image;
    for several platforms that is the digest of the index.
    """
    return run(tool("crane"), "digest", image)
