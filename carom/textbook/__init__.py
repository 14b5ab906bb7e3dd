"""The textbook's model of bouncing bodies, by plain regression."""

from carom.textbook.fit import fit_textbook
from carom.textbook.model import Contacts, Estimate, TextbookModel, Variant
from carom.textbook.rival import Rival, fit_rival

__all__ = ["Contacts", "Estimate", "Rival", "TextbookModel", "Variant", "fit_rival", "fit_textbook"]
