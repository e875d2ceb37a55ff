"""What is installed in a cluster: webhook configurations, the Services that they call,
and their endpoints.

Everything is plain JSON that an ``ApiReader`` returns.
"""

from __future__ import annotations

import base64
import contextlib
import functools
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, NamedTuple, Protocol

from virt_admit.install.manifests import NAME
from virt_admit.model.kubernetes import selectors
from virt_admit.policy import parser
from virt_admit.policy.files import PolicyConfigMap
from virt_admit.policy.policy import Policy
from virt_admit.rules import Rules
from virt_admit.settings import NAMESPACE, POLICY_CONFIGMAP, SERVICE

Json = Mapping[str, Any]

CONFIGURATIONS: Final = {
    "ValidatingWebhookConfiguration": "validatingwebhookconfigurations",
    "MutatingWebhookConfiguration": "mutatingwebhookconfigurations",
}
OURS: Final = frozenset(f"{kind} {NAME}" for kind in CONFIGURATIONS)
EXTERNAL: Final = "VIRT_ADMIT_CERTS_EXTERNAL"
POLICY_VARIABLE: Final = "VIRT_ADMIT_POLICY_CONFIGMAP"


class Unreadable(Exception):
    """The API server did not return what was requested; the text says why."""


@contextlib.contextmanager
def expected_form() -> Iterator[None]:
    """Raise Unreadable where an object of the API server has other types than its API defines.

    The checks read objects as plain JSON. No request of the API server's own schema returns such an
    object.
    """
    try:
        yield
    except (AttributeError, LookupError, RecursionError, TypeError, ValueError) as error:
        reason = f"{type(error).__name__} in an object of the API server"
        raise Unreadable(f"an object does not have the form of its kind ({reason})") from None


class ApiReader(Protocol):
    """The API server. Each raises Unreadable."""

    def get(self, path: str, **query: str) -> Json | None:
        """Return the object or list at a path; None if it does not exist."""

    def text(self, path: str) -> str:
        """Return the text at a path."""

    def post(self, path: str, body: dict[str, Any]) -> Json:
        """Return the answer to a review."""


Connect = Callable[[str, str], str]
"""Given a URL and the bundle as PEM, return why a TLS connection fails,
verified as an API server would; or nothing.
"""


class Reference(NamedTuple):
    """The Service that an entry calls."""

    namespace: str
    name: str
    port: int

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"

    @property
    def host(self) -> str:
        """The DNS name that API servers verify."""
        return f"{self.name}.{self.namespace}.svc"


@dataclass(frozen=True, slots=True)
class InspectedEntry:
    """One entry of a webhook configuration, ours or another's."""

    configuration: str
    """Kind and name."""
    name: str
    data: Json

    @property
    def fails(self) -> bool:
        """Whether the API server rejects requests while the webhook does not answer."""
        return bool(self.data.get("failurePolicy", "Fail") == "Fail")

    @property
    def service(self) -> Reference | None:
        service = self.data["clientConfig"].get("service")
        return service and Reference(
            service["namespace"], service["name"], service.get("port", 443)
        )

    @property
    def url(self) -> str:
        return str(self.data["clientConfig"].get("url", ""))

    @property
    def bundle(self) -> bytes:
        return base64.b64decode(self.data["clientConfig"].get("caBundle") or "")

    def selects(self, labels: Mapping[str, str]) -> bool:
        """Whether objects in a namespace with these labels are sent."""
        return selectors.parse(self.data.get("namespaceSelector")).matches(labels)

    @property
    def intercepted(self) -> set[tuple[str, ...]]:
        """What is sent: group, version, resource, operation."""
        return {
            place
            for rule in self.data.get("rules", ())
            for place in itertools.product(
                *(rule[key] for key in ("apiGroups", "apiVersions", "resources", "operations"))
            )
        }

    def matches_kind(self, group: str, plural: str) -> bool:
        """Whether creations or updates of a kind are sent."""
        return any(
            asked_group in (group, "*")
            and resource in (plural, "*", "*/*")
            and operation in ("CREATE", "UPDATE", "*")
            for asked_group, _, resource, operation in self.intercepted
        )


class Installation:
    """What is installed, as far as several checks of ``doctor`` need it."""

    def __init__(self, api: ApiReader, rules: Rules, now: datetime, connect: Connect) -> None:
        self.api, self.rules, self.now, self.connect = api, rules, now, connect
        self.get = functools.cache(api.get)

    def ours(self) -> list[InspectedEntry]:
        """Return the entries of our two configurations."""
        return [entry for entry in self._entries() if entry.configuration in OURS]

    def others(self) -> list[InspectedEntry]:
        """Return all other entries."""
        return [entry for entry in self._entries() if entry.configuration not in OURS]

    def services(self) -> list[Reference]:
        """Return the Services that our entries call: one, or none if they call URLs.

        Before the registration, our own.
        """
        if not self.ours() and self.deployment() is not None:
            return [Reference(NAMESPACE, SERVICE, 443)]
        return sorted({entry.service for entry in self.ours() if entry.service})

    def ready(self, service: Reference) -> int:
        """Return the number of ready endpoints of a Service."""
        path = f"/apis/discovery.k8s.io/v1/namespaces/{service.namespace}/endpointslices"
        slices = self.items(path, labelSelector=f"kubernetes.io/service-name={service.name}")
        return len(
            {
                address
                for each in slices
                for endpoint in each.get("endpoints") or ()
                if endpoint.get("conditions", {}).get("ready") is not False
                for address in endpoint["addresses"]
            }
        )

    def namespace_labels(self) -> Mapping[str, str]:
        """Return the labels of our namespace; if it does not exist,
        those that each namespace has.
        """
        found = self.get(f"/api/v1/namespaces/{NAMESPACE}") or {"metadata": {}}
        return {"kubernetes.io/metadata.name": NAMESPACE, **(found["metadata"].get("labels") or {})}

    def deployment(self) -> Json | None:
        return self.get(f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments/{SERVICE}")

    def issued_by_another(self) -> str:
        """Return the Secret of an external issuer as ``namespace/name``;
        empty if virt-admit issues its certificates.
        """
        deployment = self.deployment()
        pod = deployment["spec"]["template"]["spec"] if deployment else {"containers": ()}
        for container in pod["containers"]:
            places = {each["name"]: each.get("value", "") for each in container.get("env") or ()}
            arguments = " ".join(container.get("args") or ()).replace("=", " ").split()
            if "--certs-external" in arguments[:-1]:
                places[EXTERNAL] = arguments[arguments.index("--certs-external") + 1]
            mounted = {
                each["mountPath"]: each["name"] for each in container.get("volumeMounts") or ()
            }
            for volume in pod.get("volumes") or ():
                if volume["name"] == mounted.get(places.get(EXTERNAL, "")) and "secret" in volume:
                    return f"{NAMESPACE}/{volume['secret']['secretName']}"
        return ""

    def policy_configmap(self) -> str:
        """Return the ConfigMap with the policy that the Deployment names, with its fallback;
        empty if it names none.
        """
        deployment = self.deployment()
        containers = deployment["spec"]["template"]["spec"]["containers"] if deployment else ()
        variables = [each for container in containers for each in container.get("env") or ()]
        return next(
            (str(each.get("value", "")) for each in variables if each["name"] == POLICY_VARIABLE),
            "",
        )

    def policy_place(self) -> PolicyConfigMap:
        """Return the ConfigMap with the policy that the Deployment names, or the usual one."""
        return PolicyConfigMap.parse(self.policy_configmap() or POLICY_CONFIGMAP)

    def policy(self) -> Policy | None:
        """Return the policy in the ConfigMap; None if the ConfigMap does not exist.

        Raises:
            PolicyError: it is not valid.
        """
        config = self.get(self.policy_place().path)
        if config is None:
            return None
        text = (config.get("data") or {}).get("policy.yaml", "")
        return parser.parse(text.encode(), self.rules, "policy.yaml").at(self.now.date())

    def _entries(self) -> Iterator[InspectedEntry]:
        for kind, plural in CONFIGURATIONS.items():
            for obj in self.items(f"/apis/admissionregistration.k8s.io/v1/{plural}"):
                for entry in obj.get("webhooks", ()):
                    yield InspectedEntry(f"{kind} {obj['metadata']['name']}", entry["name"], entry)

    def items(self, path: str, **query: str) -> Sequence[Json]:
        """Return the items of a list; none if the kind is not installed."""
        found = self.get(path, **query)
        return found["items"] if found else ()
