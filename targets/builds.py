"""The software under test in the guests of a run: reads the options that name builds and packages, and compiles the
driver's module and the user's source trees if necessary. For a run on a host, it refuses the options of the guest.
guests.py prepares the guests."""

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

from conformance.errors import UserError
from conformance.run_options import GUEST, OPTIONS, RunOptions
from fixtures.guest.added import PACKAGE_NAME
from fixtures.guest.build import Progress
from fixtures.guest.driver import DEFAULT_DRIVER, Driver, driver_for, ensure_module
from fixtures.guest.image import Image
from fixtures.guest.recipe import INSTRUMENTED_STACKS, MENDED_STACKS, OWN_STACKS, Recipe
from fixtures.guest.source_trees import check_linux, compile_driver, compile_rdma_core, is_rdma_core
from fixtures.guest.under_test import Builds, DriverModule, UnderTest, instrumented
from fixtures.system.cache import cache_directory

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")


def builds_from(options: RunOptions) -> Builds:
    """Returns the kernel, modules, rdma-core and overlay that the options name, without parts that must be compiled."""
    rdma_core = None if rdma_core_tree(options) else options.rdma_core
    return Builds(options.kernel, options.modules, rdma_core, options.overlay)


def rdma_core_tree(options: RunOptions) -> Path | None:
    """Returns the source tree that --rdma-core names; None if it names a build."""
    return options.rdma_core if options.rdma_core and is_rdma_core(options.rdma_core) else None


def check(options: RunOptions) -> None:
    """Raises UserError for mistakes in the options of the guest, without using an image."""
    refuse_conflicts(options)
    if options.linux:
        check_linux(options.linux, guest_driver(options))
    builds_from(options).check()


def refuse_conflicts(options: RunOptions) -> None:
    """Raises UserError for mistakes in the options of the guest, without reading the builds."""
    environment_from(options)
    tools_from(options)
    refuse_beside_own_stack(options)
    for name in ("kernel", "modules"):
        if options.linux and getattr(options, name):
            raise UserError(
                f"--linux and {OPTIONS[name].flag} exclude each other: both provide a driver"
            )


def environment_from(options: RunOptions) -> dict[str, str]:
    """Returns the variables that --guest-env sets. Raises UserError for a value that is not an assignment."""
    found = {}
    for text in options.guest_env:
        name, equals, value = text.partition("=")
        if not equals or not _NAME.match(name):
            raise UserError(f"--guest-env {text!r} is not of the form NAME=VALUE")
        if not value.isprintable():
            raise UserError(f"--guest-env {text!r}: a value is one line of printable characters")
        found[name] = value
    return found


def tools_from(options: RunOptions) -> tuple[str, ...]:
    """Returns the Debian packages of --tools, without duplicates. Raises UserError for an invalid name."""
    names = tuple(dict.fromkeys(name for text in options.tools for name in text.split(",")))
    for name in names:
        if not PACKAGE_NAME.fullmatch(name):
            raise UserError(f"--tools: {name!r} is not the name of a Debian package")
    return names


def refuse_beside_own_stack(options: RunOptions) -> None:
    """Raises UserError for options that replace a part of one of the project's own stacks, and for --without if the
    stack is not mended."""
    mended = options.stack in MENDED_STACKS
    if options.without and not mended:
        raise UserError(f"--without is for a mended stack: --stack {' or '.join(MENDED_STACKS)}")
    brings = "its own driver and provider" if mended else "its own kernel"
    for name in ("kernel", "modules", "linux", *(("rdma_core",) if mended else ())):
        if options.stack in OWN_STACKS and getattr(options, name):
            both = f"{OPTIONS[name].flag} and --stack {options.stack}"
            raise UserError(f"{both} exclude each other: that stack has {brings}")
    if mended and options.driver not in (None, DEFAULT_DRIVER):
        raise UserError(
            f"--stack {options.stack} is for the driver {DEFAULT_DRIVER}, not for {options.driver}"
        )


def refuse_on_host(options: RunOptions) -> None:
    """Raises UserError for options that have an effect only in the guest."""
    for name, option in OPTIONS.items():
        if option.only_on == GUEST and getattr(options, name) != option.default:
            raise only_for_guest(option.flag, options)


def refuse_over_ssh(options: RunOptions) -> None:
    """Raises UserError for options that exclude --host."""
    if options.guest:
        raise UserError("--host and --guest exclude each other")
    refuse_on_host(options)
    if options.isolate:
        raise UserError(
            "--isolate is for a device of this host: a process on another host cannot change files of this host"
        )
    if options.rdma_core:
        raise UserError(
            "--rdma-core is not for a host that is reached over ssh",
            hint="install that build on the host",
        )


def refuse_without_host(options: RunOptions) -> None:
    """Raises UserError for options that have a meaning only with --host."""
    for name in ("console", "power_cycle", "return_within"):
        if getattr(options, name) != OPTIONS[name].default:
            raise UserError(
                f"{OPTIONS[name].flag} is for a host that is reached over ssh",
                hint="add --host HOST",
            )


def refuse_in_guest(options: RunOptions) -> None:
    """Raises UserError for options of a device of this host, such as the port. --hazardous is allowed: the guest always
    runs the hazardous cases."""
    for name in ("port", "gid_index", "peer", "shared", "isolate"):
        option = OPTIONS[name]
        if getattr(options, name) != option.default:
            raise UserError(
                f"{option.flag} is for a device of this host, not for the guest",
                hint="give --device NAME",
            )


def only_for_guest(flag: str, options: RunOptions) -> UserError:
    """Returns the error for an option of the guest that was combined with a device of this host."""
    named = " and ".join(
        OPTIONS[name].flag for name in ("host", "device") if getattr(options, name)
    )
    hint = f"give --guest in place of {named}" if named else "add --guest"
    return UserError(f"{flag} is for the guest, not for a device of this host", hint=hint)


def guest_driver(options: RunOptions) -> Driver:
    return driver_for(options.driver or DEFAULT_DRIVER)


def under_test(
    options: RunOptions, recipe: Recipe, image: Image, say: Progress
) -> tuple[UnderTest, dict[str, Any]]:
    """Returns the software under test, and the facts about compiled sources for the header. Raises UserError."""
    module, given = _module(options, recipe, image, say)
    own, sources = _builds(options, recipe, image, say)
    return UnderTest(own, image, recipe, module), {**given, **sources}


def _module(
    options: RunOptions, recipe: Recipe, image: Image, say: Progress
) -> tuple[DriverModule | None, dict[str, Any]]:
    """Returns the module of the device's driver (None if the image has it), and facts for the header."""
    driver, made_for = guest_driver(options), (recipe, image, cache_directory(), say)
    if options.stack in MENDED_STACKS:
        from fixtures.guest.mending import (
            chosen_changes,
            ensure_mended,
        )  # imported late: other stacks do not need it

        mended = ensure_mended(chosen_changes(options.without), *made_for)
        return DriverModule(driver.module, lambda: mended.module, mended.laid), mended.given()
    if options.linux:
        compiled = compile_driver(options.linux, driver, *made_for)
        module = DriverModule(driver.module, lambda: compiled.folder / f"{driver.module}.ko")
        return module, {"linux": compiled.source}
    if driver.packaged:
        return None, {}
    return DriverModule(driver.module, lambda: ensure_module(driver, *made_for)), {}


def _builds(
    options: RunOptions, recipe: Recipe, image: Image, say: Progress
) -> tuple[Builds, dict[str, Any]]:
    """Returns the builds under test (also compiles a tree of rdma-core), and facts for the header."""
    own = builds_from(options)
    if options.stack in INSTRUMENTED_STACKS:
        own = instrumented(own, recipe, image, cache_directory(), say)
    if (tree := rdma_core_tree(options)) is None:
        return own, {}
    compiled = compile_rdma_core(tree, recipe, image, cache_directory(), say)
    return replace(own, rdma_core=compiled.folder), {"rdma_core_tree": compiled.source}
