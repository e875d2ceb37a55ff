"""KubeVirt."""
