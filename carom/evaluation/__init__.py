"""Metrics of forecasts, the oracle, the textbook's model, files of results and tables of them."""

from carom.evaluation.forecasts import HeldOutForecast, forecast_held_out, held_out_error, score_held_out
from carom.evaluation.metrics import ContactScore, contact_score, paper_rmse, position_rmse
from carom.evaluation.oracle import OracleFit, fit_oracle
from carom.textbook import TextbookModel, fit_rival, fit_textbook
