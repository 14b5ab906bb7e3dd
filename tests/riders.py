"""Riders on a track in closed form: a bumper that is pressed and springs back, hands that push, noise.

In contact the gap is a damped oscillation over half a period: it begins at rate −u and ends at rate e u. The
centre of mass moves on as if nothing happened.
"""

from dataclasses import dataclass

import numpy as np

from carom.data import Run


@dataclass(frozen=True)
class Encounter:
    """A collision of two riders, the one in front first.

    Arguments:
        closing_speed: before contact.
        restitution: e.
        mass_ratio: of the second rider to the first.
        duration: of the contact.
        gap: at which they touch.
        drift: velocity of the centre of mass.
        push: acceleration by a hand on the second rider, until a quarter of a second before contact.
    """

    closing_speed: float
    restitution: float
    mass_ratio: float
    duration: float = 0.04
    gap: float = 0.14
    drift: float = 0.0
    push: float = 0.0

    @property
    def met(self) -> float:
        """When the straight motions before and after would have met, from the beginning of the contact."""
        return self.restitution * self.duration / (1 + self.restitution)

    def run(self, time: np.ndarray, contact: float, noise: float, generator: np.random.Generator) -> Run:
        """The recording of a contact that begins at some time."""
        since = time - contact
        gap = self.gap + np.where(
            since < 0,
            -self.closing_speed * since,
            np.where(
                since < self.duration,
                self._pressed(since),
                self.restitution * self.closing_speed * (since - self.duration),
            ),
        )
        first = self.mass_ratio / (1 + self.mass_ratio)
        centre = self.drift * since
        position = np.stack([centre + first * gap, centre - (1 - first) * gap], axis=1)
        position[:, 1] -= 0.5 * self.push * np.minimum(since + 0.25, 0) ** 2
        return Run(time, (position + noise * generator.standard_normal(position.shape))[:, :, None])

    def _pressed(self, since: np.ndarray) -> np.ndarray:
        damped = np.pi / self.duration
        decay = -np.log(self.restitution) / self.duration
        return -self.closing_speed / damped * np.exp(-decay * since) * np.sin(damped * since)


def encounters(
    speeds: np.ndarray, law, *, scatter: float, generator: np.random.Generator, **known
) -> list[Encounter]:
    """One per speed; e scatters about the law, and gap, drift and push differ from run to run."""
    return [
        Encounter(
            closing_speed=float(u),
            restitution=float(law(u) + scatter * generator.standard_normal()),
            gap=generator.uniform(0.12, 0.16),
            drift=generator.uniform(-0.2, 0.2),
            push=generator.uniform(0.0, 2.0),
            **known,
        )
        for u in speeds
    ]
