"""The causes: each module has candidates(case), states that would explain an engine's numbers, or inspect(case), what is seen without
a state."""

from . import beginning, experts, fill, filters, penalties, positions, precision, repeats, shift, temperature, weights

STATES = (shift, temperature, filters, penalties, precision, beginning, weights, positions)
INSPECTIONS = (positions, penalties)

__all__ = ["INSPECTIONS", "STATES", "experts", "fill", "precision", "repeats"]
