"""The structure of a page, read by the parser of the standard library."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from html.parser import HTMLParser

VOID = {"meta", "link", "input", "br", "hr", "img", "path", "rect", "line"}
OPTIONAL_END = {"li"}


@dataclass
class Structure(HTMLParser):
    """The tags, attributes and texts of a page, and whether tags are nested well."""

    tags: list[tuple[str, dict[str, str | None]]] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    open_tags: list[str] = field(default_factory=list)

    @classmethod
    def of(cls, text: str) -> Structure:
        structure = cls()
        HTMLParser.__init__(structure, convert_charrefs=True)
        structure.feed(text)
        structure.close()
        return structure

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag in OPTIONAL_END and self.open_tags[-1:] == [tag]:
            self.open_tags.pop()
        if tag not in VOID:
            self.open_tags.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        while (
            self.open_tags[-1:] and self.open_tags[-1] != tag and self.open_tags[-1] in OPTIONAL_END
        ):
            self.open_tags.pop()
        if self.open_tags[-1:] != [tag]:
            self.errors.append(f"</{tag}> closes {self.open_tags[-1:]}")
        else:
            self.open_tags.pop()

    def handle_data(self, data: str) -> None:
        if self.open_tags[-1:] not in (["style"], ["script"]):
            self.texts.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.texts).split())

    def having(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.tags if name == tag]

    @property
    def is_complete(self) -> bool:
        """Whether all tags are closed, and nothing runs, loads or leads out of the page."""
        handlers = [
            name
            for _, attributes in self.tags
            for name in attributes
            if name.startswith("on") or name == "style"
        ]
        loads = [attributes for _, attributes in self.tags if attributes.get("src")]
        links = [
            attributes.get("href") or "" for _, attributes in self.tags if "href" in attributes
        ]
        outside = [
            link
            for link in links
            if not re.fullmatch(r"#content|data:,|(owner|other)-[a-z0-9.-]+\.html", link)
        ]
        alone = len(self.having("script")) == 1 and len(self.having("style")) == 1
        return not (self.errors or self.open_tags or handlers or loads or outside) and alone
