"""Publish the CA bundle: keep the ``caBundle`` of the webhook configurations up to date."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping

from virt_admit_certs.certificates import Certificate
from virt_admit_certs.rotation_events import RotationEvents
from virt_admit_certs.rotation_status import ReadinessCondition
from virt_admit_certs.state import ordered, parse_bundle
from virt_admit_certs.webhook_configurations import WebhookConfiguration, WebhookConfigurations

log = logging.getLogger(__name__)


class BundlePublisher:
    """Gives every webhook configuration that exists the bundle.

    Without configurations there is nothing to do.
    """

    def __init__(
        self, configurations: WebhookConfigurations | None, events: RotationEvents
    ) -> None:
        self._configurations = configurations
        self._events = events
        self._published_once = False
        self.injected: Mapping[str, bool] = {}
        """By kind of configuration: whether all its entries carry the bundle."""

    @property
    def needs_requests(self) -> bool:
        """Whether publishing sends requests to the API server."""
        return self._configurations is not None

    def publish(self, bundle_for: Callable[[tuple[Certificate, ...]], bytes]) -> bool:
        """Give every configuration the bundle, and return whether all of them have it now.

        Errors are counted, not raised: without the right to patch, serving certs must still be
        renewed.

        Args:
            bundle_for: returns the bundle for the CA certificates that the configurations carry
                now.
        """
        if self._configurations is None:
            return True
        try:
            self.injected = _inject(self._configurations, bundle_for)
        except Exception as error:
            self._events.error(error)
            self.injected = dict.fromkeys(self.injected, False)
            return False
        injected = all(self.injected.values())
        self._published_once = self._published_once or injected
        return injected

    def published(self) -> tuple[Certificate, ...]:
        """Return the CA certificates that the configurations carry;
        empty if they cannot be read.
        """
        if self._configurations is None:
            return ()
        try:
            return _authorities(self._configurations.read())
        except Exception as error:
            self._events.error(error)
            return ()

    def readiness(self, *, waited: bool) -> ReadinessCondition:
        """Return whether API servers can trust this process.

        After a while it counts as ready all the same.
        """
        if self._configurations is None or self._published_once:
            return ReadinessCondition("bundle", True, "published")
        return ReadinessCondition(
            "bundle", waited, "not published yet" + ", waited long enough" * waited
        )


def _inject(
    configurations: WebhookConfigurations, bundle_for: Callable[[tuple[Certificate, ...]], bytes]
) -> dict[str, bool]:
    found = configurations.read()
    bundle = bundle_for(_authorities(found))
    injected = {}
    for configuration in found:
        if not configuration.carries(bundle):
            configuration = configurations.inject(configuration, bundle)  # noqa: PLW2901
            log.info(
                "bundle published",
                extra={"kind": configuration.kind, "carried": configuration.carries(bundle)},
            )
        injected[configuration.kind] = configuration.carries(bundle)
    return injected


def _authorities(configurations: Iterable[WebhookConfiguration]) -> tuple[Certificate, ...]:
    """Return the CA certificates that configurations carry. What cannot be parsed is left out."""
    bundles = {entry.bundle for configuration in configurations for entry in configuration.entries}
    return ordered(cert for bundle in bundles for cert in parse_bundle(bundle, []))
