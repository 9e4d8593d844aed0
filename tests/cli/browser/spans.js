// A map of numbers near the largest or the smallest of their type, in an .html plot.
const places = [...Array(count).keys()].map(place);
const wide = Math.max(...places.map(([x]) => x)) - Math.min(...places.map(([x]) => x));
check('the map fills the page', wide > 300 && wide < view.width, wide);
check('all points are on it', places.every(([x, y]) => x >= 0 && y >= 0 && x <= view.width && y <= view.height), places);
check('and are drawn', places.every((_, i) => colourAt(i).some((value) => value < 250)), places.map((_, i) => colourAt(i)));
hover(...place(1), 14);
const shown = tip.lastElementChild.textContent;
lines.push(`     ${tip.firstElementChild.textContent}, ${shown}`);
lines.push(`     shades ${[...shade].join(' ')}, ticks ${data.ticks.map((tick) => tick[1]).join(' ')}`);
report();
