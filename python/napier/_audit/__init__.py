"""napier.audit: why the log-probabilities of a sampler and of a trainer differ."""
