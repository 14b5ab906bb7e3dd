"""Learned mechanics and the baselines."""

from carom.models.base import AbstractModel, Forecast, batched_rollout, forecast, forecast_many, rollout
from carom.models.cd_lagrange_network import CDLagrangeNetwork
from carom.models.contact_signal import AbstractContactSignal, BodyTouch, CandidateContact, NoContact
from carom.models.mechanism import Mechanism, in_scene
from carom.models.resnet import ContactResNet, ResNet
from carom.models.variational_integrator_network import VariationalIntegratorNetwork

MODELS: dict[str, type[AbstractModel]] = {
    "cd-lagrange": CDLagrangeNetwork,
    "vin": VariationalIntegratorNetwork,
    "resnet": ResNet,
    "contact-resnet": ContactResNet,
    "mechanism": Mechanism,
}
"""Models by the name that files and the command line use."""
