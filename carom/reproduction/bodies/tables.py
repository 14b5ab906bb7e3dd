"""The tables of many bodies in Markdown, from `results/bodies.json` and `benchmarks/results/bodies.json`."""

from collections.abc import Callable, Mapping
from typing import Any

from carom.digits import MISSING, number
from carom.reproduction.formatting import yes
from carom.reproduction.paper.statistics import spread
from carom.reproduction.tables import markdown_of

Document = Mapping[str, Any]
BOUND = 1e-9
"""What energy may stray by, relatively, and bodies overlap by, in metres."""


def conservation_markdown(document: Document) -> str:
    """Energy and overlap over many steps."""
    header = ["dimension", "field", "energy strays by", "overlap / m", "both within 1e-9"]
    rows = []
    kept = document["mechanics"]["conservation"]
    for row in kept["rows"]:
        worst = max(row["drift"]), max(row["overlap"])
        field = "gravity" if row["gravity"] else "none"
        rows.append([str(row["dimension"]), field, *map(number, worst), yes(max(worst) <= BOUND)])
    caption = (
        f"{kept['bodies']} balls of random masses and radii, e = 1, μ = 0, {kept['steps']} steps: the worst "
        f"of {len(document['seeds'])} random scenes."
    )
    return markdown_of(caption, header, rows)


def dissipation_markdown(document: Document) -> str:
    """Gain of energy, overlap and momentum for random laws."""
    header = ["dimension", "field", "greatest gain of energy in a step", "overlap / m"]
    header += ["change of momentum without walls"]
    rows = []
    kept = document["mechanics"]["dissipation"]
    for row in kept["rows"]:
        field = "gravity" if row["gravity"] else "none"
        momentum = MISSING if row["gravity"] else number(max(row["momentum"]))
        gain = number(max(0.0, max(row["gain"])))
        rows.append([str(row["dimension"]), field, gain, number(max(row["overlap"])), momentum])
    caption = (
        f"{kept['bodies']} balls, e from 0 to 1 and μ from 0 to 2 at random, {kept['steps']} steps, through "
        "heaps: the worst of "
        f"{len(document['seeds'])} random scenes, relative to the energy or momenta at the start."
    )
    return markdown_of(caption, header, rows)


def derivatives_markdown(document: Document) -> str:
    """Derivatives of the last state against differences."""
    header = ["system", "scenes compared", "left out", "median error", "worst error"]
    rows = []
    for row in document["mechanics"]["derivatives"]["rows"]:
        errors = [error for error in row["errors"] if error is not None]
        found = [number(spread(errors).median), number(max(errors))] if errors else [MISSING, MISSING]
        rows.append([row["system"], str(len(errors)), str(row["left_out"]), *found])
    caption = (
        "∂(state after 0.4 s)/∂(e, μ, masses, start) against central differences, relative to the largest "
        "derivative. Left out: other impacts within the differences, grazing, derivatives above 300."
    )
    return markdown_of(caption, header, rows)


def engines_markdown(document: Document) -> str:
    """Ours, by the CD-Lagrange step, and engines against the exact motion, by steps per sample."""
    found = [
        (row["engine"], row["system"], row["errors"], row["order"])
        for row in document["mechanics"]["engines"]["rows"]
    ]
    schemes = document["mechanics"]["orders"]["rows"]
    found += [
        ("CD-Lagrange", row["system"], row["errors"], row["order"])
        for row in schemes
        if row["scheme"] == "CD-Lagrange"
    ]
    substeps = document["mechanics"]["engines"]["rows"][0]["substeps"]
    header = ["by", "system", *(f"{count} steps per sample" for count in substeps), "order"]
    rows = []
    for name, system, errors, order in found:
        missing = [MISSING] * (len(substeps) + 1)
        rows.append([name, system, *(missing if errors is None else [*map(number, errors), f"{order:.2f}"])])
    caption = (
        "Three balls for 0.4 s, samples every 0.01 s: the greatest distance of any ball from the exact "
        f"motion / m, median of {len(document['seeds'])} random starts."
    )
    return markdown_of(caption, header, rows)


def against_pymunk_markdown(speed: Document) -> str:
    """Seconds for many scenes, ours and pymunk's."""
    scenes = speed["scenes"]
    header = ["step / s", "ours, 2 threads / s", "pymunk / s", "ratio", "pymunk, 2 processes / s", "ratio"]
    rows = [
        [
            f"{row['step_size']:g}",
            number(row["ours_two_threads"]),
            number(row["pymunk"]),
            f"{row['ratio']:.0f}",
            number(row["pymunk_two_processes"]),
            f"{row['ratio_core_for_core']:.0f}",
        ]
        for row in speed["against_pymunk"]
    ]
    caption = (
        f"{scenes['count']} scenes of {scenes['balls']} balls on a free table, {scenes['steps']} steps, all "
        f"recorded, on {speed['machine']['cores']} cores."
    )
    return markdown_of(caption, header, rows)


def cost_markdown(speed: Document) -> str:
    """Cost of a step and memory by the number of balls."""
    header = ["field", "balls", "a step of a scene / µs", "pymunk / µs", "memory of a scene / kB"]
    rows = [
        [
            "gravity" if row["gravity"] else "none",
            str(row["balls"]),
            number(row["microseconds"]),
            number(row["pymunk_microseconds"]),
            number(row["bytes_per_scene"] / 1000),
        ]
        for row in speed["by_size"]
    ]
    return markdown_of("By the number of balls, as dense in all cases, h = 0.01 s, one thread.", header, rows)


BODIES_TABLES: dict[str, Callable[[Document], str]] = {
    "bodies-conservation": conservation_markdown,
    "bodies-dissipation": dissipation_markdown,
    "bodies-derivatives": derivatives_markdown,
    "bodies-engines": engines_markdown,
}
"""By the name of their marker, from `results/bodies.json`."""
BODIES_SPEED_TABLES: dict[str, Callable[[Document], str]] = {
    "bodies-pymunk": against_pymunk_markdown,
    "bodies-cost": cost_markdown,
}
"""The same from `benchmarks/results/bodies.json`."""
