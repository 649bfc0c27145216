"""Generates a verbs.h and bindings for the reference from the descriptions of the verbs, for rule API-01. A real C
compiler compiles this header like an installed header."""

import enum
import tempfile
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType

from conformance.header import Check, check_bindings, check_header
from conformance.older_python import zip
from conformance.verbs import CONSTANTS, ENUMS, STRUCTS, VERBS, Linkage, declaration

_OTHERS = (
    *("ibv_device_attr", "_compat_ibv_port_attr", "ibv_wc", "ibv_send_wr", "ibv_recv_wr"),
    *("ibv_mr_init_attr", "ibv_buf", "ibv_parent_domain_init_attr", "ibv_alloc_dm_attr"),
    *("ibv_dmah", "ibv_dmah_init_attr", "ibv_td", "ibv_td_init_attr"),
)


def own_header() -> str:
    """Returns a verbs.h generated from the descriptions, with macros and inline functions where rdma-core has them."""
    lines = [
        "#include <stdint.h>",
        "#include <stddef.h>",
        "#include <pthread.h>",
        *map("struct {};".format, (*STRUCTS, *_OTHERS)),
    ]
    lines += [f"#define {constant.name} {constant.value}" for constant in CONSTANTS.values()]
    for described in ENUMS.values():
        if described.alias_of:
            original = ENUMS[described.alias_of]
            lines += [f"#define {described.name} {original.name}"]
            lines += [
                f"#define {ours.name} {kernels.name}"
                for ours, kernels in zip(described, original, strict=True)
            ]
        else:
            lines += [
                f"enum {described.name} {{",
                *(f"\t{e.name} = {e.value}," for e in described),
                "};",
            ]
    for struct in STRUCTS.values():
        fields = (f"\t{declaration(field.ctype, field.name)};" for field in struct.fields)
        lines += [f"struct {struct.name} {{", *fields, "};"]
    for verb in VERBS.values():
        inline = verb.linkage is Linkage.INLINE
        lines.append(
            f"static inline {verb.signature} {{ return 0; }}" if inline else f"{verb.signature};",
        )
        if verb.linkage is Linkage.MACRO:
            names = ", ".join(parameter.name for parameter in verb.parameters)
            lines.append(f"#define {verb.name}({names}) ({verb.name})({names})")
    return "\n".join(lines) + "\n"


def own_bindings() -> ModuleType:
    """Returns a module of enumerations, like the module of pyverbs, generated from the descriptions."""
    module = ModuleType("reference_enums")
    for described in ENUMS.values():
        members = {name.name: name.value for name in described if name.value is not None}
        setattr(module, described.name, enum.IntEnum(described.name, members))
    return module


def with_value(bindings: ModuleType, described: str, name: str, number: int) -> ModuleType:
    """Changes the number of one name in the bindings, and returns them."""
    members = {name.name: int(name.value) for name in getattr(bindings, described)}
    setattr(bindings, described, enum.IntEnum(described, {**members, name: number}))
    return bindings


def checks(header: str, bindings: ModuleType) -> Sequence[Check]:
    """Returns the checks of API-01 for the text of a header and a module of bindings."""
    with tempfile.TemporaryDirectory(prefix="rdma-cts-header-") as name:
        folder = Path(name) / "infiniband"
        folder.mkdir()
        (folder / "verbs.h").write_text(header)
        checks = check_header(include_dirs=[Path(name)])
    return [*checks, *check_bindings(bindings)]
