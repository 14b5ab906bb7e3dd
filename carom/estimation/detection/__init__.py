"""Detection of impacts in recordings, and inference of scenes from recordings."""

from carom.estimation.detection.detect import Detected, detect_impacts
from carom.estimation.detection.impacts import Impacts

__all__ = ["Detected", "Impacts", "detect_impacts"]
