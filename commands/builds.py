"""Reads the options that put the user's own builds under test, and rejects those that apply to the guest only."""

from __future__ import annotations

import re

from conformance.errors import UserError
from conformance.run_options import GUEST, OPTIONS, RunOptions
from fixtures.softroce.under_test import Builds

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")


def builds_from(options: RunOptions) -> Builds:
    """The kernel, modules, rdma-core and overlay that the options name."""
    return Builds(options.kernel, options.modules, options.rdma_core, options.overlay)


def environment_from(options: RunOptions) -> dict[str, str]:
    """The variables that --guest-env sets. Raises UserError for anything that is not an assignment."""
    found = {}
    for text in options.guest_env:
        name, equals, value = text.partition("=")
        if not equals or not _NAME.match(name):
            raise UserError(f"--guest-env {text!r} is not of the form NAME=VALUE")
        if not value.isprintable():
            raise UserError(f"--guest-env {text!r}: a value is one line of printable characters")
        found[name] = value
    return found


def refuse_on_host(options: RunOptions) -> None:
    """Raises UserError for an option that has an effect in the guest only."""
    for name, option in OPTIONS.items():
        if option.only_on == GUEST and getattr(options, name) != option.default:
            raise only_for_guest(option.flag)


def refuse_in_guest(options: RunOptions) -> None:
    """Raises UserError for an option that names something of a host's device, of which the guest has only one.

    --hazardous is none of these: the guest always runs what it adds.
    """
    for name in ("port", "gid_index", "peer", "shared"):
        option = OPTIONS[name]
        if getattr(options, name) != option.default:
            raise UserError(f"{option.flag} is for a device of this host, not for the guest", hint="give --device NAME")


def only_for_guest(flag: str) -> UserError:
    """The error for an option of the guest that was combined with a device of this host."""
    return UserError(f"{flag} is for the guest, not for a device of this host", hint="add --guest")
