"""Loads the engine, the bench and, if it is installed, the trial as pytest plugins."""

from importlib.util import find_spec

# The trial can be a package of its own. Only random sequences, of the exhaustive tier, need it.
_TRIAL = ["trial.plugin"] if find_spec("trial") else []

pytest_plugins = ["conformance.pytest_plugin.plugin", "fixtures.bench", *_TRIAL]
