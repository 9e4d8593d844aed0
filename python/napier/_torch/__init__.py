"""The parts of napier.torch."""
