"""Tests the suite itself: broken references, altered real calls, random sequences, and what detects them."""
