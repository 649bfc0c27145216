"""Personas: references that behave as drivers of known devices may, with references to the drivers' sources. A persona
is data: capabilities that a driver lacks or misdeclares, and a combination of permitted behaviours. It has only some of
the driver's mistakes. Only cases of the rules that the persona names may fail on it."""
