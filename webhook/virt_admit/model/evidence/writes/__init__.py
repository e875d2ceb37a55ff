"""Writes that the API server refuses, as a webhook or a conversion does not answer."""
