// A map of numbers near the largest or the smallest of their type, in an .html plot; appended to the page as a second
// script, as actions.js is.
'use strict';
{
  const lines = [];
  const check = (name, good, seen) => lines.push(good ? `ok   ${name}` : `FAIL ${name}: ${seen}`);
  const place = (i) => [screenX(xy[2 * i]), screenY(xy[2 * i + 1])];
  const places = [...Array(count).keys()].map(place);
  const colourAt = (i) => {
    const [left, top] = place(i).map((value) => Math.floor(value * view.ratio));
    if (renderer.kind === '2d') return [...canvas.getContext('2d').getImageData(left, top, 1, 1).data.slice(0, 3)];
    const pixel = new Uint8Array(4);
    canvas.getContext('webgl2').readPixels(left, canvas.height - 1 - top, 1, 1, 6408, 5121, pixel);
    return [...pixel.slice(0, 3)];
  };
  const wide = Math.max(...places.map(([x]) => x)) - Math.min(...places.map(([x]) => x));
  check('the map fills the page', wide > 300 && wide < view.width, wide);
  check('all points are on it', places.every(([x, y]) => x >= 0 && y >= 0 && x <= view.width && y <= view.height), places);
  draw();
  check('and are drawn', places.every((_, i) => colourAt(i).some((value) => value < 250)), places.map((_, i) => colourAt(i)));
  hover(...place(1), 14);
  const shown = tip.lastElementChild.textContent;
  lines.push(`     ${tip.firstElementChild.textContent}, ${shown}`);
  lines.push(`     shades ${[...shade].join(' ')}, ticks ${data.ticks.map((tick) => tick[1]).join(' ')}`);
  const pre = document.createElement('pre');
  pre.id = 'report';
  pre.textContent = `\n${lines.join('\n')}\n`;
  document.body.append(pre);
}
