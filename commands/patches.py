"""`rdma-cts patches`: writes the changes of the mended stack, which fix defects of Soft-RoCE, as patch series for
`git am` on source trees."""

import argparse
import re
import sys
from collections.abc import Iterator
from pathlib import Path

from commands.cli.run_arguments import add, add_cases_argument, suite_from
from commands.cli.streams import remark, show, show_line
from conformance.errors import UserError
from fixtures.guest.changes import read_changes
from reports.digest import read
from reports.patches.message import letters_of, seen_in
from reports.patches.series import NOBODY, PROJECTS, Tree, part_of, read_tree, write_series
from reports.reproducers.of_runs import basis_of, unknown_device

_SIGNED = re.compile(r"[^<>\n]*[^<>\s] <[^<>@\s]+@[^<>@\s]+>\Z")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    for name, project in PROJECTS.items():
        parser.add_argument(
            f"--{name}",
            type=Path,
            metavar="TREE",
            help=f"a source tree of {project.title}; the tree is not changed",
        )
    add(parser, "--out DIR", "where to create a directory for each tree", required=True)
    add(parser, "--features", "also write a second series, which adds missing features")
    add(parser, "--signoff NAME <MAIL>", "who signs off the patches, and sends them", default="")
    add(parser, "--run RUN", "a run whose observations and oopses are quoted")
    add_cases_argument(parser)


def execute(arguments: argparse.Namespace) -> int:
    """Writes the series, prints a line for each change that does not fit a tree, and returns exit status 0."""
    signed = arguments.signoff
    if signed and not (signed.isprintable() and _SIGNED.match(signed)):
        raise UserError(f'--signoff {arguments.signoff!r}: "Name <mail@host>" is expected')
    trees = list(_trees(arguments))
    suite = suite_from(arguments)
    if arguments.run:
        run = read(arguments.run)
    else:
        run = None
    if arguments.run:
        basis = basis_of(arguments.run)
    else:
        basis = unknown_device()
    changes = read_changes()
    written = 0
    for tree in trees:
        show(tree.remarks, sys.stderr)
        mine = part_of(tree, changes)
        letters = letters_of(tree, mine, suite, basis, arguments.signoff, seen_in(mine, run))
        defects = [patch for patch in mine if not patch.feature]
        features = [patch for patch in mine if patch.feature]
        for before, letters_wanted, folder in (
            ((), defects, ""),
            (defects, features if arguments.features else [], "-features"),
        ):
            if not letters_wanted:
                continue
            out = arguments.out / f"{tree.name}{folder}"
            series = write_series(
                tree, before, letters_wanted, letters, arguments.signoff or NOBODY, out
            )
            written += len(series.written)
            for name, reason in series.misfits.items():
                remark(f"{tree.path}: the change {name} does not fit and is left out: {reason}")
            written_here = len(series.written)
            show_line(f"{out}: {written_here} patch{'' if written_here == 1 else 'es'}")
    if not written:
        raise UserError("no change fits", hint="see the lines above")
    return 0


def _trees(arguments: argparse.Namespace) -> Iterator[Tree]:
    trees = {
        name: path for name in PROJECTS if (path := getattr(arguments, name.replace("-", "_")))
    }
    if not trees:
        raise UserError(
            "no tree is given", hint="--linux TREE, --rdma-core TREE or --libibverbs TREE"
        )
    for name, path in trees.items():
        yield read_tree(name, path)
