// What the scripts for an .html plot share: appended to the page before them, in one block, so that all see the page's
// constants. `report` leaves a line for each check in <pre id="report">.
const lines = [];
const check = (name, good, seen) => lines.push(good ? `ok   ${name}` : `FAIL ${name}: ${seen}`);
const place = (i) => [screenX(xy[2 * i]), screenY(xy[2 * i + 1])];
const pixelAt = (left, top) => {
  draw();
  if (renderer.kind === '2d') return [...canvas.getContext('2d').getImageData(left, top, 1, 1).data.slice(0, 3)];
  const gl = canvas.getContext('webgl2');
  const pixel = new Uint8Array(4);
  gl.readPixels(left, canvas.height - 1 - top, 1, 1, gl.RGBA, gl.UNSIGNED_BYTE, pixel);
  return [...pixel.slice(0, 3)];
};
const colourAt = (i) => pixelAt(...place(i).map((value) => Math.floor(value * view.ratio)));
const report = () => {
  const pre = document.createElement('pre');
  pre.id = 'report';
  pre.textContent = `\n${lines.join('\n')}\n`;
  document.body.append(pre);
};
