"""Why the storage of a VM that starts is not there: which object, or which server, keeps it away."""
