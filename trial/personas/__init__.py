"""Personas: references that behave like the drivers of known devices. A persona is data with places in the driver's
source: capabilities that the driver lacks or misdeclares, and behaviours of the driver. Most behaviours are permitted;
only cases of the rules that the persona violates may fail on it."""
