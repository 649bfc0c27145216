"""The keys of the files in cases/: the loader accepts only these, and the JSON Schema publishes them.

The arguments of calls and the keys of `then` are in model/vocabulary.py.
"""

from collections.abc import Mapping
from dataclasses import dataclass

NEEDS_OF = "needs of"
# A rule has exactly one of these keys: a quotation of its document, or the reason for not quoting it.
QUOTE, UNQUOTED = "quote", "unquoted"
EVIDENCE, CONDITIONAL = "evidence", "conditional"


@dataclass(frozen=True)
class Key:
    """One key of a mapping."""

    shape: str  # the form of the value (SHAPES in schema.py)
    meaning: str = ""  # shown by editors
    required: bool = False


Keys = Mapping[str, Key]

TABLE: Keys = {
    "verb": Key("subject", "the verb under test, which is also the name of the folder", required=True),
    "about": Key("text", "what the table shows, for people"),
    "cases": Key("count", "the number of cases to which the rows expand", required=True),
    "entries": Key("entries"),
    "also": Key("doors", "other verbs, each with its rule, with which the rows are also run"),
    "given": Key("given"),
    "retired": Key("retired cases", "ids of cases that no longer exist; these ids are never used again"),
    "rows": Key("rows", required=True),
}
ROW: Keys = {
    "id": Key("text", "unique in the table; $name stands for a value of the axis", required=True),
    "about": Key("text"),
    "rules": Key("rule ids", required=True),
    "needs": Key("needs or axis"),
    "each": Key("axes of a row", "the axes"),
    "entries": Key("entries or axis"),
    "also": Key("doors", "other verbs, each with its rule, with which the row is also run"),
    "given": Key("given or axis"),
    "before": Key("steps before"),
    "call": Key("call name", "the judged call, if it is not a call of the verb under test"),
    "when": Key("by call", "the arguments of the judged call"),
    "then": Key("by call", "the required result: an outcome, or a mapping with an outcome and further conditions"),
    "afterwards": Key("steps"),
    "note": Key("text", "a remark for the result"),
    "hazardous": Key("truth", "the case can crash the kernel"),
    "ends_process": Key("truth", "the case can end its own process, but cannot crash the kernel"),
    "tier": Key("tier"),
    "sweep": Key("sweep"),
}
GIVEN: Keys = {
    "memory": Key("memory by name"),
    "dmabufs": Key("dma-bufs by name"),
    "pds": Key("names"),
    "mrs": Key("regions by name"),
    "qps": Key("queue pairs by name"),
    "windows": Key("windows by name"),
    "memlock": Key("quantity"),
}
QUEUE_PAIR: Keys = {
    "type": Key("queue-pair type", required=True),
    "pd": Key("name"),
    "state": Key("queue-pair state"),
    "sq_sig_all": Key("truth"),
    "access": Key("access flags"),
    "poster": Key("poster"),
    "notifies": Key("truth"),
}
WINDOW: Keys = {"type": Key("window type", required=True), "pd": Key("name"), "bound": Key("bind")}
SWEEP: Keys = {
    "axes": Key("axes of a sweep", required=True),
    "where": Key("text", "the condition that selects points of the product"),
    "points": Key("points", "the number of points: a number, or a product with the sizes of derived axes", True),
    "expect": Key("clauses", required=True),
    "tries": Key("truth", "all points repeat one experiment: chance decides which points show a violation"),
}
CLAUSE: Keys = {
    "if": Key("text", "the points of the expectation; without `if`, all remaining points"),
    "then": Key("outcome of a point", "the required result at these points"),
    "rule": Key("rule id", "the rule that requires this result"),
    "needs": Key("some needs", "the capabilities that the points need"),
    NEEDS_OF: Key("string", "an axis of access flags: a flag needs the capability in its description"),
}
RULES_FILE: Keys = {
    "verb": Key("subject", required=True),
    "rules": Key("rules", required=True),
    "predicates": Key("predicates", "conditions by name, for the `if` of sweeps"),
    "retired": Key("retired rules"),
}
RULE: Keys = {
    "id": Key("rule id", "permanent; never used for another rule", required=True),
    "short": Key("text", "the subject of the rule in a few words of the field, for titles of defects"),
    "statement": Key("text", "the documented statement in our own words", required=True),
    "document": Key("text", required=True),
    "section": Key("text", required=True),
    "level": Key("level", required=True),
    "layer": Key("layer", "the layer that enforces the rule", required=True),
    "needs": Key("needs", required=True),
    "since": Key("text", "the first rdma-core whose document has the statement, in quotes", required=True),
    "failure_means": Key("text", "the consequence of a violation for applications", required=True),
    QUOTE: Key("text", "at most one sentence of the document, word for word; […] for words left out"),
    UNQUOTED: Key("text", "why the document is not quoted, in our own words"),
    EVIDENCE: Key("texts", "the evidence that suffices to verify the rule, such as: refused RDMA_WRITE at uverbs"),
    CONDITIONAL: Key("text", "the situation that the rule is about, if some stacks do not have it"),
}


def required(keys: Keys) -> tuple[str, ...]:
    return tuple(name for name, key in keys.items() if key.required)
