"use strict";
// Moves the bodies of the scene: a button plays and pauses, a slider chooses the instant.
(() => {
  const data = JSON.parse(document.getElementById("scene-data").textContent);
  const button = document.getElementById("play");
  const slider = document.getElementById("instant");
  const clock = document.getElementById("clock");
  const speed = document.getElementById("speed");
  const last = data.time.length - 1;
  const first = data.time[0];
  const duration = data.time[last] - first;
  let playing = false;
  let frame = 0;
  let begun = 0;

  const place = (kind, positions) => {
    positions.forEach((position, body) => {
      const circle = document.getElementById(`${kind}-${body}`);
      circle.style.visibility = position === null ? "hidden" : "visible";
      if (position !== null) {
        circle.setAttribute("cx", position[0]);
        circle.setAttribute("cy", position[1]);
      }
    });
  };

  const show = (chosen) => {
    frame = Math.max(0, Math.min(last, chosen));
    place("recorded", data.recorded[frame]);
    place("model", data.model[frame]);
    const held = frame >= data.held_out_from ? ", held out" : "";
    const contact = data.contact[frame] ? ", contact" : "";
    const words = `${data.time[frame].toFixed(2)} s${held}${contact}`;
    slider.value = String(frame);
    slider.setAttribute("aria-valuetext", words);
    clock.textContent = words;
  };

  const frameAt = (time) => {
    // The last frame that is not later.
    let low = 0;
    let high = last;
    while (low < high) {
      const middle = (low + high + 1) >> 1;
      if (data.time[middle] <= time) low = middle;
      else high = middle - 1;
    }
    return low;
  };

  const stop = () => {
    playing = false;
    button.textContent = "Play";
  };

  const start = (now) => {
    begun = now - (1000 * (data.time[frame] - first)) / Number(speed.value);
  };

  const tick = (now) => {
    if (!playing) return;
    const time = first + ((now - begun) / 1000) * Number(speed.value);
    show(frameAt(time));
    if (time - first >= duration) stop();
    else requestAnimationFrame(tick);
  };

  button.addEventListener("click", () => {
    if (playing) {
      stop();
      return;
    }
    if (frame === last) show(0);
    playing = true;
    button.textContent = "Pause";
    requestAnimationFrame((now) => {
      start(now);
      tick(now);
    });
  });
  slider.addEventListener("input", () => {
    stop();
    show(Number(slider.value));
  });
  speed.addEventListener("change", () => start(performance.now()));
  button.disabled = false;
  slider.disabled = false;
  show(0);
})();
