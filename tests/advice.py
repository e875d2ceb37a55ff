"""Advice that risks data: to delete or lower a budget, to force-delete a pod,
to touch a migration in post-copy.
"""

from __future__ import annotations

import re

_BUDGET = r"(?:disruption ?)?budgets?|PDBs?"
_NEVER = r"(?<!\bnot )(?<!\bnever )(?<!\bcannot )(?<!\bnor )"
_WEAKEN = (
    rf"{_NEVER}\b(?:delet|remov|loosen|lower|relax|weaken|disabl|drop|suspend)(?:e|ing)?\b(?!-)"
)
_TOUCH = rf"{_NEVER}\b(?:delet|cancel|abort|stop|restart|reboot)(?:e|ing)?\b"
_MIGRATION = r"migrations?|launcher|pods?|nodes?|it"
RISKS = {
    "weaken a budget": rf"{_WEAKEN}[^.:;!?|]{{0,40}}\b(?:Pod)?(?:{_BUDGET})\b",
    "weaken the budget that was named": (
        rf"(?:{_BUDGET})\b[^.!?|]{{0,120}}{_WEAKEN} "
        r"(?:it|them|the others?|one of)\b"
    ),
    "force-delete a pod": (
        r"\bforce[- ]delet\w+|\b(?:kubectl|pods?)\b[^;]{0,200}--grace-period[= ]0"
    ),
    "touch a migration in post-copy": (
        rf"{_TOUCH}[^.!?]{{0,40}}\b(?:{_MIGRATION})\b[^.!?]{{0,40}}\bpost-?copy\b"
        rf"|\bpost-?copy\b[^.!?]{{0,60}}{_TOUCH} (?:the |its |that )?(?:{_MIGRATION})\b"
    ),
}
WORDS = {
    "weaken a budget": ("budget", "pdb"),
    "weaken the budget that was named": ("budget", "pdb"),
    "force-delete a pod": ("force", "grace-period"),
    "touch a migration in post-copy": ("post-copy", "postcopy"),
}
"""Each text with a risk has one of these words. To look for them first takes a tenth of the time: a
pattern is tried at each character of each file.
"""


def risky(text: str) -> list[tuple[str, str]]:
    """Return the risks in a text, each with its words.

    Line breaks and adjacent Python literals do not hide them.
    """
    joined = re.sub(r"""(["'])\s*\n\s*f?\1""", "", text)
    flat = re.sub(r"\s+(?:# )?", " ", joined)
    lowered = flat.lower()
    return [
        (name, flat[max(found.start() - 30, 0) : found.end() + 30])
        for name, pattern in RISKS.items()
        if any(word in lowered for word in WORDS[name])
        for found in re.finditer(pattern, flat, re.IGNORECASE)
    ]
