"""The policy of a cluster: the ConfigMap that the administrator creates and owns.
virt-admit never writes it.
"""

from __future__ import annotations

import dataclasses

from virt_admit.policy import parser
from virt_admit.policy.files import PolicyConfigMap
from virt_admit.policy.policy import Policy, PolicyError
from virt_admit.rules import Rules
from virt_admit_certs.kube_api import ApiError, JsonRequests

KEY = "policy.yaml"


def read_text(api: JsonRequests, place: PolicyConfigMap) -> str | None:
    """Return the text of the policy; None if the ConfigMap does not exist.

    Raises:
        ApiError: the ConfigMap cannot be read.
        PolicyError: the ConfigMap has no policy.
    """
    response = api.request_json("GET", place.path)
    if response.status == 404:
        _require_api_server(api)
        return None
    if response.status != 200:
        raise response.error(f"{place} cannot be read")
    data = response.body.get("data")
    text = data.get(KEY) if isinstance(data, dict) else None
    if not isinstance(text, str):
        raise PolicyError([f"{place}: key {KEY} is missing"])
    return text


def parse_text(text: str | None, place: PolicyConfigMap, rules: Rules) -> Policy:
    """Return the policy in the text; without a ConfigMap (None), the fallback.

    Raises:
        PolicyError: the policy is not valid.
    """
    if text is not None:
        return parser.parse(text.encode(), rules, str(place))
    return dataclasses.replace(
        parser.load(place.fallback, rules), name=f"{place.fallback} ({place} does not exist)"
    )


def load(api: JsonRequests, place: PolicyConfigMap, rules: Rules) -> Policy:
    """Return the policy of the cluster.

    Raises:
        ApiError: the ConfigMap cannot be read.
        PolicyError: the policy is not valid.
    """
    return parse_text(read_text(api, place), place, rules)


def _require_api_server(api: JsonRequests) -> None:
    """Check that an API server answers: a 404 of a proxy does not mean that the ConfigMap does not
    exist.

    Raises:
        ApiError: the response is not one of an API server.
    """
    response = api.request_json("GET", "/apis")
    if response.body.get("kind") != "APIGroupList":
        raise ApiError(0, "this is not the answer of an API server")
