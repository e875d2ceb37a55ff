"""Where the policy of a serving process comes from: a shipped policy, a file, or a ConfigMap."""

from __future__ import annotations

import dataclasses
import logging
import threading
import time
from collections.abc import Callable
from typing import Final, Protocol

from virt_admit.kube import policy_configmap
from virt_admit.policy import parser
from virt_admit.policy.files import PolicyConfigMap, load_policy, policy_file
from virt_admit.policy.policy import Policy
from virt_admit.rules import Rules
from virt_admit.serving.metrics import ProcessMetrics
from virt_admit.serving.reload import Polled, Reloaded
from virt_admit.serving.settings import Settings
from virt_admit_certs.kube_api import JsonRequests

log = logging.getLogger(__name__)

POLL_INTERVAL: Final = 3.0
"""Seconds between two reads of the ConfigMap: a changed policy is in force after this time."""
FILE_INTERVAL: Final = 0.5
"""The same for a policy file, which is only read after a change."""


class PolicySource(Protocol):
    """The policy in force."""

    @property
    def error(self) -> Exception | None:
        """Why the newest policy is not in force; None if it is."""

    @property
    def loaded_at(self) -> float:
        """When the policy in force was loaded, in seconds since the epoch."""

    def __call__(self) -> Policy:
        """Return the policy in force."""


def policy_source(settings: Settings, rules: Rules, metrics: ProcessMetrics) -> PolicySource:
    """Return the source that the settings name.

    Raises:
        SettingError, OSError, PolicyError: a policy file does not exist or is not valid.
    """

    def on_error(_error: Exception) -> None:
        metrics.policy_errors.inc()

    source: PolicySource
    file = policy_file(settings.policy)
    if settings.policy_configmap:
        # importing kubernetes takes 0.3 s
        from virt_admit.kube.client import ApiClient  # noqa: PLC0415

        api = ApiClient.connect(settings.kubeconfig, settings.context)
        polled = PolledPolicy(
            api, PolicyConfigMap.parse(settings.policy_configmap), rules, on_error
        )
        polled.start()
        source = polled
    elif file is not None:
        followed = Polled(Reloaded(lambda path: load_policy(str(path), rules), file, on_error))
        followed.start(FILE_INTERVAL)
        source = followed
    else:
        source = _Shipped(load_policy(settings.policy, rules))
    metrics.policy_loaded.set_function(lambda: source.loaded_at)
    metrics.policy_current.set_function(lambda: source.error is None)
    return source


class _Shipped:
    """A shipped policy, which never changes."""

    error: Exception | None = None

    def __init__(self, policy: Policy) -> None:
        self.loaded_at = time.time()
        self._policy = policy

    def __call__(self) -> Policy:
        return self._policy


class PolledPolicy:
    """The policy in a ConfigMap, read every few seconds.

    While the ConfigMap is not valid or cannot be read, the last good policy stays in force. A
    process that has not loaded a policy yet uses ``audit``, which judges and counts but rejects
    nothing: it fails open, like the webhook.
    """

    def __init__(
        self,
        api: JsonRequests,
        place: PolicyConfigMap,
        rules: Rules,
        on_error: Callable[[Exception], None],
    ) -> None:
        self._api, self._place, self._rules, self._on_error = api, place, rules, on_error
        audit = parser.load("audit", rules)
        self._policy = dataclasses.replace(audit, name=f"audit ({place} was never loaded)")
        self._text: str | None = None
        self.loaded_at = 0.0
        self.error: Exception | None = None
        self.refresh()

    def __call__(self) -> Policy:
        return self._policy

    def start(self) -> None:
        """Poll until the process ends."""
        threading.Thread(target=self._poll, name="policy", daemon=True).start()

    def _poll(self) -> None:
        while True:
            time.sleep(POLL_INTERVAL)
            self.refresh()

    def refresh(self) -> None:
        """Read the ConfigMap once. Keep the policy in force if that fails."""
        try:
            text = policy_configmap.read_text(self._api, self._place)
            if self.loaded_at == 0.0 or text != self._text:
                policy = policy_configmap.parse_text(text, self._place, self._rules)
                self._policy, self._text, self.loaded_at = policy, text, time.time()
                log.info("policy loaded", extra={"policy": policy.name, "digest": policy.digest})
            self.error = None
        except Exception as error:
            self._refused(error)

    def _refused(self, error: Exception) -> None:
        """Log and count an error once, not in every round."""
        if str(error) != str(self.error):
            detail = {"file": str(self._place), "error": str(error), "policy": self._policy.name}
            log.warning("policy reload failed; keeping the previous policy", extra=detail)
            self._on_error(error)
        self.error = error
