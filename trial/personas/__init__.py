"""Personas: references that behave like the drivers of known devices. A persona is a list of facts, each with its
place in the driver's source: capabilities that the driver lacks or misdeclares, and behaviours. Most behaviours are
permitted; only cases of the rules that the persona violates may fail on it."""
