"""Checks of the floor: whether the policies in the cluster are those that the policy of the cluster
would export.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from virt_admit.install import policies
from virt_admit.install.guard import GROUP, PLURALS
from virt_admit.install.inspect import Installation, Json, Unreadable
from virt_admit.install.manifests import NAME
from virt_admit.install.observations import Outcome, Status
from virt_admit.model.messages import count, names
from virt_admit.policy import parser
from virt_admit.policy.policy import PolicyError

SELECTOR: Final = f"app.kubernetes.io/component={policies.COMPONENT}"
EXPORT: Final = (
    "export the policies again: virt-admit manifests --part policies --policy policy.yaml | "
    "kubectl apply -f -"
)
REMOVE: Final = f"delete them: kubectl delete {','.join(PLURALS)} {{}}"
KINDS: Final = dict(
    zip(("ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"), PLURALS, strict=True)
)

_Specs = Mapping[tuple[str, str], Json]
"""The specs by kind and name of their objects."""


def check_floor(installation: Installation) -> Iterator[Outcome]:
    """Yield how the floor differs from what the policy of the cluster would export.

    Nothing if it is not installed.
    """
    installed = _installed(installation)
    if not installed:
        return
    place = installation.policy_place()
    try:
        found = installation.policy()
    except PolicyError:
        raise Unreadable(
            "the policy is not valid, so what it would export cannot be determined"
        ) from None
    policy = found or parser.load(place.fallback, installation.rules).at(installation.now.date())
    name = f"the policy in {place}" if found else f"the built-in policy {place.fallback}"
    expected = {
        (each["kind"], each["metadata"]["name"]): each["spec"]
        for each in policies.policies(installation.rules.at_admission, policy)
    }
    missing = _rules(expected.keys() - installed.keys())
    left_over = _rules(installed.keys() - expected.keys())
    if missing:
        lacking = f"{count(len(missing), 'rule')} of {name}: {names(missing)}"
        yield Status.WRONG, f"the floor does not enforce {lacking}", EXPORT
    if different := _rules(
        key for key in installed.keys() & expected.keys() if installed[key] != expected[key]
    ):
        others = f"{count(len(different), 'rule')} of {name}: {names(different)}"
        yield Status.WRONG, f"the floor enforces differently {others}", EXPORT
    if left_over:
        text = (
            f"the floor still enforces {count(len(left_over), 'rule')} that {name} does not "
            f"export: {names(left_over)}"
        )
        yield Status.WRONG, text, REMOVE.format(" ".join(f"{NAME}-{rule}" for rule in left_over))
    if installed == expected:
        yield (
            Status.OK,
            f"the floor enforces what {name} exports: {count(len(expected) // len(KINDS), 'rule')}",
        )


def _rules(objects: Iterable[tuple[str, str]]) -> list[str]:
    return sorted({name.removeprefix(f"{NAME}-") for _, name in objects})


def _installed(installation: Installation) -> _Specs:
    return {
        (kind, each["metadata"]["name"]): each["spec"]
        for kind, plural in KINDS.items()
        for each in installation.items(f"/apis/{GROUP}/v1/{plural}", labelSelector=SELECTOR)
    }
