"""Phrases that many messages share."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from virt_admit.model.kubernetes.units import show

LONGEST_WARNING: Final = 256
"""Characters. The API server may truncate longer warnings."""

LONGEST_MESSAGE: Final = 480
"""Characters of a finding that is never a warning of the API server: six lines of a terminal."""

MOST_NAMES: Final = 5
"""The largest number of names in one message; the total is always given."""


def names(items: Iterable[str], width: int = 120, noun: str = "") -> str:
    """Join names: ``a, b and 7 more``, with at most five names and about ``width`` characters,
    but at least one name. ``noun``: of what there are more.

    The width is limited because the API server may truncate warnings longer than 256 characters.
    """
    every = list(items)
    shown = every[:MOST_NAMES]
    while len(shown) > 1 and len(_list(shown, len(every))) > width:
        shown.pop()
    return _list(shown, len(every), noun)


def _list(shown: list[str], total: int, noun: str = "") -> str:
    more = total - len(shown)
    what = count(more, f"more {noun}") if noun else f"{more} more"
    return ", ".join(shown) + (f" and {what}" if more else "")


def count(number: int, noun: str) -> str:
    """Return ``1 machine``, ``3 machines``."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def ordinal(number: int) -> str:
    """Return ``1st``, ``2nd``, ``3rd``, ``4th``."""
    teen = number // 10 % 10 == 1
    return f"{number}{'th' if teen else {1: 'st', 2: 'nd', 3: 'rd'}.get(number % 10, 'th')}"


def mentions(text: str, name: str) -> bool:
    """Return whether a text has a name as a whole, which may end its sentence."""
    return re.search(rf"(?<![\w.-]){re.escape(name)}(?!\.?[\w-])", text) is not None


def unescaped(text: str) -> str:
    """Return what a program has written as a quoted string (``%q`` of Go), on one line."""
    return " ".join(_ESCAPED.sub(lambda found: _ESCAPES.get(found[1], found[1]), text).split())


_ESCAPED: Final = re.compile(r"\\([ntr\"\\])")
_ESCAPES: Final = {"n": " ", "t": " ", "r": " "}


def cut(text: str, length: int) -> str:
    """Truncate a text to ``length`` characters after a whole word, ending with an ellipsis if
    anything was removed.
    """
    if len(text) <= length:
        return text
    kept = text[: max(length - 1, 0)]
    is_whole = text[len(kept) : len(kept) + 1] in _BORDERS
    whole = kept if is_whole else _without_part(kept, _BORDERS)
    return _OPENED.sub("", whole).rstrip(" ,;:(…") + "…"


_OPENED: Final = re.compile(r" \([^()]{0,12}\Z")
"""The begin of a parenthesis, which says nothing yet."""


def shorten(text: str, length: int) -> str:
    """Return the first statements of a text that fit into ``length`` characters,
    else its begin and its end.

    A text that ends with a whole statement needs no ellipsis: nothing of it is incomplete.
    """
    if len(text) <= length:
        return text
    last = max(_ends(_ENDS, text[: length + 2]), default=0)
    if 2 * last < length:  # what a colon announces is missing then, but what precedes it is true
        last = max(last, *_ends(_COLON, text[: length + 2]), 0)
    return text[:last] if 3 * last >= length else cut(text, length)


_ENDS: Final = re.compile(
    r"[.;] |, (?=(?:because|and|but) |(?:requested|used|limited): )| \("  # figures of a quota
)
"""What begins another statement, or an explanation."""
_COLON: Final = re.compile(": ")


def _ends(mark: re.Pattern[str], text: str) -> list[int]:
    """Return where statements of a text end, outside of parentheses."""
    starts = [found.start() for found in mark.finditer(text)]
    return [start for start in starts if text.count("(", 0, start) <= text.count(")", 0, start)]


def scheduler_words(text: str, length: int) -> str:
    """Shorten why kube-scheduler finds no node, by whole reasons: the taint at the end may be the
    one that counts. Other words get shortened as an error.

    What it says about preemption repeats the reasons, and that no resource claims are freed is
    none. That pods avoid control-plane nodes is the least of them. Source:
    kubernetes/kubernetes:pkg/scheduler/framework/types.go#FitError,
    pkg/scheduler/framework/plugins/dynamicresources/dynamicresources.go#PostFilter.
    """
    text = " ".join(text.split())
    found = without_preemption(text)
    if _REFUSALS not in found:
        return cut_middle(text, length)
    if len(found) <= length:
        return found
    begin, _, reasons = found.replace(" node(s)", "").partition(_REFUSALS)
    begin, left = f"{begin}{_REFUSALS}", _REASON.split(reasons)
    left.sort(key=lambda each: _CONTROL_PLANE in each)
    for number in range(min(len(left), length // len("1 x, ")), 0, -1):  # no more of them fit
        more = f" and {count(len(left) - number, 'more reason')}" if number < len(left) else ""
        short = f"{begin}{', '.join(left[:number])}{more}"
        if len(short) <= length:
            return short
    return cut(f"{begin}{left[0]}", length)


def without_preemption(text: str) -> str:
    """Return the words of kube-scheduler without what repeats the reasons; others as they are."""
    if _REFUSALS not in text:
        return text
    return text.partition(" preemption: ")[0].rstrip(" .,").removesuffix(_NO_CLAIMS).rstrip(" .,")


_REFUSALS: Final = "nodes are available: "
_NO_CLAIMS: Final = "no new claims to deallocate"
_REASON: Final = re.compile(r", (?=\d+ )")
_CONTROL_PLANE: Final = "node-role.kubernetes.io/"


def cut_bytes(text: str, size: int) -> str:
    """Truncate a text to ``size`` bytes of UTF-8, as ``cut`` does."""
    if len(text.encode()) <= size:
        return text
    return text.encode()[: max(size - len("…".encode()), 0)].decode(errors="ignore").rstrip() + "…"


def cut_middle(text: str, length: int, *, parts: int = 3) -> str:
    """Shorten the error of a program: the begin says what failed, and the end says why.

    Long paths and the frame of a gRPC error go first. What remains is cut between clauses where it
    has any, so that no part of a clause is read as the whole: "is still attached to node a" never
    becomes "node a… does not exist".

    ``parts``: the begin gets one of so many equal parts.
    """
    if len(text) <= length:
        return text
    text = _GRANTS.sub(r"\1 ", text)
    if (refused := _FORBIDDEN.search(text)) and length - len(refused[0]) >= _SHORTEST_REASON:
        condition = _CONDITION.match(text)
        whole = f"{condition[0] if condition else ''}{refused[0]}"
        whole = whole if length - len(whole) >= _SHORTEST_REASON else refused[0]
        return f"{whole}{cut_middle(text[refused.end() :], length - len(whole))}"
    text = _REST.sub(r"\1", _DUMP.sub(": ", _MOUNTING.sub("", text)))
    text = _WEBHOOK.sub(r"calling webhook \1 at \2: ", text)
    calls = list(_CALL.finditer(text))
    text = _PATH.sub(r"\1/…/\2", text)
    if calls:  # what was called, then what the last one answers
        begin = _PATH.sub(r"\1/…/\2", text[: calls[0].start()]).rstrip(" :")
        end, code = text.rindex(calls[-1][0]) + len(calls[-1][0]), f"{calls[-1][1]}: "
        answer = cut_middle(text[end:], max(length - len(code), 0))
        left = length - len(code) - len(text[end:]) - 2
        if not begin or left < min(len(begin), _SHORTEST_BEGIN):
            return f"{code}{answer}"
        short = (
            f"{_whole_clause(_without_part(begin[:left]))}…" if len(begin) > left else f"{begin}:"
        )
        return f"{short} {code}{answer}"
    if len(text) <= length:
        return text
    head, tail = _ends_of(text, length, parts)
    lost = next((each for each in _URL.findall(text) if each not in head and each not in tail), "")
    if lost and 2 * len(lost) <= length:  # which server it was about
        shorter_head, shorter_tail = _ends_of(text, length - len(lost) - 3, parts)
        if shorter_head and shorter_tail:
            return f"{_whole_clause(shorter_head)}… {lost}… {shorter_tail}"
    spaced = f"{_whole_clause(head)}… {tail}"
    return spaced if len(spaced) <= length and head and tail else f"{head}…{tail}"


def _ends_of(text: str, length: int, parts: int) -> tuple[str, str]:
    """Return the begin and the end of a text that fit into a length, with a mark between them."""
    first = max((length - 1) // parts, 0)
    last = len(text) - (length - 1 - first)
    head = _without_part(text[: first + 1])[:first].rstrip()
    tail = _without_part(text[last - 1 :][::-1])[::-1]
    tail = tail[-(len(text) - last) :].lstrip() if last < len(text) else ""
    begins = [found.end() for found in _CLAUSE.finditer(tail)]
    begins = [end for end in begins if 3 * end <= len(tail) and tail[end - 2] != ","]
    return head, tail[begins[0] :] if begins else tail


_BORDERS: Final = ' ,:"'
"""What is between words, also in JSON."""
_CLAUSE: Final = re.compile(r"[:;.] |, ")
_PATH: Final = re.compile(
    r"(/[\w.-]{1,64})(?:/[\w.~-]{1,255}){3,40}?"
    r"/([\w.~-]{1,255}/[\w.~-]{1,250}\.(?:img|iso|qcow2|raw)|[\w.~-]{1,255})(?![\w.~/-])"
)
"""A path of at least five parts: the first and last one tell which it is,
of an image its folder.
"""
_MOUNTING: Final = re.compile(
    r"Mounting command: \S{1,200} Mounting arguments: .{0,2000}? Output: ", re.DOTALL
)
"""What precedes the error of a mount (kubernetes/mount-utils:mount_linux.go#doMount)."""
_DUMP: Final = re.compile(r" -> currentState: ---.{1,20000}?\s: ", re.DOTALL)
"""The state of a node's network in the middle of an error
(nmstate/kubernetes-nmstate:pkg/probe/probes.go#Run).
"""
_REST: Final = re.compile(
    r"Bad response statusCode \[\d{3}\]\. Status \[[^\]]{0,80}\]\. Body: "
    r"\[(?:[^\]]{0,200}?message=)?(.{1,2000}?)"
    r"(?:, (?:code|detail|baseType|fieldName)=[^\]]{0,200})?\] from \[\S{1,500}\]",
    re.DOTALL,
)
"""How clients of Rancher's API, such as Longhorn's, wrap what a server answers; the parts of the
body have no order (rancher/norman:clientbase/common.go#newAPIError).
"""
_WEBHOOK: Final = re.compile(
    r'calling webhook \\?"([^"\\]{1,253})\\?": (?:failed to call webhook: )?'
    r'Post \\?"https://([^/:"\\?]{1,253})[^"\s]{0,500}": '
)
"""Which webhook the API server cannot call, and the address of its service
(kubernetes/kubernetes:staging/src/k8s.io/apiserver/pkg/util/webhook/webhook.go#ErrCallingWebhook).
"""
_URL: Final = re.compile(r"\b[a-z][a-z0-9+]{1,15}://[\w.:@/~…%-]{4,200}(?<![:./])")
_CALL: Final = re.compile(r"rpc error: code = (\w+) desc = ")
_SHORTEST_BEGIN: Final = 30
_FORBIDDEN: Final = re.compile(
    r'(?<![\w.])[a-z][a-z0-9.]{0,100}(?: \\?"[^"\\]{1,253}\\?")?'
    r" is forbidden: (?:attempting to grant RBAC permissions not currently held: )?(?=.)"
)
"""What the API server answers about an object: its name is never cut, what precedes it is."""
_CONDITION: Final = re.compile(r"\w{1,80} is (?:True|False|Unknown)(?: \(\w{1,80}\))?: ")
"""How the words of a condition begin, which says what does not go on."""
_GRANTS: Final = re.compile(
    r'(?<=is forbidden: )user \\?"[^"\\]{1,253}\\?" \(groups=\[[^\]]{0,2000}\]\) is '
    r"(attempting to grant RBAC permissions not currently held:)\s{1,4}"
)
"""Who writes a role with rules that it does not have itself
(kubernetes/kubernetes:pkg/registry/rbac/validation/rule.go#ConfirmNoEscalation).
"""
_SHORTEST_REASON: Final = 60


def _whole_clause(text: str) -> str:
    """Return the begin of a text up to the end of its last whole clause,
    unless that leaves less than half of it.
    """
    ends = [found.start() for found in _CLAUSE.finditer(text)]
    return text[: ends[-1]] if ends and 2 * ends[-1] >= len(text) else text


def _without_part(text: str, borders: str = " ,") -> str:
    """Return a text that was cut without the word at its end, which may be incomplete,
    unless that is more than half.
    """
    whole = text[: max(0, *(text.rfind(border) for border in borders))]
    return whole if 2 * len(whole) >= len(text) else text


def first_within(most: int, *choices: str) -> str:
    """Return the first text of at most so many characters, else the last one."""
    return next((text for text in choices if len(text) <= most), choices[-1])


def unknown(
    word: object, known: Sequence[str], suggestion: str | None, *, newer: bool = False
) -> str:
    """Return the message for a value that KubeVirt rejects, with the value to write instead.

    Args:
        newer: KubeVirt is newer than virt-admit, so it may accept values that are not in ``known``.
    """
    rejects = "may reject" if newer else "rejects"
    write = (
        f"{suggestion} (known: {', '.join(known)})" if suggestion else f"one of {', '.join(known)}"
    )
    return f"{show(word)} is not a known value, so KubeVirt {rejects} it. Write {write}."


def capital(text: str) -> str:
    """Return the text with a capital first letter."""
    return f"{text[:1].upper()}{text[1:]}"


def sentence(text: str) -> str:
    """Return the text with a capital first letter and a full stop."""
    return ended(capital(text))


def ended(text: str) -> str:
    """Return the text with a full stop, unless an ellipsis,
    a full stop or a command that people copy ends it.
    """
    found = _COMMAND.search(text)
    while found and found[2]:  # another one may stand in what follows
        found = _COMMAND.search(found[2])
    return text if text.endswith(("…", ".")) or found else f"{text}."


def command_of(remedy: str) -> str:
    """Return the command of the first step of a remedy; empty: it has none."""
    found = _COMMAND.search(remedy)
    return found[1] if found else ""


def without_command(remedy: str) -> str:
    """Return the words of a remedy: ways before that with the command stay ways beside it."""
    found = _COMMAND.search(remedy)
    if found is None:
        return remedy
    return f"{OTHER_WAY.sub(', ', remedy[: found.start()])}{found[2] or ''}"


def advice_of(remedy: str) -> str:
    """Return a remedy as a sentence without its command, which is shown beside it."""
    return sentence(without_command(remedy))


TOOLS: Final = "kubectl|virtctl|helm|virt-admit"
"""What begins a command, as a regular expression."""
OTHER_WAY: Final = re.compile(r"; (?=or\b)")
"""What stands between two ways of a remedy, each with its own command."""
_COMMAND: Final = re.compile(rf": ((?:{TOOLS}) [^;]*)(; .*)?\Z")
"""A command, and what follows it (``typed``)."""
_MOST_EDITS: Final = 2


def did_you_mean(
    word: object, known: Sequence[str], aliases: Mapping[str, str] | None = None
) -> str | None:
    """Return the known word that was probably meant: different case, or at most two edits away.

    Keys of ``aliases`` are in lower case.
    """
    if not isinstance(word, str) or len(word) > max(map(len, known), default=0) + _MOST_EDITS:
        return None
    lower = word.lower()
    if aliases and lower in aliases:
        return aliases[lower]
    # an edit changes the length by one at most, so other words need not be compared
    similar = (each for each in known if abs(len(each) - len(lower)) <= _MOST_EDITS)
    edits, nearest = min(
        ((_edits(lower, each.lower()), each) for each in similar), default=(len(word), "")
    )
    return nearest if edits <= _MOST_EDITS and edits < len(word) else None


def _edits(left: str, right: str) -> int:
    """Return the Levenshtein distance: insertions,
    deletions and replacements that turn one word into the other.
    """
    row = list(range(len(right) + 1))
    for i, a in enumerate(left, start=1):
        previous, row = row, [i]
        for j, b in enumerate(right, start=1):
            row.append(min(previous[j] + 1, row[j - 1] + 1, previous[j - 1] + (a != b)))
    return row[-1]
