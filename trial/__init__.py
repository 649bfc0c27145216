"""Tests the suite itself: broken references, altered real calls, and random sequences, and which cases detect them."""
