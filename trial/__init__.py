"""Tests the suite itself: finds the cases that detect mutants of the reference, of drivers and of real calls."""
