"""virt-admit: admission decisions for KubeVirt and the machines under it."""

__version__ = "0.1.0"
