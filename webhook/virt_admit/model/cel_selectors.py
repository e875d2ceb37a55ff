"""Label selectors in CEL, as ``selectors`` reads them."""

from __future__ import annotations

from typing import Final

from virt_admit.model import cel
from virt_admit.model.kubernetes import selectors
from virt_admit.model.kubernetes.selectors import (
    DOES_NOT_EXIST,
    EXISTS,
    GREATER,
    IN,
    LABEL_OPERATORS,
    LESS,
    LONGEST_SUBDOMAIN,
    NOT_IN,
)

_WORD: Final = "(?:[A-Za-z0-9][A-Za-z0-9_.-]{0,61})?[A-Za-z0-9]"
_KEY: Final = cel.text(f"^(?:{selectors.SUBDOMAIN}/)?{_WORD}$")
_VALUE: Final = cel.text(f"^(?:{_WORD})?$")
_INTEGER: Final = cel.text(f"^{selectors.INTEGER}$")


def is_dns_name(value: str) -> str:
    """Return whether a text is a DNS-1123 subdomain."""
    return (
        f"({value}.size() <= {LONGEST_SUBDOMAIN} && "
        f"{value}.matches({cel.text(f'^{selectors.SUBDOMAIN}$')}))"
    )


def valid_key(value: str) -> str:
    """Return whether a value is a label key."""
    return (
        f"(type({value}) == string && {value}.size() <= {LONGEST_SUBDOMAIN + 64} && "
        f"{value}.matches({_KEY}) && {value}.indexOf('/') <= {LONGEST_SUBDOMAIN})"
    )


def valid_value(value: str) -> str:
    """Return whether a value is a label value."""
    return f"(type({value}) == string && {value}.size() <= 63 && {value}.matches({_VALUE}))"


def _integer(value: str) -> str:
    """Return whether a value is a 64-bit integer in a text, in CEL.

    Texts of 19 digits compare as numbers do.
    """
    digits = f"{value}.find('[1-9][0-9]*$')"
    largest = f"({value}.startsWith('-') ? '{2**63}' : '{2**63 - 1}')"
    return (
        f"(type({value}) == string && {value}.size() <= 63 && {value}.matches({_INTEGER})"
        f" && ({digits}.size() < 19 || ({digits}.size() == 19 && {digits} <= {largest})))"
    )


def values(item: str) -> str:
    """Return the values of a requirement that is a map: null, or whatever the user wrote."""
    return f"{item}.?values.orValue(null)"


def valid_requirement(item: str, operators: tuple[str, ...], *, syntax: bool = True) -> str:
    """Return whether an item of ``matchExpressions`` is valid.

    Args:
        item: the item.
        operators: the operators that are valid.
        syntax: whether keys and values must have the syntax of labels, beyond being texts.
    """
    key = f"{item}.?key.orValue(null)"
    of_key = valid_key(key) if syntax else f"(type({key}) == string && {key} != '')"
    of_value = valid_value("choice") if syntax else "type(choice) == string"
    operator, choices = f"{item}.?operator.orValue(null)", values(item)
    forms = [
        f"({cel.one_of(operator, (IN, NOT_IN))} && type({choices}) == list && {choices}.size() > 0"
        f" && {choices}.all(choice, {of_value}))",
        f"({cel.one_of(operator, (EXISTS, DOES_NOT_EXIST))}"
        f" && ({choices} == null || (type({choices}) == list && {choices}.size() == 0)))",
    ]
    if GREATER in operators:
        forms.append(
            f"({cel.one_of(operator, (GREATER, LESS))} && type({choices}) == list && "
            f"{choices}.size() == 1 && {_integer(f'{choices}[0]')})"
        )
    return f"(type({item}) == map && {of_key} && ({' || '.join(forms)}))"


def _of_type(selector: str, name: str, expected: str, path: str, message: str) -> cel.Denial:
    """Return the denial of a part of a selector that has another type."""
    value = f"{selector}.?{name}.orValue(null)"
    return cel.Denial(
        when=f"{cel.is_map(selector)} && {value} != null && type({value}) != {expected}",
        path=path,
        message=f"{cel.shown(value)} + {cel.text(message)}",
        value=value,
    )


def denials(field: str, path: str, effect: str) -> tuple[cel.Denial, ...]:
    """Return the denials of a selector that is not valid, or has labels that the API server
    removes, by their paths.

    Args:
        field: the selector, optional.
        path: its path.
        effect: what follows the problem in the message.
    """
    written = f"{field}.orValue(null)"
    map_path = f"'{path}.matchLabels'"
    list_path = f"'{path}.matchExpressions'"
    return (
        cel.Denial(
            when=f"{cel.present(field)} && !{cel.is_map(field)}",
            path=f"'{path}'",
            message=f"{cel.shown(written)}"
            f" + {cel.text(' is not a selector: write matchLabels or matchExpressions' + effect)}",
            value=written,
        ),
        _of_type(field, "matchLabels", "map", map_path, f" is not a map of labels{effect}"),
        _of_type(
            field, "matchExpressions", "list", list_path, f" is not a list of requirements{effect}"
        ),
        *_of_labels(cel.entries(f"{field}.?matchLabels"), path, effect),
        cel.Denial(
            each=cel.items(f"{field}.?matchExpressions"),
            when=f"!{valid_requirement('item', LABEL_OPERATORS)}",
            path=list_path,
            message=cel.text(
                "this is not a valid requirement: write a key, and In or NotIn with values, Exists "
                f"or DoesNotExist without{effect}"
            ),
            value="item",
        ),
    )


def _of_labels(labels: str, path: str, effect: str) -> tuple[cel.Denial, cel.Denial]:
    """Return the denials of labels: the API server removes one, or its key or value is not
    valid.
    """
    label, at = f"{labels}[item]", f"'{path}.matchLabels.' + item"
    return (
        cel.Denial(
            each=labels,
            when=f"{label} == null",
            path=at,
            message=(
                "'null is not a value, so the API server removes this label and the selector "
                "matches more than it says. ' + 'Write a value, in quotes.'"
            ),
        ),
        cel.Denial(
            each=labels,
            when=f"{label} != null && !({valid_key('item')} && {valid_value(label)})",
            path=at,
            message=(
                f"({valid_key('item')} ? {cel.shown(label)} + ' is not a label value: it has at "
                "most 63 letters, digits, - _ or ., and begins and ends with a letter or digit' : "
                f"{cel.shown('item')} + ' is not a label key') + {cel.text(effect)}"
            ),
            value=label,
        ),
    )


def _identity(value: str) -> str:
    """Return a text that is the same for the values that ``show`` prints alike."""
    cut = f"({value}.size() > 60 ? {value}.substring(0, 57) + '...' : {value})"
    return (
        f"(type({value}) == string ? 'text ' + {cut} : type({value}) == double ? string({value}) : "
        f"{cel.shown(value)})"
    )


def _problems(field: str) -> tuple[tuple[str, str], ...]:
    """Return lists of parts that are not valid, and what is wrong with them."""
    labels, expressions = f"{field}.?matchLabels", f"{field}.?matchExpressions"
    keys = f"{cel.entries(labels)}.map(k, k)"
    items = f"{cel.items(expressions)}.filter(e, type(e) == map)"
    key, operator, chosen = "e.?key.orValue(null)", "e.?operator.orValue(null)", values("e")
    of_type = f"{chosen} == null || type({chosen}) == list"
    empty = f"({chosen} == null || (type({chosen}) == list && {chosen}.size() == 0))"
    not_a_map = f"({cel.present(labels)} && !{cel.is_map(labels)} ? [{labels}.orValue(null)] : [])"
    written = f"{expressions}.orValue(null)"
    not_a_list = f"({written} != null && type({written}) != list ? [{written}] : [])"
    pruned = f"{keys}.filter(k, {cel.entries(labels)}[k] == null)"
    return (
        (
            f"({cel.present(field)} && !{cel.is_map(field)} ? [{field}.orValue(null)] : [])",
            "is not a selector",
        ),
        (not_a_map, "is not a map of labels"),
        (not_a_list, "is not a list of requirements"),
        (
            f"{keys}.filter(k, {cel.entries(labels)}[k] != null && !{valid_key('k')})",
            "is not a label key",
        ),
        (f"{items}.filter(e, !{valid_key(key)}).map(e, {key})", "is not a label key"),
        (
            pruned,
            (
                "has the value null, so the API server removes this label and the selector matches "
                "more than it says"
            ),
        ),
        (
            f"{cel.items(expressions)}.filter(e, type(e) != map)",
            "is not a requirement: write key, operator, values",
        ),
        (
            f"{items}.filter(e, !({operator} in {list(LABEL_OPERATORS)})).map(e, {operator})",
            "is not an operator",
        ),
        (f"{items}.filter(e, !({of_type})).map(e, {chosen})", "is not a list of values"),
        (
            (
                f"{items}.filter(e, {cel.one_of(operator, (IN, NOT_IN))} && {empty}).map(e, "
                f"{operator})"
            ),
            "needs at least one value",
        ),
        (
            (
                f"{items}.filter(e, {cel.one_of(operator, (EXISTS, DOES_NOT_EXIST))} && "
                f"type({chosen}) == list && {chosen}.size() > 0).map(e, {operator})"
            ),
            "takes no values",
        ),
    )


def _bad_values(field: str) -> str:
    """Return a list with the identities of all values that are not label values."""
    labels = f"{field}.?matchLabels"
    keys = f"{cel.entries(labels)}.map(k, k)"
    chosen = values("e")
    operator = "e.?operator.orValue(null)"
    items = f"{cel.items(f'{field}.?matchExpressions')}.filter(e, type(e) == map)"
    return (
        f"{keys}.map(k, {cel.entries(labels)}[k]).filter(v, v != null && "
        f"!{valid_value('v')}).map(v, {_identity('v')}) + {items}.filter(e, type({chosen}) == list "
        f"&& !({cel.one_of(operator, (GREATER, LESS))})).map(e, e.values.filter(v, "
        f"!{valid_value('v')}).map(v, "
        f"{_identity('v')}).join('\\n\\n')).join('\\n\\n').split('\\n\\n').filter(words, words != "
        "'')"
    )


def problems(field: str, path: str, effect: str) -> tuple[cel.Denial, ...]:
    """Return the denials of a selector whose problems all have its own path,
    and are known by what is wrong.

    Args:
        field: the selector, optional.
        path: its path.
        effect: what follows the problem in the message.
    """
    return (
        *(
            cel.Denial(
                each=each,
                when="true",
                path=f"'{path}'",
                message=f"{cel.shown('item')} + {cel.text(f' {problem}{effect}')}",
                value=f"['{problem}', {_identity('item')}]",
            )
            for each, problem in _problems(field)
        ),
        cel.Denial(
            each=f"({_bad_values(field)})",
            when="true",
            path=f"'{path}'",
            message=cel.text(
                "a value is not a label value: it has at most 63 letters, digits, - _ or ., and "
                f"begins and ends with a letter or digit{effect}"
            ),
            value="item",
        ),
    )


_LABELS: Final = "labels.filter(k, labels[k] != null)"
_EXPRESSIONS: Final = (
    "(type(selector.?matchExpressions.orValue(null)) == list ? "
    "selector.?matchExpressions.orValue([]) : [])"
)


def requirements(field: str) -> str:
    """Return the requirements of a valid selector as maps: ``key``, ``operator`` and ``values``."""
    labels = (
        "(type(selector.?matchLabels.orValue(null)) == map ? selector.?matchLabels.orValue({}) : "
        "{})"
    )
    return (
        f"[{cel.entries(field)}].map(selector, [{labels}].map(labels, {_LABELS}.map(k, "
        "{'key': dyn(k), 'operator': dyn('In'), 'values': dyn([labels[k]])}))[0]"
        f" + {_EXPRESSIONS}.map(e, {{'key': dyn(e.key), 'operator': dyn(e.operator),"
        " 'values': dyn(e.?values.orValue(null) == null ? [] : e.values)}))[0]"
    )


def valid(field: str) -> str:
    """Return whether an optional selector is valid,
    apart from labels that the API server removes.
    """
    labels, expressions = f"{field}.?matchLabels", f"{field}.?matchExpressions"
    return (
        f"(!{cel.present(field)} || ({cel.is_map(field)}"
        f" && (!{cel.present(labels)} || {cel.is_map(labels)})"
        f" && {cel.entries(labels)}.all(k, {cel.entries(labels)}[k] == null"
        f" || ({valid_key('k')} && {valid_value(f'{cel.entries(labels)}[k]')}))"
        f" && (!{cel.present(expressions)} || type({expressions}.orValue(null)) == list)"
        f" && {cel.items(expressions)}.all(e, {valid_requirement('e', LABEL_OPERATORS)})))"
    )


def same(ours: str, theirs: str) -> str:
    """Return whether two lists of ``requirements`` are equal, whatever their order."""
    equal = "a.key == b.key && a.operator == b.operator && sets.equivalent(a.values, b.values)"
    return (
        f"[{ours}].all(ours, [{theirs}].all(theirs, ours.all(a, theirs.exists(b, {equal}))"
        f" && theirs.all(b, ours.exists(a, {equal}))))"
    )


def matches(found: str, labels: str) -> str:
    """Return whether a list of ``requirements`` matches a map of labels."""
    inside = "(type(labels[?r.key].orValue(null)) == string && labels[r.key] in r.values)"
    return (
        f"[{labels}].all(labels, {found}.all(r, r.operator == '{IN}' ? {inside} : r.operator == "
        f"'{NOT_IN}' ? !{inside} : (r.key in labels) == (r.operator == '{EXISTS}')))"
    )
