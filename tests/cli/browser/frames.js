// How long frames of an .html plot take; run by frames.sh. No test: figures differ between machines.
const timed = (name, step) => {
  const times = [];
  for (let k = 0; k < 60; k++) {
    const begin = performance.now();
    step(k);
    if (stale) draw();
    else placeTip();
    renderer.finish();   // waits until it has been drawn
    times.push(performance.now() - begin);
  }
  times.sort((a, b) => a - b);
  lines.push(`${name}: median ${times[30].toFixed(1)} ms, slowest ${times[59].toFixed(1)} ms`);
};
lines.push(`${count} points, ${renderer.kind}, ${canvas.width} x ${canvas.height}`);
timed('all of it', () => redraw());
timed('zooming in and out', (k) => {
  zoomAt(view.width / 3, view.height / 2, k < 30 ? 1.1 : 1 / 1.1);
  redraw();
});
home();
timed('dragging', (k) => {
  move(k < 30 ? 7 : -7, 3);
  redraw();
});
home();
timed('the pointer moves', (k) => hover(view.width * k / 60, view.height * (0.3 + k / 150), 14));
timed('a class off and on', (k) => {
  on[0] = k % 2;
  renderer.recolour();
  redraw();
});
report();
