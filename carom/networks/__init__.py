"""Small dense networks: a scalar potential with its gradient in closed form, and multilayer perceptrons."""

from carom.networks.perceptron import Perceptron, for_training, perceptron
from carom.networks.potential import Activation, PotentialNetwork, potential_network
