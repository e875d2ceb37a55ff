"""What a drain needs of KubeVirt's own components and of webhooks, and whether it is there."""
