"""Recordings as others make them, from closed forms: no code of the library takes part."""

from dataclasses import dataclass, field

import numpy as np

GRAVITY = 9.81


@dataclass(frozen=True)
class OwnRecording:
    """A table, and what is true of it.

    Arguments:
        names, columns: as they stand in the file.
        true: physical parameters by the beginning of their names.
        shape: bodies, dimension, walls and pairs that `carom init` should see.
        options: what `carom fit` is told besides.
    """

    names: tuple[str, ...]
    columns: tuple[np.ndarray, ...]
    shape: tuple[int, int, int, int]
    true: dict[str, float] = field(default_factory=dict)
    options: tuple[str, ...] = ()

    def write(self, path) -> None:
        rows = [",".join(_cell(cell) for cell in row) for row in zip(*self.columns, strict=True)]
        path.write_text("\n".join([",".join(self.names), *rows]) + "\n")


def _cell(value) -> str:
    return f"{value:.6f}" if isinstance(value, float) else str(value)


def bounces(time, height, restitution):
    """Height and velocity of a ball dropped from rest, and in which samples it has just bounced."""
    first = np.sqrt(2 * height / GRAVITY)
    position, velocity = height - 0.5 * GRAVITY * time**2, -GRAVITY * time
    begin, speed = first, restitution * GRAVITY * first
    touch = np.zeros(len(time), int)
    while begin < time[-1]:
        after = time >= begin
        since = time - begin
        position = np.where(after, speed * since - 0.5 * GRAVITY * since**2, position)
        velocity = np.where(after, speed - GRAVITY * since, velocity)
        touch[np.argmax(after)] = 1
        begin, speed = begin + 2 * speed / GRAVITY, restitution * speed
    return position, velocity, touch


def ball(generator) -> OwnRecording:
    """A camera at 60 Hz sees a ball bounce; heights alone."""
    time = np.arange(180) / 60
    height = bounces(time, 1.5, 0.8)[0] + 0.003 * generator.standard_normal(len(time))
    return OwnRecording(("time_s", "height_m"), (time, height), (1, 1, 1, 0), {"restitution": 0.8})


def swing(generator) -> OwnRecording:
    """An angle and its rate, and nothing that touches."""
    time = 0.033 * np.arange(120)
    angle, rate = 0.5 * np.cos(3.1 * time), -0.5 * 3.1 * np.sin(3.1 * time)
    noisy = [x + s * generator.standard_normal(len(time)) for x, s in ((angle, 0.01), (rate, 0.03))]
    return OwnRecording(("t", "theta", "omega"), (time, *noisy), (1, 1, 0, 0))


def carts(generator) -> OwnRecording:
    """Two carts collide in six trials: one twice as heavy, markers 0.1 apart when they touch."""
    ratio, e, distance = 2.0, 0.7, 0.1
    time = 0.01 * np.arange(120)
    table = []
    for trial in range(6):
        left, right = 0.8 + 0.1 * trial, -0.1 * trial
        instant = (1.0 - distance) / (left - right)
        middle = (left + ratio * right) / (1 + ratio)
        after = middle - e * ratio / (1 + ratio) * (left - right), middle + e / (1 + ratio) * (left - right)
        since = time - instant
        a = left * instant + np.where(since < 0, left, after[0]) * since
        b = left * instant + distance + np.where(since < 0, right, after[1]) * since
        noisy = [x + 0.001 * generator.standard_normal(len(time)) for x in (a, b)]
        table.append((np.full(len(time), f"trial{trial}"), time, *noisy))
    columns = tuple(np.concatenate(parts) for parts in zip(*table, strict=True))
    true = {"restitution": e, "mass": ratio, "surface": distance}
    return OwnRecording(("trial", "t", "x_a", "x_b"), columns, (2, 1, 0, 1), true)


def corner(generator) -> OwnRecording:
    """A ball thrown at a wall: it bounces off the floor and off the wall, which do not disturb each other."""
    e = 0.85
    time = 0.01 * np.arange(150)
    y, vy, _ = bounces(time, 1.2, e)
    instant = 1.0 / 1.4
    vx = np.where(time < instant, -1.4, 1.4 * e)
    x = vx * (time - instant)
    exact = ((x, 0.004), (y, 0.004), (vx, 0.03), (vy, 0.03))
    noisy = [value + noise * generator.standard_normal(len(time)) for value, noise in exact]
    names = ("frame", "t", "puck_x", "puck_y", "puck_vx", "puck_vy")
    columns = (np.arange(len(time)), time, *noisy)
    return OwnRecording(names, columns, (1, 2, 2, 0), {"restitution": e})


def touch(generator) -> OwnRecording:
    """A ball with a touch sensor that misses some bounces and reads others that are none."""
    time = 0.02 * np.arange(300)
    z, v, hits = bounces(time, 3.0, 0.85)
    read = (hits & (generator.random(len(time)) > 0.15)) | (generator.random(len(time)) < 0.01)
    noisy = [x + s * generator.standard_normal(len(time)) for x, s in ((z, 0.02), (v, 0.05))]
    options = ("--touch", "imperfect")
    columns = (time, *noisy, read.astype(int))
    return OwnRecording(("t", "q1", "v1", "touch1"), columns, (1, 1, 1, 0), {"restitution": 0.85}, options)


KINDS = {"ball": ball, "swing": swing, "carts": carts, "corner": corner, "touch": touch}
