"""Exact truths: smooth motion to rounding, impacts at their instants. NumPy and SciPy, in float64."""

from collections.abc import Callable

import numpy as np
import scipy

from carom.types import Trajectory

MAX_IMPACTS = 100_000
TOLERANCE = {"method": "DOP853", "rtol": 1e-12, "atol": 1e-12}


def smooth_trajectory(
    acceleration: Callable[[np.ndarray, np.ndarray], np.ndarray],
    position: np.ndarray,
    velocity: np.ndarray,
    times: np.ndarray,
) -> tuple[np.ndarray, np.ndarray]:
    """Solve q̈ = a(q, q̇) without contacts for flat position and velocity vectors; values at `times`."""
    size = len(position)

    def rate(_, y):
        return np.concatenate([y[size:], acceleration(y[:size], y[size:])])

    start = np.concatenate([position, velocity])
    solution = scipy.integrate.solve_ivp(rate, (times[0], times[-1]), start, t_eval=times, **TOLERANCE)
    return solution.y[:size].T, solution.y[size:].T


def falling_trajectory(
    *, gravity: float, restitution: float, surface: float, height: float, velocity: float, times: np.ndarray
) -> Trajectory:
    """A point falling on a surface under constant gravity: parabolas between impacts, to rest where e < 1."""
    time = np.asarray(times, float)
    q, v = np.empty_like(time), np.empty_like(time)
    contact = np.zeros((len(time), 1), bool)
    t, gap, speed = float(time[0]), height - surface, velocity
    first = 0
    for _ in range(MAX_IMPACTS):
        duration = _fall_time(gap, speed, gravity)
        last = int(np.searchsorted(time, t + duration, side="left"))
        since = time[first:last] - t
        q[first:last] = surface + gap + speed * since - 0.5 * gravity * since**2
        v[first:last] = speed - gravity * since
        if last == len(time):
            return Trajectory(time, q[:, None, None], v[:, None, None], contact)
        contact[last] = True
        t, gap, first = t + duration, 0.0, last
        speed = -restitution * (speed - gravity * duration)
        # The remaining bounces last 2 speed / (g (1 − e)) together: past the resolution of time, it rests.
        if gravity > 0 and 2 * speed <= 1e-12 * gravity * (1 - restitution):
            q[first:], v[first:], contact[first:] = surface, 0.0, True
            return Trajectory(time, q[:, None, None], v[:, None, None], contact)
    raise RuntimeError(f"More than {MAX_IMPACTS} impacts before t = {t:g}.")


def _fall_time(gap: float, speed: float, gravity: float) -> float:
    """When gap + speed t − ½ g t² = 0 next, in the form that does not cancel."""
    if gravity == 0:
        return -gap / speed if speed < 0 else np.inf
    root = np.sqrt(speed**2 + 2 * gravity * gap)
    return (speed + root) / gravity if speed > 0 else 2 * gap / (root - speed) if gap > 0 else 0.0


def floor_trajectory(
    acceleration: Callable[[float], float],
    *,
    restitution: float,
    surface: float,
    height: float,
    velocity: float,
    times: np.ndarray,
) -> Trajectory:
    """A point above a surface in any field that pulls it down; solved event by event, to rest if e < 1."""
    time = np.asarray(times, float)
    q, v = np.empty_like(time), np.empty_like(time)
    contact = np.zeros((len(time), 1), bool)
    t, first, state = float(time[0]), 0, np.array([height, velocity])

    def gap(_, y):
        return y[0] - surface

    gap.terminal, gap.direction = True, -1  # type: ignore[attr-defined]
    for _ in range(MAX_IMPACTS):
        solution = scipy.integrate.solve_ivp(
            lambda _, y: (y[1], acceleration(y[0])),
            (t, time[-1]),
            state,
            events=gap,
            dense_output=True,
            **TOLERANCE,
        )
        last = int(np.searchsorted(time, solution.t[-1], side="left")) if solution.status == 1 else len(time)
        if last > first:
            q[first:last], v[first:last] = solution.sol(time[first:last])
        if solution.status != 1:
            return Trajectory(time, q[:, None, None], v[:, None, None], contact)
        contact[last] = True
        t, first = float(solution.t[-1]), last
        speed = -restitution * solution.y[1, -1]
        if speed < 1e-6:
            q[first:], v[first:], contact[first:] = surface, 0.0, True
            return Trajectory(time, q[:, None, None], v[:, None, None], contact)
        # A hair above the surface, so that the event of this impact does not fire again.
        state = np.array([surface + 1e-14, speed])
    raise RuntimeError(f"More than {MAX_IMPACTS} impacts before t = {t:g}.")


def chain_trajectory(
    acceleration: Callable[[np.ndarray], np.ndarray],
    masses: np.ndarray,
    restitution: float,
    position: np.ndarray,
    velocity: np.ndarray,
    times: np.ndarray,
) -> Trajectory:
    """Point bodies on a line, greatest coordinate first, that hit their neighbours; solved event by event."""
    count = len(position)
    time = np.asarray(times, float)
    q, v = np.empty((len(time), count)), np.empty((len(time), count))
    contact = np.zeros((len(time), count - 1), bool)
    t, first = float(time[0]), 0
    here, speed = np.array(position, float), np.array(velocity, float)

    def rate(_, y):
        return np.concatenate([y[count:], acceleration(y[:count])])

    for _ in range(MAX_IMPACTS):
        here, speed, struck = _chain_impacts(here, speed, masses, restitution)
        if struck.any():
            contact[min(int(np.searchsorted(time, t, side="left")), len(time) - 1)] |= struck
        events = [_gap_event(j, count) for j in range(count - 1) if not _together(here, speed, j)]
        solution = scipy.integrate.solve_ivp(
            rate,
            (t, time[-1]),
            np.concatenate([here, speed]),
            events=events or None,
            dense_output=True,
            **TOLERANCE,
        )
        last = int(np.searchsorted(time, solution.t[-1], side="left")) if solution.status == 1 else len(time)
        if last > first:
            values = solution.sol(time[first:last])
            q[first:last], v[first:last] = values[:count].T, values[count:].T
        if solution.status != 1:
            return Trajectory(time, q[..., None], v[..., None], contact)
        t, first = float(solution.t[-1]), last
        here, speed = solution.y[:count, -1], solution.y[count:, -1]
    raise RuntimeError(f"More than {MAX_IMPACTS} impacts before t = {t:g}.")


def _together(position: np.ndarray, velocity: np.ndarray, j: int) -> bool:
    return bool(abs(position[j] - position[j + 1]) < 1e-10 and abs(velocity[j] - velocity[j + 1]) < 1e-10)


def _gap_event(j: int, count: int):
    def gap(_, y):
        return y[j] - y[j + 1]

    gap.terminal, gap.direction = True, -1  # type: ignore[attr-defined]
    return gap


def _chain_impacts(position, velocity, masses, restitution):
    """Newton's law at one closing pair after another until none closes; touching pairs meet in the middle."""
    position, velocity = position.copy(), velocity.copy()
    struck = np.zeros(len(position) - 1, bool)
    touching = np.abs(np.diff(position)) < 1e-10
    for _ in range(1000):
        closing = touching & (velocity[:-1] - velocity[1:] < -1e-13)
        if not closing.any():
            break
        for j in np.flatnonzero(closing):
            rate = velocity[j] - velocity[j + 1]
            if rate >= 0:
                continue
            impulse = -(1 + restitution) * rate / (1 / masses[j] + 1 / masses[j + 1])
            velocity[j] += impulse / masses[j]
            velocity[j + 1] -= impulse / masses[j + 1]
            struck[j] = True
    for j in np.flatnonzero(struck):
        position[j : j + 2] = position[j : j + 2].mean()
    return position, velocity, struck
