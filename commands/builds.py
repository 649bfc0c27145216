"""The arguments that put one's own builds under test, and what they come to."""

from __future__ import annotations

import argparse
import re
from pathlib import Path

from conformance.errors import UserError
from fixtures.softroce.under_test import Builds

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
_GUEST_ONLY = ("kernel", "modules", "overlay", "guest_env", "keep", "shell")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments themselves."""
    group = parser.add_argument_group("one's own build under test")
    group.add_argument("--kernel", type=Path, metavar="FILE", help="in the guest: this kernel (bzImage or vmlinuz)")
    group.add_argument("--modules", type=Path, metavar="DIR",
                       help="in the guest: its modules, or single ones in place of the image's")  # fmt: skip
    group.add_argument("--rdma-core", type=Path, metavar="DIR", help="a build tree or install prefix of rdma-core")
    group.add_argument("--overlay", type=Path, metavar="DIR", help="files to lay over the guest's root, as they are")
    group.add_argument("--guest-env", action="append", default=[], metavar="NAME=VALUE",
                       help="a variable of the guest's environment")  # fmt: skip
    group.add_argument("--keep", action="store_true", help="keep each guest's drive and a script to start it again")
    group.add_argument("--shell", action="store_true", help="run no case: a shell in the prepared guest")


def builds_from(arguments: argparse.Namespace) -> Builds:
    """What the arguments name."""
    return Builds(arguments.kernel, arguments.modules, arguments.rdma_core, arguments.overlay)


def environment_from(arguments: argparse.Namespace) -> dict[str, str]:
    """What --guest-env says. Raises UserError for what is no assignment."""
    found = {}
    for text in arguments.guest_env:
        name, equals, value = text.partition("=")
        if not equals or not _NAME.match(name):
            raise UserError(f"--guest-env {text!r} is not of the form NAME=VALUE")
        found[name] = value
    return found


def refuse_on_host(arguments: argparse.Namespace) -> None:
    """Raises UserError for what has a meaning in the guest alone: this host's kernel stays as it is."""
    given = [f"--{name.replace('_', '-')}" for name in _GUEST_ONLY if getattr(arguments, name)]
    if given:
        raise UserError(f"{given[0]} is for the guest, not for a device of this host", hint="add --guest")
