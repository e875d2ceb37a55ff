"""The cluster that look-ups see: API client, informers, in-memory cache, snapshots."""
