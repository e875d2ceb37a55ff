"""CDI: the configuration of the Containerized Data Importer."""
