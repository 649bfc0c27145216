"""Loads the engine and the fixtures as pytest plugins."""

pytest_plugins = ["conformance.pytest_plugin.plugin", "fixtures.bench", "trial.plugin"]
