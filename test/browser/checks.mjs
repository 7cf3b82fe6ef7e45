// Copyright The otelcol-serving Authors
// SPDX-License-Identifier: Apache-2.0

// What is asked of every page, whatever it shows.
import assert from 'node:assert/strict';
import axe from 'axe-core';
import { chromium } from 'playwright-core';

// Chromium without anything that talks to the network by itself.
export const launch = () => chromium.launch({
  executablePath: process.env.BROWSER_CHROMIUM,
  args: ['--no-sandbox', '--disable-gpu', '--disable-background-networking', '--disable-component-update', '--disable-sync', '--no-first-run', '--no-default-browser-check'],
});

export const screens = { desktop: { width: 1280, height: 900 }, phone: { width: 390, height: 844 } };

// open loads a page and watches what it does. faults are console errors, exceptions, failed requests and requests to others.
export const open = async (browser, url, options = {}) => {
  const context = await browser.newContext({ viewport: screens.desktop, reducedMotion: 'reduce', ...options });
  const page = await context.newPage();
  const faults = [];
  const host = new URL(url).host;
  page.on('console', (m) => { if (['error', 'warning'].includes(m.type())) faults.push(`console: ${m.text()}`); });
  page.on('pageerror', (e) => faults.push(`exception: ${e.message}`));
  page.on('requestfailed', (r) => faults.push(`failed: ${r.url()}`));
  page.on('request', (r) => { if (new URL(r.url()).host !== host) faults.push(`request to another host: ${r.url()}`); });
  page.on('response', (r) => { if (r.status() >= 400) faults.push(`${r.status()}: ${r.url()}`); });
  await page.goto(url, { waitUntil: 'load' });
  return { context, page, faults };
};

// settled waits until the charts are drawn, where there are any.
export const settled = (page) => page.waitForFunction(() => {
  const data = document.getElementById('engine-data');
  const plots = document.querySelectorAll('[data-plot]');
  return !data || plots.length === 0 || document.querySelector('.uplot') !== null;
});

// accessible runs axe-core and fails on what is serious or critical.
export const accessible = async (page) => {
  await page.evaluate(axe.source); // through the debugger, as the page's own policy lets no script in
  const { violations } = await page.evaluate(() => globalThis.axe.run(document, { resultTypes: ['violations'] }));
  const grave = violations.filter((v) => ['serious', 'critical'].includes(v.impact));
  assert.deepEqual(grave.map((v) => `${v.id}: ${v.nodes.slice(0, 4).map((n) => n.target.join(' ')).join('; ')}`), []);
};

// fits fails where the page is wider than the screen.
export const fits = async (page) => {
  const [width, screen] = await page.evaluate(() => [document.documentElement.scrollWidth, innerWidth]);
  assert.ok(width <= screen, `the page is ${width} px wide on a screen of ${screen}`);
};
