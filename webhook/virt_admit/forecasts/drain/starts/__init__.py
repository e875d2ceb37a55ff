"""Why a VM does not start, over everything that is known: its pod, its disks, its devices, the
webhooks that refuse it.
"""
