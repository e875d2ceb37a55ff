"""The webhook process: gunicorn, HTTP views, certificates, metrics and logs."""
