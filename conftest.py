"""Loads the engine, the bench and the trial as pytest plugins."""

pytest_plugins = ["conformance.pytest_plugin.plugin", "fixtures.bench", "trial.plugin"]
