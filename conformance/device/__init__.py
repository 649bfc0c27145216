"""Drives real devices: libibverbs.py and uverbs.py are the two entries, wire_peer.py and remote_peer.py the peers. Gives
no verdicts."""
