"""What a window grants."""

from reference.objects import REMOTE_ATOMIC, REMOTE_WRITE

_WRITING = REMOTE_WRITE | REMOTE_ATOMIC
