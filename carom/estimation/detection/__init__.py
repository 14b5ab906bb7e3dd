"""Impact detection: a recording and a scene in, impacts with their log-odds out."""

from carom.estimation.detection.detect import Detected, detect_impacts
from carom.estimation.detection.impacts import Impacts

__all__ = ["Detected", "Impacts", "detect_impacts"]
