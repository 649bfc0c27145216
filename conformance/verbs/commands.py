"""The kernel's commands that do what verbs do, by the verb: what is called at the uverbs entry.

From enum ib_uverbs_write_cmds and enum uverbs_methods_mr of the kernel. Not for their numbers and layouts
(device/uverbs.py).
"""

from __future__ import annotations

from collections.abc import Mapping

COMMANDS: Mapping[str, str] = {
    "ibv_reg_mr": "REG_MR",
    "ibv_reg_mr_iova": "REG_MR",
    "ibv_dereg_mr": "DEREG_MR",
    "ibv_rereg_mr": "REREG_MR",
    "ibv_advise_mr": "ADVISE_MR",
    "ibv_reg_dmabuf_mr": "REG_DMABUF_MR",
}
