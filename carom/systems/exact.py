"""Exact truths: smooth motion to rounding, impacts at their instants. NumPy and SciPy, in float64."""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import scipy

from carom.types import State, Trajectory

MAX_IMPACTS = 100_000
TOLERANCE: dict[str, Any] = {"method": "DOP853", "rtol": 1e-12, "atol": 1e-12}
Acceleration = Callable[[np.ndarray, np.ndarray], np.ndarray]
"""q̈ = a(q, q̇)."""
Flight = tuple[float, Callable[[np.ndarray], np.ndarray]]
"""A motion without impacts: its end, ∞ for none, and its positions and velocities, (2 coordinates, times)."""
Impact = tuple[np.ndarray, np.ndarray, bool]
"""The state after an impact, which contacts it was, and whether everything rests from now on."""


def smooth_trajectory(
    acceleration: Acceleration, start: State, times: np.ndarray, *, contacts: int = 0
) -> Trajectory:
    """Solve q̈ = a(q, q̇) on a line; none of the candidate contacts is ever made."""
    time = np.asarray(times, float)
    _, states_at = _solved(acceleration, time[0], positions_and_velocities(start), time[-1], [])
    return _trajectory(time, states_at(time), np.zeros((len(time), contacts), bool))


def positions_and_velocities(start: State) -> np.ndarray:
    """The coordinates of all bodies, then their rates."""
    return np.concatenate([np.ravel(start.position), np.ravel(start.velocity)]).astype(float)


def _trajectory(time: np.ndarray, values: np.ndarray, contact: np.ndarray) -> Trajectory:
    """From rows of positions and then of velocities, of bodies on a line."""
    position, velocity = values.reshape(2, -1, len(time)).transpose(0, 2, 1)[..., None]
    return Trajectory(time, position, velocity, contact)


def floor_trajectory(
    acceleration: float | Acceleration, *, restitution: float, surface: float, start: State, times: np.ndarray
) -> Trajectory:
    """A point over a surface, to rest where e < 1.

    Arguments:
        acceleration: −g of uniform gravity, with parabolas in closed form, or any field that pulls it down.
    """

    def fly(t: float, state: np.ndarray) -> Flight:
        if callable(acceleration):
            return _solved(acceleration, t, state, times[-1], [lambda _, y: y[0] - surface])
        end = t + _fall_time(state[0] - surface, state[1], -acceleration)
        # Not a function defined here: type checking at run time would wrap it anew for every flight.
        return end, partial(_parabola, t, state, acceleration)

    def impact(state: np.ndarray) -> Impact:
        speed = -restitution * state[1]
        if callable(acceleration):
            # A hair above the surface, so that the event of this impact does not fire again.
            rests, after = speed < 1e-6, (surface + 1e-14, speed)
        else:
            # The remaining bounces last 2 speed / (g (1 − e)) together: past the resolution of time, none.
            rests = acceleration < 0 and 2 * speed <= -1e-12 * acceleration * (1 - restitution)
            after = surface, speed
        return np.array((surface, 0.0) if rests else after), np.ones(1, bool), bool(rests)

    return by_impacts(fly, impact, positions_and_velocities(start), times, contacts=1)


def _parabola(begin: float, state: np.ndarray, acceleration: float, times: np.ndarray) -> np.ndarray:
    """Height and velocity in uniform gravity."""
    (height, speed), since = state, times - begin
    return np.stack([height + speed * since + 0.5 * acceleration * since**2, speed + acceleration * since])


def _fall_time(gap: float, speed: float, gravity: float) -> float:
    """When gap + speed t − ½ g t² = 0 next, in the form that does not cancel."""
    if gravity == 0:
        return -gap / speed if speed < 0 else np.inf
    root = np.sqrt(speed**2 + 2 * gravity * gap)
    return (speed + root) / gravity if speed > 0 else 2 * gap / (root - speed) if gap > 0 else 0.0


def chain_trajectory(
    acceleration: Acceleration, masses: np.ndarray, restitution: float, start: State, times: np.ndarray
) -> Trajectory:
    """Point bodies on a line, greatest coordinate first, that hit their neighbours; solved event by event."""
    count = len(masses)

    def fly(t: float, state: np.ndarray) -> Flight:
        # Neighbours that move together have no next impact that is distinct from rounding.
        together = (np.abs(np.diff(state.reshape(2, count))) < 1e-10).all(axis=0)
        gaps = [lambda _, y, j=j: y[j] - y[j + 1] for j in np.flatnonzero(~together)]
        return _solved(acceleration, t, state, times[-1], gaps)

    def impact(state: np.ndarray) -> Impact:
        return *_chain_impacts(state, masses, restitution), False

    state, struck, _ = impact(
        positions_and_velocities(start)
    )  # balls that touch at the start may meet at once
    trajectory = by_impacts(fly, impact, state, times, contacts=count - 1)
    trajectory.contact[0] |= struck
    return trajectory


def _solved(acceleration: Acceleration, t: float, state: np.ndarray, end: float, gaps: list) -> Flight:
    size = len(state) // 2

    def rate(_, y: np.ndarray) -> np.ndarray:
        return np.concatenate([y[size:], acceleration(y[:size], y[size:])])

    return solved_flight(rate, t, state, end, gaps, **TOLERANCE)


def solved_flight(
    rate: Callable[[float, np.ndarray], np.ndarray],
    t: float,
    state: np.ndarray,
    end: float,
    gaps: list[Any],
    **options: Any,
) -> Flight:
    """The flight up to where the first of some gaps falls through 0, with SciPy's options."""
    # SciPy reads these attributes of an event function.
    for gap in gaps:
        gap.terminal, gap.direction = True, -1
    events = gaps or None
    solution = scipy.integrate.solve_ivp(rate, (t, end), state, events=events, dense_output=True, **options)
    return float(solution.t[-1]) if solution.status == 1 else np.inf, solution.sol


def by_impacts(
    fly: Callable[[float, np.ndarray], Flight],
    impact: Callable[[np.ndarray], Impact],
    state: np.ndarray,
    times: np.ndarray,
    *,
    contacts: int,
) -> Trajectory:
    """Flights and impacts in turn, from a state of positions and velocities."""
    time = np.asarray(times, float)
    values, contact = np.empty((len(state), len(time))), np.zeros((len(time), contacts), bool)
    t, first = float(time[0]), 0
    for _ in range(MAX_IMPACTS):
        t, states_at = fly(t, state)
        # Samples before the impact; one at its very instant has the state after it.
        last = int(np.searchsorted(time, t, side="left"))
        if last > first:
            values[:, first:last] = states_at(time[first:last])
        if last == len(time):
            break
        first = last
        state, struck, rests = impact(states_at(np.array([t]))[:, 0])
        contact[last] |= struck
        if rests:
            values[:, first:], contact[first:] = state[:, None], True
            break
    else:
        raise RuntimeError(f"More than {MAX_IMPACTS} impacts before t = {t:g}.")
    return _trajectory(time, values, contact)


def _chain_impacts(
    state: np.ndarray, masses: np.ndarray, restitution: float
) -> tuple[np.ndarray, np.ndarray]:
    """Newton's law at one closing pair after another until none closes; touching pairs meet in the middle."""
    position, velocity = state.copy().reshape(2, -1)
    struck = np.zeros(len(position) - 1, bool)
    # Events are located to about 1e-12; bodies nearer than this are in contact.
    touching = np.abs(np.diff(position)) < 1e-10
    for _ in range(1000):
        closing = touching & (velocity[:-1] - velocity[1:] < -1e-13)
        if not closing.any():
            break
        for j in np.flatnonzero(closing):
            rate = velocity[j] - velocity[j + 1]
            if rate < 0:
                impulse = -(1 + restitution) * rate / (1 / masses[j] + 1 / masses[j + 1])
                velocity[j : j + 2] += impulse * np.array([1, -1]) / masses[j : j + 2]
                struck[j] = True
    # Without this a hair of overlap would hide the next impact of the pair.
    for j in np.flatnonzero(struck):
        position[j : j + 2] = position[j : j + 2].mean()
    return np.concatenate([position, velocity]), struck
