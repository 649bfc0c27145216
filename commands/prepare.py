"""`rdma-cts prepare`: builds the guest's image and template, so that later runs start at once and need no network. A
template is a guest that was booted and then frozen. A run resumes the template instead of booting a guest."""

import argparse
import functools
import tempfile
from pathlib import Path

from commands.cli.run_arguments import add, add_options, options_from
from conformance.errors import PROGRAM, UserError
from conformance.results.folder import tidied
from fixtures.guest.template import templates_wanted
from fixtures.targets.guests import Guests

# The options on which the image and the template depend.
_OPTIONS = "stack arch driver kernel modules rdma_core sanitize overlay guest_env tools strict_packages without".split()


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.usage = f"{parser.prog} [OPTION ...]"
    add_options(parser, _OPTIONS)
    add(parser, "--yes", "install what is needed without asking")


def execute(arguments: argparse.Namespace) -> int:
    """Builds the image and the template if they do not exist, resumes a guest as a check, and returns exit status 0.
    Raises UserError (status 3) if the image or the template cannot be built."""
    options = options_from(arguments)
    with tempfile.TemporaryDirectory(prefix="rdma-cts-") as name, tidied(Path(name)):
        guests = Guests(options, Path(name), functools.partial(print, flush=True), arguments.yes)
        if not templates_wanted():
            print(
                f"the image of {guests.stack} is ready; runs boot their guests, because RDMA_CTS_TEMPLATES is off",
            )
            return 0
        try:
            guests.run_again(()).close()
        except UserError as error:
            if error.status == 2:  # a mistake of the user, not of the template
                raise
            raise UserError(
                f"the image of {guests.stack} is ready, but its template is not; runs boot their guests",
                hint="see the output before this message",
                status=3,
            ) from error
    print(f"image and template of {guests.stack} are ready; {PROGRAM} run --guest uses them")
    return 0
