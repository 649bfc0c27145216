"""Violations written without knowing the cases: they measure what the suite sees of faults nobody had in mind."""
