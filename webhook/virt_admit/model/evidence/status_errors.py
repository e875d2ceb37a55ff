"""The parts of a status and the errors in them, whatever its fields are called.

Source: kubernetes/community:contributors/devel/sig-architecture/api-conventions.md#typical-status-
properties.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterator
from itertools import islice
from typing import Final

from virt_admit.model.kubernetes.objects import Field
from virt_admit.model.messages import cut_middle
from virt_admit.model.sanitize import without_login

_IS_ERROR: Final = re.compile(r"(?i)errors?\Z|errormessage\Z|failure(message|reason)?\Z")
_NOT_PARTS: Final = frozenset(
    ("conditions", "history", "conditionalUpdates", "deprecated", "v1beta2")
)
"""Fields of a status whose errors are said already, are of a former run, or of what is only
offered. The last two are those of Cluster API, which repeat its conditions in an older and in a
newer form."""
_NOT_NOW: Final = re.compile(r"(?:[Ll]ast|[Oo]n|[Ii]gnore)(?=[^a-z]|err|fail|\Z)")
"""How fields begin that hold an error of a former run, or what is done in case of one: a whole word
(``onError``, not ``ontapBackends``)."""
_MOST_PARTS: Final = 500
_MOST_TEXTS: Final = 3
_LONGEST_TEXT: Final = 200
_TOKEN: Final = re.compile(r"\b([Bb]earer|[Bb]asic|BEARER) +[\w.~+/=-]{12,}")
_WORD: Final = re.compile(r"""[^\s"']+""")


def parts(status: Field) -> Iterator[tuple[str, Field]]:
    """Yield the maps in a status, the outermost first and at most 500, each with its name or that
    of the nearest part around it; empty: none of them has a name."""
    left: deque[tuple[Field, str]] = deque([(status, "")])
    for _ in range(_MOST_PARTS):
        if not left:
            return
        field, name = left.popleft()
        if isinstance(field.value, list):
            left.extend((each, name) for each in field.items())
            continue
        name = name or field["name"].text or ""
        yield name, field
        left.extend(
            (field[key], name)
            for key, value in field.map.items()
            if isinstance(value, dict | list) and key not in _NOT_PARTS and _is_of_now(key)
        )


def errors(status: Field) -> Iterator[str]:
    """Yield the errors in a status, the outermost first, each with the name of its part."""
    for name, part in parts(status):
        for key, value in part.map.items():
            if _IS_ERROR.search(key) and _is_of_now(key) and (text := _texts(value)):
                yield f"{name}: {text}" if name else text


def unmet(status: Field) -> Iterator[Field]:
    """Yield the requirements of a release that OLM does not find
    (operator-framework/api:pkg/operators/v1alpha1/clusterserviceversion_types.go#RequirementStatus).
    """
    for each in status["requirementStatus"].items():
        if each["status"].text and each["status"].text not in _MET:
            yield each


def unmet_words(requirement: Field) -> str:
    """Return ``ServiceAccount a is NotPresent (Service account does not exist)``."""
    dependents = requirement["dependents"].items()
    lacking = (each["message"] for each in dependents if each["status"].text == "NotSatisfied")
    said = [requirement["message"], *islice(lacking, 1)]
    message = ": ".join(cut_middle(plain(each.text), _LONGEST_TEXT) for each in said if each.text)
    kind, name, state = (requirement[each].text or "?" for each in ("kind", "name", "status"))
    return f"{kind} {name} is {state}{f' ({message})' if message else ''}"


_MET: Final = frozenset(("Present", "Satisfied", "DeploymentFound"))


def _is_of_now(key: str) -> bool:
    return not _NOT_NOW.match(key)


def _texts(error: object) -> str:
    """Return the words of an error: one text, a list of them, or a phase and reasons."""
    values = list(error.values()) if isinstance(error, dict) else error
    values = values if isinstance(values, list) else [values]
    words = (each if isinstance(each, list) else [each] for each in values)
    texts = (text for each in words for text in each if isinstance(text, str) and text.strip())
    return ": ".join(cut_middle(plain(text), _LONGEST_TEXT) for text in islice(texts, _MOST_TEXTS))


def plain(text: str) -> str:
    """Return a text on one line, without the credentials and the queries of its URLs, and without
    tokens."""
    return _TOKEN.sub(r"\1 …", _WORD.sub(_without_secrets, " ".join(text.split())))


def _without_secrets(word: re.Match[str]) -> str:
    url, _, query = word[0].partition("?")
    end = query[len(query.rstrip(":;,.)")) :]
    return without_login(f"{url}{end}" if "//" in url else word[0])
