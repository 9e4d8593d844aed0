// What a reader does with an .html plot, one thing after another. The data is that of cases/umap-browser.sh.
const near = (a, b, by = 1e-3) => Math.abs(a - b) <= by;
const frame = () => map.getBoundingClientRect();
const client = (left, top) => ({ clientX: frame().left + map.clientLeft + left, clientY: frame().top + map.clientTop + top });
const pointer = (type, left, top, more = {}) => map.dispatchEvent(
  new PointerEvent(type, { bubbles: true, cancelable: true, pointerId: 1, pointerType: 'mouse', ...client(left, top), ...more }));
const wheel = (left, top, deltaY) => map.dispatchEvent(
  new WheelEvent('wheel', { bubbles: true, cancelable: true, deltaY, ...client(left, top) }));
const button = (g) => element('legend').children[g];
const click = (target, type = 'click') => target.dispatchEvent(new MouseEvent(type, { bubbles: true }));

const state = document.documentElement.dataset.state;
check('ready', state === `ready ${count} points`, state);
check('legend entries say that they are on', groups.every((_, k) => button(k).getAttribute('aria-pressed') === 'true'), '');
check('the map is operated, not looked at only', map.getAttribute('role') === 'application', map.getAttribute('role'));
check('and says how', element(map.getAttribute('aria-describedby')).textContent.includes('arrow keys'), '');
check('nothing ran that was a label', globalThis.intruder === undefined, globalThis.intruder);
check('the whole map is seen', [...Array(count).keys()].every((i) => {
  const [x, y] = place(i);
  return x >= 0 && y >= 0 && x <= view.width && y <= view.height;
}), JSON.stringify(view));

const expected = (i) => [0, 1, 2].map((c) => 255 + data.opacity * (colours[3 * shade[i] + c] - 255));
check('a point has its colour', colourAt(1).every((value, c) => near(value, expected(1)[c], 2)), `${colourAt(1)} for ${expected(1)}`);

const search = element('search');
const type = (text) => {
  search.value = text;
  search.dispatchEvent(new Event('input', { bubbles: true }));
};
const paperIs = (pixel, wanted) => pixel.every((value, c) => near(value, wanted[c], 40));
type(' GRÜSSE');
check('what is not there is not found', element('found').textContent === '0 found', element('found').textContent);
type('grüße, ');
check('a label is found', element('found').textContent === '1 found' && sought.join('') === '000100', sought.join(''));
check('the other points fade', paperIs(colourAt(1), papers.light) && near(colourAt(3)[0], expected(3)[0], 2), `${colourAt(1)}`);
const enter = () => element('search-form').dispatchEvent(new SubmitEvent('submit', { bubbles: true, cancelable: true }));
enter();
check('Enter goes to it', hovered === 3, hovered);
type('fourth');
draw();
check('names dim in a search', names.every(({ label, code }) => label.hidden || (label.style.opacity === '1') === (code === codes[3])), '');
check('a text of its own is found', element('found').textContent === '1 found' && sought[3] === 1, sought.join(''));
type('');
check('without a search all are as before', !sought && element('found').textContent === '' && !paperIs(colourAt(1), papers.light), '');
hover(null);

const theme = document.documentElement.dataset;
check('light, as the browser is', theme.theme === 'light' && element('theme').getAttribute('aria-pressed') === 'false', theme.theme);
const lightPoint = colourAt(1);
click(element('theme'));
check('dark', theme.theme === 'dark' && element('theme').getAttribute('aria-pressed') === 'true', theme.theme);
const corner = () => pixelAt(2, 2);
check('dark paper', corner().join() === papers.dark.join() && getComputedStyle(document.body).backgroundColor === 'rgb(21, 24, 28)', corner());
const light = (rgb) => [0.2126, 0.7152, 0.0722].reduce((sum, part, c) => {
  const v = rgb[c] / 255;
  return sum + part * (v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
}, 0);
const contrast = (a, b) => (Math.max(light(a), light(b)) + 0.05) / (Math.min(light(a), light(b)) + 0.05);
const allContrast = () => data.colours.every((_, k) => contrast(colours.subarray(3 * k, 3 * k + 3), paper) >= 3);
check('colours of enough contrast with it', allContrast(), `${colours}`);
check('the legend has them too', getComputedStyle(button(0).firstChild).backgroundColor === css(groups[0].shade), '');
click(element('theme'));
check('and with white', allContrast(), `${colours}`);
check('and light again', theme.theme === 'light' && colourAt(1).join() === lightPoint.join(), theme.theme);

const [left, top] = place(2);
const before = { x: view.x + (left - view.width / 2) / scale(), zoom: view.zoom };
wheel(left, top, -160);
check('the wheel zooms in', view.zoom > before.zoom * 1.2, view.zoom);
check('on the place under the pointer', near(view.x + (left - view.width / 2) / scale(), before.x), view.x);
wheel(left, top, 160);
check('and out again', near(view.zoom, before.zoom), view.zoom);

const x = view.x, y = view.y;
pointer('pointerdown', 100, 100);
pointer('pointermove', 130, 80);
pointer('pointerup', 130, 80);
check('dragging moves', near(view.x, x - 30 / scale()) && near(view.y, y - 20 / scale()), `${view.x} ${view.y}`);
const still = view.x;
pointer('pointermove', 200, 200);
check('not without a button', view.x === still, view.x);

const kept = { ...view };
pointer('pointerdown', 100, 100, { shiftKey: true });
pointer('pointermove', 300, 250, { shiftKey: true });
check('dragging with Shift draws a box', !element('box').hidden && element('box').style.width === '200px' && view.x === kept.x, element('box').style.width);
const boxMiddle = mapX(200);
pointer('pointerup', 300, 250, { shiftKey: true });
check('and zooms to it', element('box').hidden && near(view.x, boxMiddle) && near(view.zoom / kept.zoom, Math.min(view.width / 200, view.height / 150)), view.zoom);
Object.assign(view, kept);

const zoom = view.zoom;
pointer('pointerdown', 100, 100, { pointerId: 2, pointerType: 'touch' });
pointer('pointerdown', 200, 100, { pointerId: 3, pointerType: 'touch' });
pointer('pointermove', 300, 100, { pointerId: 3, pointerType: 'touch' });
check('two fingers zoom', near(view.zoom, 2 * zoom), view.zoom);
pointer('pointerup', 100, 100, { pointerId: 2, pointerType: 'touch' });
pointer('pointercancel', 300, 100, { pointerId: 3, pointerType: 'touch' });
check('and let go', pointers.size === 0 && !map.classList.contains('moving'), pointers.size);

const boxes = names.filter(({ label }) => !label.hidden).map(({ label }) => label.getBoundingClientRect());
check('names do not overlap', boxes.length > 1 && boxes.every((a, i) => boxes.every((b, j) => i >= j ||
  a.right <= b.left || a.left >= b.right || a.bottom <= b.top || a.top >= b.bottom)), boxes.length);
click(map, 'dblclick');
check('a double click shows all again', view.zoom === 1 && near(view.x, x) && near(view.y, y), JSON.stringify(view));
map.dispatchEvent(new KeyboardEvent('keydown', { key: '+' }));
check('a key zooms', view.zoom > 1, view.zoom);
map.dispatchEvent(new KeyboardEvent('keydown', { key: '0' }));
check('another shows all', view.zoom === 1, view.zoom);

for (const i of [0, 1, 4]) {
  pointer('pointermove', ...place(i).map((value) => value + 2));
  draw();
  const shown = tip.firstElementChild.textContent;
  const [a, b] = [tip, ring].map((part) => part.getBoundingClientRect());
  check('the tip does not lie on its point', a.right <= b.left || a.left >= b.right || a.bottom <= b.top || a.top >= b.bottom, '');
  check(`point ${i} tells its label`, !tip.hidden && hovered === i && shown === data.names[codes[i]], `${hovered} ${shown}`);
}
pointer('pointermove', ...place(3));
const said = [tip.firstElementChild.textContent, tip.lastElementChild.textContent];
check('a text of its own comes before the label', said[0] === 'the <i>fourth</i> & last' && said[1].startsWith(data.names[codes[3]]), said);
pointer('pointermove', ...place(5));
check('a point without a label says so', tip.firstElementChild.textContent === '(no label)', tip.firstElementChild.textContent);
map.dispatchEvent(new PointerEvent('pointerleave'));
draw();
check('outside there is no label', tip.hidden && ring.hidden, hovered);

const g = group[1];
click(button(g));
check('a legend entry goes off', on[g] === 0 && button(g).getAttribute('aria-pressed') === 'false', on[g]);
pointer('pointermove', ...place(1));
check('its points are not found', hovered !== 1, hovered);
check('nor seen', colourAt(1).every((value) => value > 250), colourAt(1));
click(button(g));
check('and on again', on[g] === 1 && button(g).getAttribute('aria-pressed') === 'true', on[g]);
click(button(g), 'dblclick');
check('a double click leaves it alone', groups.every((_, k) => on[k] === Number(k === g)), on.slice(0, groups.length));
click(element('all'));
check('all', groups.every((_, k) => on[k] === 1), on.slice(0, groups.length));
click(element('none'));
check('none', groups.every((_, k) => on[k] === 0), on.slice(0, groups.length));
click(element('all'));

check('the labels stand in the legend', groups.every((entry, k) => button(k).children[1].textContent === entry.name), '');
check('and on the map', names.length > 0 && names.every(({ label, point }) => data.names[codes[point]].startsWith(label.textContent.replace('\u2026', ''))), names.length);
check('nothing was loaded', performance.getEntriesByType('resource').length === 0, performance.getEntriesByType('resource').length);

report();
