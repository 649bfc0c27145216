"""Tests the suite itself: finds the cases that detect broken references and altered real calls; makes random
sequences."""
