"""Tests the suite itself: finds which cases detect broken references, altered real calls, and random sequences."""
