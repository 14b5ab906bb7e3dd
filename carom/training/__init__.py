"""The paper's recipe: minibatch training over short windows, of one model or an ensemble."""

from carom.training.ensembles import stack_models
from carom.training.loss import Losses
from carom.training.recipe import TrainingResult, train, train_many
from carom.training.settings import TrainingSettings
