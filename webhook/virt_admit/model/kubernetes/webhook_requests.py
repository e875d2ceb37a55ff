"""Which requests an admission webhook gets, as far as its configuration says so in simple terms.

Sources:
kubernetes/kubernetes:staging/src/k8s.io/apiserver/pkg/admission/plugin/webhook/predicates/rules/rules.go#Matches,
:staging/src/k8s.io/apiserver/pkg/admission/plugin/webhook/predicates/namespace/matcher.go#MatchNamespaceSelector,
:staging/src/k8s.io/apiserver/pkg/admission/plugin/webhook/generic/webhook.go#ShouldCallHook.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from virt_admit.model.kubernetes import kinds, selectors
from virt_admit.model.kubernetes.kinds import Kind
from virt_admit.model.kubernetes.objects import Field
from virt_admit.model.kubernetes.reads import Reads

CONFIGURATIONS: Final = (kinds.VALIDATING_CONFIGURATION, kinds.MUTATING_CONFIGURATION)

READS: Final[Reads] = dict.fromkeys(CONFIGURATIONS, ())


class InterceptedRequest(NamedTuple):
    """A write of an object, as an API server shows it to webhooks."""

    operation: str
    group: str
    resource: str
    """With the sub-resource, as in ``pods/eviction``."""
    namespace: str = ""
    namespace_labels: Mapping[str, str] | None = None
    """None: not known, but for the name of the namespace."""
    name: str | None = None
    labels: Mapping[str, str] | None = None
    """None: not known."""
    cluster_scoped: bool = False

    def __str__(self) -> str:
        return f"{self.operation} {self.resource}"


def service(webhook: Field) -> tuple[str, str] | None:
    """Return namespace and name of the Service without which requests fail; None: a URL,
    or its failure is ignored.
    """
    return None if webhook["failurePolicy"].text == "Ignore" else asked(webhook)


def asked(webhook: Field) -> tuple[str, str] | None:
    """Return namespace and name of the Service that a webhook asks; None: a URL."""
    found = webhook.at("clientConfig", "service")
    namespace, name = found["namespace"].text, found["name"].text
    return (namespace, name) if namespace and name else None


def received(
    webhook: Field, requests: Iterable[InterceptedRequest]
) -> Sequence[InterceptedRequest]:
    """Return the requests that the rules of a webhook select."""
    return [each for each in requests if intercepts(webhook, each)]


def intercepts(webhook: Field, request: InterceptedRequest) -> bool:
    """Return whether a rule of the webhook names the operation and the resource of a request."""
    return any(_rule_matches(rule, request) for rule in webhook["rules"].items())


def gets(webhook: Field, request: InterceptedRequest) -> bool | None:
    """Return whether the webhook gets a request.

    None: its selectors or conditions are not simple enough to say.
    """
    if not intercepts(webhook, request):
        return False
    namespace_labels = request.namespace_labels
    if namespace_labels is None and request.namespace:
        namespace_labels = (
            None if _beyond_name(webhook["namespaceSelector"]) else {_NAME_LABEL: request.namespace}
        )
    return _all(
        (
            request.cluster_scoped or _selects(webhook["namespaceSelector"], namespace_labels),
            _selects(webhook["objectSelector"], request.labels),
            *(
                _holds(condition["expression"].text or "", request)
                for condition in webhook["matchConditions"].items()
            ),
        )
    )


_NAME_LABEL: Final = "kubernetes.io/metadata.name"
"""Label that the API server sets on every namespace."""


def kind_of(request: InterceptedRequest) -> Kind | None:
    """Return the kind of the resource of a request, if the table has it."""
    plural = request.resource.partition("/")[0]
    return kinds.by_resource(f"{plural}.{request.group}" if request.group else plural)


def _rule_matches(rule: Field, request: InterceptedRequest) -> bool:
    return (
        _has_one(rule["operations"], ("*", request.operation))
        and _has_one(rule["apiGroups"], ("*", request.group))
        and _has_one(rule["resources"], _patterns(request.resource))
        and rule["scope"].text != ("Namespaced" if request.cluster_scoped else "Cluster")
    )


def _patterns(resource: str) -> tuple[str, ...]:
    """Return what the rules of webhooks may write for a resource."""
    name, _, sub = resource.partition("/")
    if sub:
        return resource, f"{name}/*", f"*/{sub}", "*/*"
    return name, f"{name}/*", "*", "*/*"


def _has_one(field: Field, texts: Sequence[str]) -> bool:
    # no fields: a drain asks each rule of each webhook for each of its requests
    return field.is_list and any(item in texts for item in field.value)


def _beyond_name(selector: Field) -> bool:
    """Return whether a selector of namespaces asks for more than their name."""
    keys = {
        *selector["matchLabels"].texts,
        *(each["key"].text for each in selector["matchExpressions"].items()),
    }
    return bool(keys - {_NAME_LABEL})


def _selects(selector: Field, labels: Mapping[str, str] | None) -> bool | None:
    if not any(True for _ in selector.entries()):
        return True
    return None if labels is None else selectors.parse(selector.value).matches(labels)


# --- matchConditions: the part of CEL that needs no interpreter -----------------------------------

_NAME: Final = r"(?:object\.metadata\.name|request\.name)"
_ATOM: Final = re.compile(
    rf"(?P<not>!)?\(?(?:(?P<field>{_NAME}|request\.namespace|object\.metadata\.namespace|"
    r"request\.operation)(?:\.(?P<call>startsWith|endsWith)\((?P<argument>'[^']*'|\"[^\"]*\")\)|"
    r"\s*(?P<sign>==|!=)\s*(?P<value>'[^']*'|\"[^\"]*\"))|(?P<literal>true|false))\)?"
)


def _holds(expression: str, request: InterceptedRequest) -> bool | None:
    """Return the value of a condition.

    None: it is more than equality, ``startsWith`` and ``endsWith`` of a name.
    """
    if "||" in expression and "&&" in expression:
        return None
    if "||" in expression:
        values = [_atom(part.strip(), request) for part in expression.split("||")]
        return True if True in values else None if None in values else False
    return _all(_atom(part.strip(), request) for part in expression.split("&&"))


def _all(values: Iterable[bool | None]) -> bool | None:
    found = list(values)
    return False if False in found else None if None in found else True


def _atom(text: str, request: InterceptedRequest) -> bool | None:
    match = _ATOM.fullmatch(text)
    if match is None:
        return None
    if match["literal"]:
        return (match["literal"] == "true") is not bool(match["not"])
    name = match["field"]
    subject = (
        request.namespace
        if name.endswith("namespace")
        else request.operation
        if name.endswith("operation")
        else request.name
    )
    if subject is None:
        return None
    if match["call"]:
        found = getattr(subject, match["call"].lower())(match["argument"][1:-1])
    else:
        found = (subject == match["value"][1:-1]) is (match["sign"] == "==")
    return bool(found) is not bool(match["not"])
