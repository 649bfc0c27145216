"""The suite put on trial: broken references, altered real calls, random sequences, and what the cases say of them."""

from __future__ import annotations
