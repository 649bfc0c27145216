"""Personas: references that behave as the drivers of known devices may, each with where its driver shows that.

A persona is data: capabilities that a driver lacks or misdeclares, and permitted behaviours, which are combined. It is
without most of the driver's mistakes: no case may fail on it but those of the rules that the persona names.
"""

from trial.personas.persona import Persona
from trial.personas.table import PERSONAS

__all__ = ["PERSONAS", "Persona"]
