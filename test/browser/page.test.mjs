// Copyright The otelcol-serving Authors
// SPDX-License-Identifier: Apache-2.0

// The summary page in Chromium: every state on desktop and phone, light and dark, with and without JavaScript, and what a
// page does while it is open. run.sh starts the server of the states; BROWSER_URLS has more pages to check, as {"name": "url"}.
import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import { mkdirSync } from 'node:fs';
import { after, before, test } from 'node:test';
import { accessible, fits, launch, open, screens, settled } from './checks.mjs';

const states = JSON.parse(process.env.BROWSER_STATES);
const pages = { ...states, ...JSON.parse(process.env.BROWSER_URLS || '{}') };
const shots = new URL('./screenshots/', import.meta.url).pathname;
let browser;

before(async () => { mkdirSync(shots, { recursive: true }); browser = await launch(); });
after(() => browser.close());

for (const [name, url] of Object.entries(pages)) {
  for (const colorScheme of ['light', 'dark']) {
    for (const [screen, viewport] of Object.entries(screens)) {
      test(`${name}, ${colorScheme}, ${screen}`, async () => {
        const { context, page, faults } = await open(browser, url, { colorScheme, viewport });
        await settled(page);
        assert.equal(await page.locator('h1').count(), 1);
        assert.ok((await page.locator('h1').innerText()).trim().length > 3);
        await fits(page);
        await accessible(page);
        await page.screenshot({ path: `${shots}${name}-${colorScheme}-${screen}.png`, fullPage: true });
        assert.deepEqual(faults, []);
        await context.close();
      });
    }
  }
  test(`${name}, without JavaScript`, async () => {
    const { context, page, faults } = await open(browser, url, { javaScriptEnabled: false });
    assert.ok(await page.locator('h1').isVisible());
    assert.equal(await page.locator('.copy:visible').count(), 0, 'no button that does nothing');
    assert.equal(await page.locator('.zoom:visible').count(), 0);
    assert.equal(await page.locator('svg.chart:visible').count(), await page.locator('svg.chart').count(), 'all drawings are shown');
    assert.deepEqual(faults, []);
    await context.close();
  });
}

// What must be readable in each state, by eye and without a profiler.
for (const [state, texts] of Object.entries({
  no_source: ['No component reports here yet', 'summary: serving_summary'],
  empty: ['Ready, and nothing has arrived', 'processor/serving_metrics'],
  no_requests: ['412 spans, none is a request', 'What to look at', '--otlp-traces-endpoint'],
  collecting: ['Collecting the first figures', '17 requests', 'The first window closes'],
  host_bound: ['The device waits for its host', 'high confidence', '--no-enforce-eager', 'up to 1.72× throughput', 'Device busy', 'Capacity used', 'Where the time went', 'Queue and batch', 'Step law', 'What users felt', 'Anatomy of a request', 'Workload', 'What to do', 'How sure'],
  queue_admission: ['Requests wait for a place', '--max-num-seqs 512', 'medium confidence'],
  healthy: ['Healthy', 'Nothing needs to be changed'],
  idle: ['Far more engine than work'],
  overload: ['More comes in than goes out', 'Batch 163 is the most that meets 50 ms per token.'],
  bracket: ['1278–1660 requests', 'at least and at most, as some have not been seen'],
  least: ['at least 136 requests'],
  v1_only: ['Healthy, as far as V1 tells', 'Not known: this engine\'s spans do not say when the device worked', 'What would tell'],
  mixed: ['Several engines under one name', 'service.instance.id'],
  sampled: ['Only a sample of the requests comes here', 'Derive metrics before the sampler'],
  stale: ['Nothing heard for 14 min', 'All figures below are of the past'],
  fleet: ['3 of 8 engines need attention', 'Look at these first', 'Where they are'],
  fleet_healthy: ['All 3 engines are well'],
  hundred: ['24 of 100 engines need attention', '18 more in the table'],
})) {
  test(`${state} says what it must`, async () => {
    const { context, page } = await open(browser, states[state]);
    const shown = (await page.locator('body').innerText()).replaceAll('\u00a0', ' ');
    for (const text of texts) assert.ok(shown.includes(text), `${JSON.stringify(text)} is not shown`);
    await context.close();
  });
}

const refreshed = async (page, times = 1) => {
  for (let i = 0; i < times; i++) await page.waitForResponse((r) => r.url().includes('fragment=1'));
  await page.waitForTimeout(50);
};

test('a refresh keeps what the reader did', async () => {
  const { context, page, faults } = await open(browser, states.host_bound);
  await settled(page);
  await page.locator('#finding-2 > summary').click();
  await page.locator('#finding-1 > summary').click(); // closed
  await page.locator('#queue-how > summary').click();
  await page.evaluate(() => scrollTo(0, 1500));
  await page.locator('#todo-h').evaluate((e) => { e.marked = true; });
  await page.locator('#finding-2 .flag, #finding-2 summary').first().focus();
  const before = await page.evaluate(() => ({ y: scrollY, focus: document.activeElement.textContent, footer: document.querySelector('.foot time').dateTime }));
  await refreshed(page, 2);
  const after = await page.evaluate(() => ({ y: scrollY, focus: document.activeElement.textContent, footer: document.querySelector('.foot time').dateTime }));
  assert.notEqual(after.footer, before.footer, 'the figures are new');
  assert.equal(after.y, before.y);
  assert.equal(after.focus, before.focus);
  assert.equal(await page.locator('#finding-2').evaluate((e) => e.open), true);
  assert.equal(await page.locator('#finding-1').evaluate((e) => e.open), false);
  assert.equal(await page.locator('#queue-how').evaluate((e) => e.open), true);
  assert.equal(await page.locator('#todo-h').evaluate((e) => e.marked), true, 'what did not change was not made anew');
  assert.ok(await page.locator('.copy:visible').count() > 0);
  assert.deepEqual(faults, []);
  await context.close();
});

test('charts zoom, together, by mouse and by button, and stay so', async () => {
  const { context, page, faults } = await open(browser, states.host_bound);
  await settled(page);
  const labels = () => page.evaluate(() => [...document.querySelectorAll('.uplot-host')].length);
  const count = await labels();
  assert.ok(count >= 4, `${count} charts`);
  assert.equal(await page.locator('[data-plot] > svg:visible').count(), 0, 'the still ones are hidden');
  await page.locator('[data-zoom="600"]').focus();
  await page.keyboard.press('Enter');
  assert.equal(await page.locator('[data-zoom="600"]').getAttribute('aria-pressed'), 'true');
  await refreshed(page, 2);
  assert.equal(await page.locator('[data-zoom="600"]').getAttribute('aria-pressed'), 'true');
  assert.equal(await labels(), count, 'no chart twice, and none lost');
  await page.locator('[data-plot="queue"]').scrollIntoViewIfNeeded();
  const box = await page.locator('[data-plot="queue"] .u-over').boundingBox();
  const look = async () => createHash('sha256').update(await page.locator('[data-plot="ttft"] canvas').evaluate((c) => c.toDataURL())).digest('hex');
  const before = await look();
  await page.mouse.move(box.x + box.width * .3, box.y + 40);
  await page.mouse.down();
  await page.mouse.move(box.x + box.width * .7, box.y + 40, { steps: 5 });
  await page.mouse.up();
  await page.waitForTimeout(100);
  assert.notEqual(await look(), before, 'the others follow');
  assert.deepEqual(faults, []);
  await context.close();
});

// What the queue's chart draws at a window: the colours of its column from the baseline up, without those of text and grid.
const queueAt = (page, share) => page.locator('[data-plot="queue"]').evaluate((box, share) => {
  const canvas = box.querySelector('canvas'); const over = box.querySelector('.u-over').getBoundingClientRect(); const all = canvas.getBoundingClientRect();
  const ratio = canvas.width / all.width; const ctx = new OffscreenCanvas(canvas.width, canvas.height).getContext('2d', { willReadFrequently: true });
  ctx.drawImage(canvas, 0, 0);
  const x = Math.round((over.left - all.left + over.width * share) * ratio); const top = Math.round((over.top - all.top) * ratio); const height = Math.round(over.height * ratio);
  const data = ctx.getImageData(x, top, 1, height).data; const red = [];
  for (let y = height - 1; y >= 0; y--) red.push(data[4 * y + 3] > 0 && data[4 * y] > data[4 * y + 2] + 12);
  // From the baseline: how high the queue's colour is at its highest, as a share of the scale, and how much of that it fills.
  const highest = red.lastIndexOf(true); return { highest: (highest + 1) / height, filled: red.filter(Boolean).length / (highest + 1) };
}, share);

test('a queue of which a bracket is known is drawn as a band with a line through it', async () => {
  const { context, page, faults } = await open(browser, states.bracket);
  await settled(page);
  const still = page.locator('[data-plot="queue"] > svg');
  assert.ok((await still.locator('path.band.waiting').getAttribute('d')).length > 100);
  assert.ok((await still.locator('path.area.waiting').getAttribute('d')).match(/L| /g).length > 300, 'the line goes on without a number');
  assert.match(await still.locator('desc').textContent(), /waiting [\d\u202f]+–[\d\u202f]+ at the end/);
  const legend = await page.locator('[data-plot="queue"] .u-legend').innerText();
  for (const label of ['waiting, at most', 'waiting, at least', 'running, at most', 'running, at least']) assert.ok(legend.includes(label), label);
  // The scale is made for the upper end, of the time that is shown; up to there all is filled.
  const { history } = await page.evaluate(async () => (await fetch(document.getElementById('engine-data').dataset.api)).json());
  const upper = history.figures.requests_waiting_upper; const n = upper.length;
  for (const [shown, zoom] of [[n, '0'], [60, '600']]) {
    await page.locator(`[data-zoom="${zoom}"]`).click();
    const { highest, filled } = await queueAt(page, 1 - 5.5 / shown);
    const scale = 1.08 * Math.max(...upper.slice(n - shown)); const near = upper.slice(n - 7, n - 4);
    assert.ok(highest > Math.min(...near) / scale - .02 && highest < Math.max(...near) / scale + .02, `the upper end is drawn at ${highest} of the scale, and is ${near} of ${scale}`);
    assert.ok(filled > .9, `${filled} of what is below it is filled`);
  }
  assert.deepEqual(faults, []);
  await context.close();
});

test('a queue of which only the least is known is drawn', async () => {
  const { context, page, faults } = await open(browser, states.least);
  await settled(page);
  assert.equal(await page.locator('[data-plot="queue"] path.band.waiting').count(), 0);
  assert.match(await page.locator('[data-plot="queue"] desc').textContent(), /waiting at least\u00a0[\d\u202f]+ at the end/);
  const late = await queueAt(page, .98);
  assert.ok(late.highest > .3 && late.filled > .8, JSON.stringify(late));
  assert.deepEqual(faults, []);
  await context.close();
});

test('the fleet is sorted by queues of which a bracket is known', async () => {
  const { context, page } = await open(browser, `${states.fleet}?sort=waiting&dir=desc&view=fleet`);
  const column = (await page.locator('thead th').allInnerTexts()).findIndex((text) => text.includes('Waiting'));
  const shown = await page.locator('tbody tr').evaluateAll((rows, column) => rows.map((r) => r.children[column].innerText), column);
  assert.match(shown[0], /^\d+–\d+$/);
  assert.ok(shown.slice(1).every((text) => parseFloat(text) < 100), shown.join(', '));
  await context.close();
});

test('the strip is read under the pointer', async () => {
  const { context, page } = await open(browser, states.host_bound);
  await settled(page);
  await page.locator('[data-strip]').hover();
  assert.match(await page.locator('.strip-read').innerText(), /decode \d+ %.*host in executor \d+ %/);
  await context.close();
});

test('a lost connection is told, and found again', async () => {
  const { context, page } = await open(browser, states.host_bound);
  await refreshed(page);
  await page.route('**/*fragment=1*', (route) => route.abort());
  await page.locator('#live.lost').waitFor();
  assert.match(await page.locator('#live').innerText(), /^Connection lost, figures of \d\d:\d\d:\d\d$/);
  assert.match(await page.locator('[role="status"]').innerText(), /^Connection lost/);
  assert.ok(await page.locator('h1').isVisible(), 'the last figures stay');
  await page.unroute('**/*fragment=1*');
  await page.locator('#live.on').waitFor();
  assert.equal(await page.locator('[role="status"]').innerText(), '');
  await context.close();
});

test('a hidden page asks for nothing', async () => {
  const { context, page } = await open(browser, states.host_bound);
  await refreshed(page);
  let asked = 0;
  page.on('request', (r) => { if (r.url().includes('fragment=1')) asked++; });
  await page.evaluate(() => { Object.defineProperty(document, 'hidden', { value: true, configurable: true }); document.dispatchEvent(new Event('visibilitychange')); });
  await page.waitForTimeout(3 * Number(await page.locator('body').getAttribute('data-refresh')) * 1000);
  assert.equal(asked, 0);
  await page.evaluate(() => { delete document.hidden; document.dispatchEvent(new Event('visibilitychange')); });
  await refreshed(page);
  await context.close();
});

test('the keyboard leads through the fleet', async () => {
  const { context, page } = await open(browser, states.fleet);
  await page.keyboard.press('Tab');
  assert.equal(await page.evaluate(() => document.activeElement.textContent), 'Skip to the figures');
  await page.keyboard.press('Enter');
  await page.keyboard.press('Tab');
  assert.ok(await page.evaluate(() => document.activeElement.closest('main') !== null));
  await page.locator('th a', { hasText: 'Waiting' }).focus();
  await page.keyboard.press('Enter');
  await page.waitForURL(/sort=waiting/);
  assert.equal(await page.locator('th[aria-sort]').innerText(), 'Waiting ↓'.replace(' ↓', ''));
  await page.locator('tbody a').first().focus();
  await page.keyboard.press('Enter');
  await page.waitForURL(/engine=/);
  assert.equal(await page.locator('h1').innerText(), 'More comes in than goes out');
  await context.close();
});

test('settings can be copied', async () => {
  const { context, page } = await open(browser, states.host_bound, { permissions: ['clipboard-read', 'clipboard-write'] });
  await page.locator('.hero .copy').click();
  assert.equal(await page.evaluate(() => navigator.clipboard.readText()), '--no-enforce-eager');
  await page.locator('[data-copy-url*="markdown"]').click();
  await page.locator('.copy.done[data-copy-url]').waitFor();
  assert.match(await page.evaluate(() => navigator.clipboard.readText()), /^# llama-8b-0-7d9f: The device waits/);
  await context.close();
});

test('it prints with its still drawings', async () => {
  const { context, page } = await open(browser, states.host_bound);
  await settled(page);
  await page.emulateMedia({ media: 'print' });
  assert.equal(await page.locator('svg.chart:visible').count(), await page.locator('svg.chart').count());
  assert.equal(await page.locator('.uplot:visible').count(), 0);
  assert.equal(await page.locator('.copy:visible').count(), 0);
  await context.close();
});

test('text from spans is no code', async () => {
  let alerts = 0;
  const { context, page, faults } = await open(browser, `${states.hostile}?engine=evil-1`);
  page.on('dialog', (d) => { alerts++; d.dismiss(); });
  await refreshed(page, 2);
  assert.equal(alerts, 0);
  assert.equal(await page.locator('main script, main img').count(), 0);
  assert.deepEqual(faults, []);
  await context.close();
});
