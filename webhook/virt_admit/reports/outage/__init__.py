"""The reports of ``virt-admit outage``."""
