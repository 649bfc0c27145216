"""The software under test in the guests of a run, compiled if necessary: the driver's module, the user's source trees.

Not for the guests (guests.py).
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from conformance.run_options import RunOptions
from fixtures.guest.driver import DEFAULT_DRIVER, Driver, driver_for, ensure_module
from fixtures.guest.image import Image
from fixtures.guest.instrumented import instrumented
from fixtures.guest.mending import chosen_changes, ensure_mended
from fixtures.guest.recipe import INSTRUMENTED_STACKS, MENDED_STACKS, Recipe
from fixtures.guest.source_trees import compile_driver, compile_rdma_core
from fixtures.guest.under_test import Builds, DriverModule, UnderTest
from fixtures.system.cache import cache_directory
from targets import builds

Say = Callable[[str], None]


def guest_driver(options: RunOptions) -> Driver:
    return driver_for(options.driver or DEFAULT_DRIVER)


def under_test(options: RunOptions, recipe: Recipe, image: Image, say: Say) -> tuple[UnderTest, dict[str, Any]]:
    """The software under test, and the facts for the header about what was compiled. Raises UserError."""
    module, given = _module(options, recipe, image, say)
    own, sources = _builds(options, recipe, image, say)
    return UnderTest(own, image, recipe, module), {**given, **sources}


def _module(options: RunOptions, recipe: Recipe, image: Image, say: Say) -> tuple[DriverModule | None, dict[str, Any]]:
    """The module of the device if it is not the image's."""
    driver, made_for = guest_driver(options), (recipe, image, cache_directory(), say)
    if options.stack in MENDED_STACKS:
        mended = ensure_mended(chosen_changes(options.without), *made_for)
        return DriverModule(driver.module, lambda: mended.module, mended.laid), mended.given()
    if options.linux:
        compiled = compile_driver(options.linux, driver, *made_for)
        module = DriverModule(driver.module, lambda: compiled.folder / f"{driver.module}.ko")
        return module, {"linux": compiled.source}
    if driver.packaged:
        return None, {}
    return DriverModule(driver.module, lambda: ensure_module(driver, *made_for)), {}


def _builds(options: RunOptions, recipe: Recipe, image: Image, say: Say) -> tuple[Builds, dict[str, Any]]:
    """The user's builds, with the kernel of the stack and the build of an rdma-core source tree."""
    own = builds.builds_from(options)
    if options.stack in INSTRUMENTED_STACKS:
        own = instrumented(own, recipe, image, cache_directory(), say)
    tree = builds.trees_from(options).rdma_core
    if tree is None:
        return own, {}
    compiled = compile_rdma_core(tree, recipe, image, cache_directory(), say)
    return replace(own, rdma_core=compiled.folder), {"rdma_core_tree": compiled.source}
