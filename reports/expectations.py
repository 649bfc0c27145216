"""Says in a sentence what a row, or a clause of a sweep, expects of a call."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

_OUTCOMES: Mapping[str, str] = {
    "success": "success",
    "refused": "refused",
    "open": "any result, because the document leaves the outcome open; kernel and process must go on",
}
# By the key `judged` of an open outcome.
_LEFT: Mapping[str, str] = {
    "either": "success or a refusal, because the documents permit both; what follows is judged",
    "elsewhere": "success or a refusal, which other rows judge; what follows is judged",
}
# By key: what a value says. `{}` is the value.
_FURTHER: Mapping[str, Mapping[str, str]] = {
    "mr": {"as_asked": "the region has the requested values"},
    "moved": {"nothing": "no byte changes"},
    "completion": {"none": "there is no completion", "one": "there is exactly one completion"},
    "rkey": {"": "the key of the window is {}"},
    "opcode": {"as_posted": "the completions name the posted operation"},
    "invalidated": {"as_posted": "the completion of the receive has the invalidated key"},
    "event": {"": "the queue pair gets the event {}"},
    "because": {
        "queue_pair": "the status is that of a refusal because of the queue pair",
        "": "the status is that of a refusal because of the {}",
    },
    "otherwise": {"unreachable": ""},  # what the violation has not done
    "after": {"success": "if the judged call succeeds", "refused": "if the judged call is refused"},
}
_CODES = ("errno", "code")
_ANY = "any"


def sentence(expected: Mapping[str, object]) -> str:
    """Returns what is expected, from the record of an expectation; empty if the record has other keys."""
    texts = {key: _text(value) for key, value in expected.items() if value}
    judged = texts.pop("judged", "")
    outcome = _OUTCOMES.get(texts.pop("outcome", ""), "")
    outcome = _LEFT.get(judged, outcome)
    if not outcome:
        return ""
    parts = [outcome]
    for key, text in texts.items():
        words = _FURTHER.get(key, {})
        if key in _CODES:
            parts[0] += _with(key, text, outcome != _OUTCOMES["refused"])
        elif text not in words and "" not in words:
            return ""
        else:
            parts.append(words.get(text, words.get("", "")).format(text))
    return "; ".join(filter(None, parts))


def sentence_of(text: str) -> str:
    """Returns the sentence of an expectation that a clause has as a text, such as `refused errno EINVAL`; the text itself
    if it is not of this form."""
    outcome, *words = text.split() or [""]
    expected: dict[str, list[str]] = {"outcome": [outcome]}
    key = "errno"
    for word in words:
        if word in (*_FURTHER, *_CODES, "judged"):
            key = word
        elif word != "or":
            expected.setdefault(key, []).append(word.rstrip(","))
    return sentence(expected) or text


def _text(value: object) -> str:
    if isinstance(value, str) or not isinstance(value, Sequence):
        return str(value)
    return " or ".join(map(str, value))


def _with(key: str, text: str, is_open: bool) -> str:
    name = "any errno" if text == _ANY else text.replace("|", " or ")
    what = "" if key == "errno" else "the code "
    return f"; a refusal has {what}{name}" if is_open else f" with {what}{name}"
