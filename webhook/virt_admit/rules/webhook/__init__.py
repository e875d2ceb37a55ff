"""Webhook configurations and API services of other products."""
