"""One persona: the capabilities that a driver does not have, and its behaviours. The persona makes a simulated device
(see reference/) that behaves as this driver does."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from reference.device import Device
from reference.stack import Stack
from trial.mutant_table import MASKS
from trial.personas.behaviours import BEHAVIOURS
from trial.personas.sysfs_port import ETHERNET, SysfsPort

_REACHED = ("swap", "persistent_memory", "pci_bar")
# Capabilities that no driver on Linux has, because ib_uverbs_reg_mr in drivers/infiniband/core/uverbs_cmd.c refuses
# them.
_NOT_ON_LINUX = ("iova_page_offset",)
# The rules that every driver on Linux violates for that reason, each with its place in the source.
_VIOLATED_ON_LINUX = {"IOVA-02a": "drivers/infiniband/core/uverbs_cmd.c: ib_uverbs_reg_mr"}
_RULE_OF_CLAIM = {"mw_type_1": "CAP-01", "mw_type_2": "CAP-02"}
_RAW = "raw_registration"


@dataclass(frozen=True)
class Persona:
    """A driver that the suite may meet. Each value of the mappings is a place in the driver's source: `file: function`.

    `lacks` are the capabilities that the driver does not have. `claims` are capabilities that it does not have but
    declares. `hides` are capabilities that it has but does not declare. `behaves` has the names of behaviours.
    `mistakes` has the rules that some of the behaviours violate. `raw_registration` is the place where the driver
    refuses a registration command that lacks its provider's own data; it is empty if the driver accepts such a command.
    `port` is the device's port as sysfs shows it before the device is opened.
    """

    name: str
    lacks: Mapping[str, str]
    behaves: Mapping[str, str]
    claims: Mapping[str, str] = field(default_factory=dict)
    hides: Mapping[str, str] = field(default_factory=dict)
    mistakes: Mapping[str, str] = field(default_factory=dict)
    raw_registration: str = ""
    port: SysfsPort = ETHERNET

    @property
    def violates(self) -> Mapping[str, str]:
        """The rules that the driver really violates, each with its place in the source; their cases fail."""
        claimed = {_RULE_OF_CLAIM[name]: where for name, where in self.claims.items()}
        return {**_VIOLATED_ON_LINUX, **claimed, **self.mistakes}

    @property
    def masked(self) -> frozenset[str]:
        """The names of the violations that its behaviours mask."""
        return frozenset(name for each in self.behaves for name in getattr(BEHAVIOURS[each], MASKS))

    @property
    def stack(self) -> Stack:
        """The capabilities and preconditions of its device."""
        reaches = _REACHED if self.raw_registration else (*_REACHED, _RAW)
        lacks = frozenset((*self.lacks, *_NOT_ON_LINUX))
        return Stack(self.name, lacks, frozenset(reaches), frozenset(self.claims), frozenset(self.hides))

    def kind(self, base: type[Device] = Device) -> type[Device]:
        """Returns the reference with these behaviours; the methods of `base`, a reference with a violation, are called
        first."""
        own = [BEHAVIOURS[name] for name in self.behaves]
        kinds = (base, *own) if base is not Device else (*own,)
        return type(f"{base.__name__}On{self.name}", kinds, {"setup": _set_up_all})


def _set_up_all(device: Device) -> None:
    """Calls the `setup` of each combined class, because no `setup` calls another."""
    for kind in reversed(type(device).__mro__):
        own = vars(kind).get("setup")
        if own is not None and own is not _set_up_all:
            own(device)
