"""The textbook's model of bouncing bodies, by plain regression."""

from carom.evaluation.textbook.fit import fit_textbook
from carom.evaluation.textbook.model import Estimate, TextbookModel, Variant
from carom.evaluation.textbook.rival import Rival, fit_rival

__all__ = ["Estimate", "Rival", "TextbookModel", "Variant", "fit_rival", "fit_textbook"]
