"""Alterations of real calls, between the suite and libibverbs, each of which breaks one rule on the real stack.

Only rules that Soft-RoCE keeps can be broken there. What a device that breaks the rule would allow is allowed by
requesting more from the real device; what it would refuse is refused without calling the real device.
"""

from __future__ import annotations

import sys

from trial.violation import Violation, modules_of, violations_in

ALTERATIONS: tuple[Violation, ...] = tuple(violations_in(modules_of(sys.modules[__name__])))
