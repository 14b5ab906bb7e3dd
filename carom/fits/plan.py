"""A fit of one recording: what can be refused before it begins, the fit, and its directory."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import jax
import numpy as np

from carom.data import Recording, Split, SystemFile, hold_out
from carom.errors import InputError, SettingsError
from carom.estimation.problem import require_scene
from carom.estimation.result import Fit
from carom.estimation.settings import AUTO, Settings
from carom.estimation.stages import fit_recording, require_fittable
from carom.estimation.terms import choose_terms
from carom.estimation.trimming import trim
from carom.fits.fit_directory import UnfinishedFit, new_fit_directory, save_fit
from carom.fits.options import FitOptions, PaperSettings
from carom.forces import AbstractForce
from carom.mechanics import named_parts
from carom.models import MODELS, AbstractModel
from carom.training import TrainingResult, stack_models, train_many
from carom.training.windows import recorded_windows

Progress = Callable[[float], None] | None


@dataclass(frozen=True)
class FitPlan:
    """A fit that options, recording and system file allow; `plan_fit` makes it.

    Arguments:
        path: the file of the recording.
        recording: its content, or the part around its impacts if only that is used.
        split: the same, divided into training data and held-out data.
        names: the position columns, for figures.
        options: the request.
        settings: those of the recipe.
        learn: what the system file wants learned, for models of the paper's recipe.
        notes: sentences about data that are not used.
    """

    path: Path
    recording: Recording
    split: Split
    names: tuple[str, ...]
    options: FitOptions
    settings: Settings | PaperSettings
    learn: tuple[str, ...]
    notes: tuple[str, ...] = ()

    @property
    def training(self) -> Recording:
        """The training data."""
        return self.split.training

    def require_possible(self) -> None:
        """Refuse what the recipe would refuse of this recording at its start."""
        if isinstance(self.settings, Settings):
            require_fittable([self.training], self.settings)
        else:
            recorded_windows(self._untrained(self.settings, self.options.seed), self.training, self.settings)

    def run(
        self, out: Path, *, overwrite: bool = False, keep_failed: bool = False, progress: Progress = None
    ) -> Fit | TrainingResult:
        """Fit, and write the fit directory; the same call continues after the process was killed.

        Arguments:
            out: the fit directory.
            overwrite: replace its content.
            keep_failed: write a fit that failed as well, to see why, instead of raising an error.
            progress: called with the fraction of the work done.
        """
        with new_fit_directory(out, overwrite=overwrite) as new:
            if isinstance(self.settings, Settings):
                result = self._estimate(self.settings, new, progress, keep_failed)
                ensemble, seed = None, self.options.seed
            else:
                result, ensemble, seed = self._train(self.settings, new, progress)
            save_fit(
                result,
                new.files,
                recording=self.recording,
                recording_path=self.path,
                seed=seed,
                hold_out=self.options.hold_out,
                ensemble=ensemble,
                names=self.names,
            )
        return result

    def _estimate(self, settings: Settings, new: UnfinishedFit, progress: Progress, keep_failed: bool) -> Fit:
        result = fit_recording(
            self.training, settings, seed=self.options.seed, progress=progress, checkpoints=new.checkpoints
        )
        if progress is not None:
            progress(1.0)  # the estimate of what is left is cautious
        # A fit without numbers cannot be written.
        finite = bool(np.isfinite(result.log_likelihood))
        if result.failed and not (keep_failed and finite):
            new.discard_checkpoints()
            reason = result.diagnostics.messages[0] if finite else "The fit failed."
            remedy = "Check the candidate contacts in the system file, or try another `seed`."
            raise SettingsError(f"{self.path}: {reason} {remedy}")
        return result

    def _train(
        self, settings: PaperSettings, new: UnfinishedFit, progress: Progress
    ) -> tuple[TrainingResult, AbstractModel | None, int]:
        """The first fit that succeeds, the ensemble of all that do where one was requested, and its seed."""
        seeds = range(self.options.seed, self.options.seed + settings.ensemble)
        results = train_many(
            [self._untrained(settings, seed) for seed in seeds],
            [self.training],
            settings,
            seeds=seeds,
            memory=None if settings.memory is None else 1e9 * settings.memory,
            progress=progress,
            checkpoints=new.checkpoints,
        )
        # Some members of an ensemble may diverge; the others are still an ensemble.
        succeeded = [number for number, one in enumerate(results) if not one.failed]
        if not succeeded:
            new.discard_checkpoints()
            raise SettingsError("Training diverged; choose a smaller `learning_rate`.")
        models = [results[number].model for number in succeeded]
        first = succeeded[0]
        return results[first], stack_models(models) if settings.ensemble > 1 else None, seeds[first]

    def _untrained(self, settings: PaperSettings, seed: int) -> AbstractModel:
        return paper_model(settings, self.recording, self.learn, seed=seed)


def plan_fit(options: FitOptions, path: Path, recording: Recording, description: SystemFile) -> FitPlan:
    """Check options against a recording and its system file.

    Arguments:
        options: the request.
        path: the file of the recording.
        recording: its content.
        description: the content of its system file.
    """
    chosen = options.settings
    notes: tuple[str, ...] = ()
    if isinstance(chosen, PaperSettings):
        settings = chosen
        if chosen.model != "cd-lagrange" and {"masses", "damping"} & {*description.learn}:
            raise InputError(
                f"{path}: its system file has masses or damping under [learn], which only the model "
                "cd-lagrange learns; take that model, or leave them out there."
            )
    else:
        most = (max(len(run) for run in recording.runs) - 1) // 4
        # Beyond that, a run with one impact would keep less than half of its samples.
        if chosen.mask is not None and chosen.mask > most:
            raise SettingsError(
                f"`mask` must lie between 0 and {most} for this recording, not {chosen.mask}."
            )
        settings = recipe_settings(chosen, path, description.learn, options.learn)
        if options.around is not None:
            recording, impacts = trim(recording, options.around, mask=chosen.mask or 0)
            if several := sum(count > 1 for count in impacts):
                notes = (
                    f"{several} of {len(impacts)} runs have more than one impact; only the data around the "
                    "clearest of each are used.",
                )
    split = hold_out(recording, options.hold_out)
    # After the split: a recording of two runs may leave one for training.
    if isinstance(settings, Settings):
        _require_learnable(options.learn, split.training, settings)
        if AUTO in settings.learn:
            require_scene([split.training], settings)
            settings = choose_terms(split.training, settings)
            potential = "no" if settings.potential == "none" else f"a {settings.potential}"
            terms = f"{', '.join(settings.learn)}; {potential} learned potential"
            notes += (f"Chosen by regression on runs left out: {terms}.",)
    names = description.columns.position if description.columns else ()
    return FitPlan(path, recording, split, names, options, settings, description.learn, notes)


def recipe_settings(
    settings: Settings, path: Path, stated: Sequence[str], chosen: Sequence[str] | None = None
) -> Settings:
    """Settings with the parameters to estimate: those chosen, else those that the system file states.

    Arguments:
        settings: the rest.
        path: the file of the recording, for error messages.
        stated: `[learn] parameters` of its system file.
        chosen: what takes their place.
    """
    try:
        return replace(settings, learn=tuple(stated if chosen is None else chosen))
    except SettingsError as error:
        if chosen is not None:
            raise
        reason = str(error).replace("`learn`", "[learn] parameters")
        raise InputError(f"{path}: in its system file, {reason}") from None


def _require_learnable(chosen: Sequence[str] | None, recording: Recording, settings: Settings) -> None:
    """Refuse parameters that this recording does not have or cannot determine."""
    if "masses" in settings.learn and recording.bodies == 1:
        raise SettingsError("`learn` masses: a single body has no mass ratio; leave it out.")
    for name in chosen or ():
        plain = name.removesuffix("-per-run")
        if name != plain and len(recording.runs) == 1:
            raise SettingsError(f"`learn` {name}: there is only one run; learn {plain} instead.")
        of_contacts = plain not in {AUTO, "masses", *named_parts(AbstractForce)}
        if of_contacts and recording.scene is not None and not recording.scene.contacts:
            problem = "the system file has neither walls nor pairs; add them there."
            raise SettingsError(f"`learn` {name}: {problem}")


def paper_model(
    settings: PaperSettings, recording: Recording, learn: Sequence[str], *, seed: int
) -> AbstractModel:
    """A model that the paper's recipe can train, with random weights.

    Arguments:
        settings: which model.
        recording: what it is built for.
        learn: the parameters to be learned, from the system file.
        seed: of the weights.
    """
    chosen: dict[str, Any] = {"hidden": settings.hidden}
    if settings.model == "cd-lagrange":
        chosen |= {"learn_inertia": "masses" in learn, "learn_damping": "damping" in learn}
    if settings.model == "vin":
        chosen["scheme"] = settings.scheme
    return MODELS[settings.model].for_recording(recording, key=jax.random.key(seed), **chosen)
