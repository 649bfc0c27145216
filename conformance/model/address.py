"""Recognizes the addresses of web pages."""

from urllib.parse import urlsplit


def is_address(text: str) -> bool:
    """Whether the text is a URL with http or https."""
    try:
        parts = urlsplit(text)
    except ValueError:
        return False
    return parts.scheme in ("http", "https") and bool(parts.netloc)
