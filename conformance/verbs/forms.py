"""Derives the form of a verb's arguments in tables from the verb's parameters.

The C type and the enumeration of a parameter determine the form of the argument. The parameter itself has the facts
that these two do not show: a default, a descriptor that stands for a dma-buf, a struct that tables write field by
field. model/vocabulary.py describes the arguments of calls that are not verbs.
"""

from collections.abc import Iterator, Mapping

from conformance.verbs.types import ArgumentSpec, Parameter, Verb

# For each type of pointer, the kind of the object, by the name that tables use.
OBJECTS: Mapping[str, str] = {
    "struct ibv_pd *": "pd",
    "struct ibv_mr *": "mr",
    "struct ibv_mw *": "window",
    "struct ibv_qp *": "qp",
    "struct ibv_buf *": "buffer",
    "struct ibv_dm *": "dm",
    "struct ibv_dmah *": "dmah",
    "struct ibv_td *": "td",
}
# For each kind of object, the name that is used if a table names no object.
_USUAL = {"window": "mw", "buffer": "new_buffer", "dm": "new_dm", "dmah": "new_dmah", "td": "new_td"}
# For each return type, the object that the verb creates: its kind, and its name in later steps.
REGION = ("mr", "new")
_PRODUCTS = {
    "struct ibv_mr *": REGION,
    "struct ibv_mw *": ("window", "new_mw"),
    "struct ibv_pd *": ("pd", "new_pd"),
    "void *": ("buffer", "new_buffer"),
    "struct ibv_dm *": ("dm", "new_dm"),
    "struct ibv_dmah *": ("dmah", "new_dmah"),
    "struct ibv_td *": ("td", "new_td"),
}


def arguments_of(verb: Verb) -> dict[str, ArgumentSpec]:
    """The arguments of a verb in tables, by name, in the order of the prototype."""
    return dict(_arguments((*verb.parameters, *verb.only_in_tables)))


def product_of(verb: Verb) -> tuple[str, str] | None:
    """The kind of the object that a verb creates, and its name in later steps; None if the verb creates no object."""
    return _PRODUCTS.get(verb.returns)


def leaves_objects(verb: Verb) -> bool:
    """Whether a verb leaves every existing region, window and queue pair unchanged. The verb may create a new
    object."""
    return not verb.destroys and not {spec.of for spec in arguments_of(verb).values() if spec.kind == "object"} & {
        "mr",
        "window",
        "qp",
    }


def _arguments(parameters: tuple[Parameter, ...]) -> Iterator[tuple[str, ArgumentSpec]]:
    for each in parameters:
        if each.written_as:
            yield from _arguments(each.written_as)
        elif not each.implied:
            yield each.name, each.table or _spec(each)


def _spec(parameter: Parameter) -> ArgumentSpec:
    default, enum = parameter.default, parameter.enum
    if parameter.ctype in OBJECTS:
        kind = OBJECTS[parameter.ctype]
        return ArgumentSpec("object", kind, default or _USUAL.get(kind, kind), nullable=parameter.nullable)
    if parameter.ctype == "struct ibv_sge *":
        return ArgumentSpec("sges")
    if enum:
        return ArgumentSpec("value" if parameter.ctype.startswith("enum ") else "flags", enum, default)
    return ArgumentSpec("quantity", default=default)
