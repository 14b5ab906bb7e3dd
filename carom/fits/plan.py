"""A fit of one recording by given options: what can be refused before it begins, and its run folder."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import jax

from carom.data import Learn, Recording, Split, SystemFile, hold_out
from carom.errors import InputError, require_range
from carom.estimation.detection.trimming import trim
from carom.estimation.result import LatentFit
from carom.estimation.settings import LatentSettings
from carom.estimation.stages import fit_latent, require_fittable
from carom.fits.fit_directory import save_run
from carom.fits.new_fit_directory import NewRun, new_run_folder
from carom.fits.options import FitOptions, learned_from
from carom.models import MODELS, AbstractModel
from carom.training import TrainingResult, TrainingSettings, stack_models, train_many
from carom.training.windows import recorded_windows


@dataclass(frozen=True)
class FitPlan:
    """A fit that options, recording and system file allow; `plan_fit` makes it.

    Arguments:
        path: the file of the recording.
        recording: all that was measured; around its impacts alone, where that was asked for.
        split: the same in what the fit sees and what was held out.
        names: what the position columns were called, for figures.
        options: what was asked for.
        settings: of the recipe.
        model_options: of the model that the paper's recipe trains.
        notes: sentences about what the fit will not see.
    """

    path: Path
    recording: Recording
    split: Split
    names: tuple[str, ...]
    options: FitOptions
    settings: LatentSettings | TrainingSettings
    model_options: dict[str, Any]
    notes: tuple[str, ...] = ()

    @property
    def training(self) -> Recording:
        """The part that the fit sees."""
        return self.split.training

    def require_possible(self) -> None:
        """Refuse what the recipe would refuse of this recording when it begins."""
        if isinstance(self.settings, LatentSettings):
            require_fittable([self.training], self.settings)
        else:
            recorded_windows(self._untrained(self.options.seed), self.training, self.settings)

    def make(
        self, out: Path, *, overwrite: bool = False, progress: Callable[[float], None] | None = None
    ) -> TrainingResult | LatentFit:
        """Fit, and write the run folder; the same call continues one that was killed.

        Arguments:
            out: the run folder.
            overwrite: replace what is in it.
            progress: called with the share of the work done.
        """
        with new_run_folder(out, overwrite=overwrite) as new:
            if isinstance(self.settings, LatentSettings):
                result, others, seed = self._fit_latent(self.settings, new, progress), None, self.options.seed
            else:
                result, others, seed = self._train(self.settings, new, progress)
            save_run(
                result,
                new.files,
                recording=self.recording,
                recording_path=self.path,
                seed=seed,
                hold_out=self.options.hold_out,
                alternatives=others,
                names=self.names,
            )
        return result

    def _fit_latent(
        self, settings: LatentSettings, new: NewRun, progress: Callable[[float], None] | None
    ) -> LatentFit:
        result = fit_latent(
            self.training,
            settings,
            seed=self.options.seed,
            progress=progress,
            checkpoints=new.checkpoints,
        )
        if progress is not None:
            progress(1.0)
        if result.failed:
            new.give_up()
            raise InputError(
                f"{self.path}: the fit failed: its residuals are {result.misfit.excess:.0f} times the noise "
                "of the data; check the candidate contacts in the system file, or try another --seed."
            )
        return result

    def _train(
        self, settings: TrainingSettings, new: NewRun, progress: Callable[[float], None] | None
    ) -> tuple[TrainingResult, AbstractModel | None, int]:
        """The first fit that ends well, all of those where there are several, and the seed of the first."""
        seeds = range(self.options.seed, self.options.seed + self.options.ensemble)
        results = train_many(
            [self._untrained(seed) for seed in seeds],
            [self.training],
            settings,
            seeds=seeds,
            memory=None if self.options.memory is None else 1e9 * self.options.memory,
            progress=progress,
            checkpoints=new.checkpoints,
        )
        finished = [one for one in results if not one.failed]
        if not finished:
            new.give_up()
            raise InputError(
                "Training ended in numbers that are not finite; choose a smaller --learning-rate."
            )
        others = stack_models([one.model for one in finished]) if self.options.ensemble > 1 else None
        first = next(number for number, one in enumerate(results) if not one.failed)
        return finished[0], others, seeds[first]

    def _untrained(self, seed: int) -> AbstractModel:
        kind = MODELS[self.options.model]
        return kind.for_recording(self.recording, key=jax.random.key(seed), **self.model_options)


def plan_fit(options: FitOptions, path: Path, recording: Recording, description: SystemFile) -> FitPlan:
    """Check options against a recording and its system file.

    Arguments:
        options: what was asked for.
        path: the file of the recording.
        recording: what it holds.
        description: what its system file says.
    """
    model_options: dict[str, Any] = {}
    notes: tuple[str, ...] = ()
    if options.recipe == "carom":
        longest = max(len(run) for run in recording.runs)
        require_range("--blind", options.blind, 0, (longest - 1) // 4)
        settings = LatentSettings(
            touch=_latent_touch(options),
            sensor=options.sensor,
            learned=learned_from(description.learn, options.learn, options.laws),
            field=options.field,
            hidden=options.units,
            blind=options.blind,
        )
        if options.around is not None:
            recording, impacts = trim(recording, options.around, blind=options.blind)
            if several := sum(count > 1 for count in impacts):
                notes = (
                    f"{several} of {len(impacts)} runs have more than one impact; --around keeps what is "
                    "around the clearest of each.",
                )
    else:
        settings = replace(options.settings, touch=_windowed_touch(options))
        model_options = _model_options(options, path, description)
    split = hold_out(recording, options.hold_out)
    if options.recipe == "carom":
        _require_learnable(options, path, split.training, description.learn)
    names = description.columns.position if description.columns else ()
    return FitPlan(path, recording, split, names, options, settings, model_options, notes)


def _require_learnable(options: FitOptions, path: Path, recording: Recording, learn: Learn) -> None:
    """Refuse to learn what this recording has none of, or has nothing to tell from."""
    chosen, scene = options.learn or (), recording.scene
    if options.learn is None and learn.masses and recording.bodies == 1:
        raise InputError(
            f"{path}: its system file has masses under [learn], but a single body has no ratio of masses; "
            "set that to false."
        )
    for name in chosen:
        plain = name.removesuffix("-per-run")
        if name != plain and len(recording.runs) == 1:
            raise InputError(f"--learn {name}: there is one run; learn {plain} instead.")
        if scene is not None and plain == "masses" and scene.bodies == 1:
            raise InputError(f"--learn {name}: a single body has no ratio of masses; leave it out.")
        if scene is not None and plain not in ("masses", "damping") and not scene.contacts:
            raise InputError(f"--learn {name}: the system file has neither walls nor pairs; add them there.")
    if "restitution-per-run" in chosen and not {"restitution", "restitution-speed"} & set(chosen):
        raise InputError(
            "--learn restitution-per-run: runs scatter about a law that is learned too; add restitution or "
            "restitution-speed."
        )


def _model_options(options: FitOptions, path: Path, description: SystemFile) -> dict[str, Any]:
    learn = description.learn
    chosen: dict[str, Any] = {"hidden": options.units}
    if options.model == "cd-lagrange":
        chosen |= {"learn_inertia": learn.masses, "learn_damping": learn.damping}
    elif learn.masses or learn.damping:
        raise InputError(
            f"{path}: its system file has masses or damping under [learn], which only the model cd-lagrange "
            "learns; take another model, or set them to false."
        )
    if options.model == "vin":
        chosen["scheme"] = options.scheme
    return chosen


def _latent_touch(options: FitOptions):
    assert options.touch != "none"
    return options.touch or "inferred"


def _windowed_touch(options: FitOptions):
    assert options.touch not in ("inferred", "imperfect")
    return options.touch or "observed"
