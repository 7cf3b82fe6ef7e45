// Copyright The otelcol-serving Authors
// SPDX-License-Identifier: Apache-2.0

// What a script adds to a page that is whole without it: new figures without a reload, charts to zoom into, times in the
// reader's zone, and buttons that copy. uPlot and Idiomorph are loaded before.
(() => {
  'use strict';
  const content = document.getElementById('content');
  const live = document.getElementById('live');
  const alert = document.getElementById('alert');
  const liveText = live && live.querySelector('[data-live-text]');
  const refresh = Number(document.body.dataset.refresh) * 1000;
  const calm = matchMedia('(prefers-reduced-motion: reduce)');
  const localClock = new Intl.DateTimeFormat(undefined, { hour: '2-digit', minute: '2-digit', second: '2-digit', hourCycle: 'h23' });

  // Times: the server writes UTC, as it does not know the reader's zone.
  const localise = (root) => {
    for (const t of root.querySelectorAll('time[datetime]')) {
      const d = new Date(t.dateTime);
      if (!Number.isNaN(d.getTime())) { t.textContent = localClock.format(d); t.title = d.toString(); }
    }
  };

  // Copying.
  const showCopy = (root) => { for (const b of root.querySelectorAll('.copy')) b.hidden = false; };
  document.addEventListener('click', async (event) => {
    const button = event.target.closest('.copy');
    if (!button) return;
    const before = button.dataset.label || button.textContent;
    button.dataset.label = before;
    try {
      let text = button.dataset.copy;
      if (button.dataset.copyUrl) {
        const answer = await fetch(button.dataset.copyUrl);
        if (!answer.ok) throw new Error(answer.statusText);
        text = await answer.text();
      }
      await write(text);
      button.textContent = 'Copied'; button.classList.add('done');
    } catch {
      button.textContent = 'Not copied';
    }
    setTimeout(() => { button.textContent = before; button.classList.remove('done'); }, 1800);
  });
  const write = async (text) => {
    if (navigator.clipboard) return navigator.clipboard.writeText(text);
    const area = document.createElement('textarea'); // over plain HTTP there is no clipboard API
    area.value = text; area.className = 'vh'; document.body.append(area); area.select();
    const ok = document.execCommand('copy'); area.remove();
    if (!ok) throw new Error('no clipboard');
  };

  // Charts.
  const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const fade = (c, share) => `color-mix(in srgb, ${c} ${share}%, transparent)`;
  const seconds = (v) => v == null ? '–' : v === 0 ? '0 s' : v < 0.0009995 ? `${+(v * 1e6).toPrecision(3)} µs` : v < 0.9995 ? `${+(v * 1e3).toPrecision(3)} ms` : v < 119.5 ? `${+v.toPrecision(3)} s` : `${+(v / 60).toPrecision(3)} min`;
  const percent = (v) => v == null ? '–' : `${+(v * 100).toFixed(v < 0.1 ? 1 : 0)} %`;
  const number = (v) => v == null ? '–' : String(+v.toPrecision(3));
  const plots = new Map(); // by the chart's name
  let report = null; let version = ''; let range = 0; let zoomed = null;
  const sync = window.uPlot && uPlot.sync('time');

  // Requests that wait or run in a window: the number, or the middle of its bracket, or how many at least.
  const requests = (r, name, i) => {
    const [mean, lower, upper] = ['mean', 'lower', 'upper'].map((end) => r.history.figures[`requests_${name}_${end}`]?.[i] ?? null);
    return { value: mean ?? (lower !== null && upper !== null ? (lower + upper) / 2 : lower), top: mean ?? upper ?? lower ?? 0 };
  };

  const kinds = {
    busy: (r) => ({
      height: 150, format: percent, top: 1, x: r.history.end, shift: -r.history.window_seconds / 2,
      lines: [['upper', 'device_utilization_upper', null], ['lower', 'device_utilization_lower', null], ['a request ran', 'occupancy', '--occupied', [4, 3]], ['device busy', 'device_utilization', '--running']]
        .map(([label, key, c, dash]) => ({ label, values: r.history.figures[key], colour: c, dash })),
      bands: [[1, 2, '--device-1']],
    }),
    queue: (r) => ({
      height: 200, format: number, x: r.history.end, shift: -r.history.window_seconds / 2,
      lines: [
        ...['waiting', 'running'].flatMap((name) => [['at most', 'upper'], ['at least', 'lower']].map(([label, end]) => ({ label: `${name}, ${label}`, values: r.history.figures[`requests_${name}_${end}`], colour: null }))),
        ...[['waiting', '--queue', true], ['running', '--running', false]].map(([name, c, fill]) => ({ label: name, values: r.history.end.map((t, i) => requests(r, name, i).value), colour: c, fill })),
      ],
      bands: [[1, 2, '--queue'], [3, 4, '--running']],
      // The bracket of a window whose number is known may go beyond the scale.
      reach: (from, to) => report.history.end.reduce((top, t, i) => t < from || t > to ? top : Math.max(top, requests(report, 'waiting', i).top, requests(report, 'running', i).top), 0),
    }),
  };
  for (const name of ['ttft', 'tpot', 'e2e']) {
    kinds[name] = (r) => ({
      height: 140, format: seconds, x: r.history.minutes.end, shift: -30,
      lines: [['p99', '--critical'], ['p95', '--host-2'], ['p50', '--running']].map(([p, c]) => ({ label: p, values: r.history.minutes[`${name}_${p}`], colour: c })),
    });
  }

  const bounds = (x) => {
    const end = report.history.end.at(-1) || x.at(-1);
    if (range) return [end - range, end];
    return [Math.max(Math.min(report.history.end[0] - report.history.window_seconds, end - 600), end - 3600), end];
  };
  const shown = (x) => zoomed || bounds(x);
  const dataOf = (k) => [k.x.map((t) => t + k.shift), ...k.lines.map((l) => l.values || k.x.map(() => null))];

  const options = (box, k) => {
    const text = colour('--faint'); const grid = colour('--hair'); const font = '12px system-ui, sans-serif';
    const limit = box.dataset.limit ? Number(box.dataset.limit) : null;
    return {
      width: box.clientWidth, height: k.height, padding: [8, 18, 0, 0],
      cursor: { sync: { key: 'time', setSeries: false }, drag: { x: true, y: false, setScale: false }, points: { size: 7 } },
      legend: { live: true, isolate: false },
      scales: { x: { time: true, range: (u) => shown(u.data[0]) }, y: { range: (u, min, max) => {
        const most = (k.reach ? k.reach(...shown(u.data[0])) : max) || 0;
        return [0, k.top || Math.max(most, limit && limit < most * 2.5 ? limit : 0) * 1.08 || 1];
      } } },
      axes: [
        { stroke: text, grid: { stroke: grid, width: 1 }, ticks: { show: false }, font, size: 26, space: 70, values: (u, ts) => ts.map((t) => localClock.format(new Date(t * 1000)).slice(0, 5)) },
        { stroke: text, grid: { stroke: grid, width: 1 }, ticks: { show: false }, font, size: 58, space: 34, values: (u, vs) => vs.map(k.format) },
      ],
      bands: (k.bands || []).map(([above, below, c]) => ({ series: [above, below], fill: fade(colour(c), 22) })),
      series: [{ value: (u, t) => t == null ? '–' : localClock.format(new Date(t * 1000)) }, ...k.lines.map((l) => ({
        label: l.label, stroke: l.colour ? colour(l.colour) : 'transparent', width: l.colour ? 2 : 0, dash: l.dash, fill: l.fill ? fade(colour(l.colour), 28) : undefined,
        points: { show: false }, value: (u, v) => k.format(v),
      }))],
      hooks: {
        setSelect: [(u) => {
          if (u.select.width < 4) return;
          zoomed = [u.posToVal(u.select.left, 'x'), u.posToVal(u.select.left + u.select.width, 'x')];
          u.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
          showRange();
        }],
        draw: [(u) => {
          if (!limit || limit > u.scales.y.max) return;
          const y = u.valToPos(limit, 'y', true); const c = u.ctx; const { left, width } = u.bbox; const ratio = devicePixelRatio;
          c.save(); c.strokeStyle = c.fillStyle = colour('--limit'); c.lineWidth = 1.5 * ratio; c.setLineDash([6 * ratio, 4 * ratio]);
          c.beginPath(); c.moveTo(left, y); c.lineTo(left + width, y); c.stroke();
          c.font = `600 ${12 * ratio}px system-ui, sans-serif`; c.textAlign = 'right'; c.setLineDash([]);
          const at = [box.dataset.limitLabel, left + width, Math.max(y - 6 * ratio, 12 * ratio)];
          c.strokeStyle = colour('--card'); c.lineWidth = 4 * ratio; c.lineJoin = 'round'; c.strokeText(...at); c.fillText(...at); c.restore();
        }],
      },
    };
  };

  // Zooming one chart zooms all; double click shows all again.
  const showRange = () => { for (const u of plots.values()) { const [min, max] = shown(u.data[0]); u.setScale('x', { min, max }); } };

  const draw = () => {
    if (!report || !window.uPlot) return;
    for (const box of content.querySelectorAll('[data-plot]')) {
      const name = box.dataset.plot;
      const kind = kinds[name] && kinds[name](report);
      if (!kind || kind.x.length < 2 || !kind.lines.some((l) => l.values)) continue;
      const old = plots.get(name);
      if (old && old.root.isConnected) {
        old.setData(dataOf(kind));
        continue;
      }
      const host = document.createElement('div');
      host.className = 'uplot-host'; host.setAttribute('aria-hidden', 'true');
      box.append(host); box.dataset.live = '';
      const u = new uPlot(options(box, kind), dataOf(kind), host);
      u.over.addEventListener('dblclick', () => { zoomed = null; showRange(); });
      plots.set(name, u);
    }
    for (const z of content.querySelectorAll('.zoom')) z.hidden = plots.size === 0;
  };
  const redraw = () => { for (const u of plots.values()) { u.root.parentElement.remove(); u.destroy(); } plots.clear(); draw(); };
  const load = async () => {
    const engine = document.getElementById('engine-data');
    if (!engine || engine.dataset.version === version) return;
    const answer = await fetch(engine.dataset.api);
    if (!answer.ok) return;
    report = await answer.json();
    version = engine.dataset.version;
    draw();
  };
  content.addEventListener('click', (event) => {
    const button = event.target.closest('[data-zoom]');
    if (!button || !report) return;
    range = Number(button.dataset.zoom); zoomed = null;
    press();
    showRange();
  });
  const press = () => { for (const b of content.querySelectorAll('[data-zoom]')) b.setAttribute('aria-pressed', String(Number(b.dataset.zoom) === range)); };
  let width = innerWidth;
  addEventListener('resize', () => { if (innerWidth !== width) { width = innerWidth; for (const u of plots.values()) u.setSize({ width: u.root.parentElement.parentElement.clientWidth, height: u.height }); } });
  matchMedia('(prefers-color-scheme: dark)').addEventListener('change', redraw);

  // Reading the strip under the pointer.
  const labels = { decode: 'decode', prefill: 'prefill', occupied: 'a request ran', execute_host: 'host in executor', scheduler: 'scheduler', host_other: 'other host', unknown: 'withheld', idle: 'nothing to do' };
  content.addEventListener('pointermove', (event) => {
    const box = event.target.closest('[data-strip]');
    for (const other of content.querySelectorAll('[data-strip]')) if (other !== box) unread(other);
    if (!box || !report || !report.history.end.length) return;
    const h = report.history; const rect = box.getBoundingClientRect();
    const end = h.end.at(-1); const start = Math.max(Math.min(h.end[0] - h.window_seconds, end - 600), end - 3600);
    const t = start + (event.clientX - rect.left) / rect.width * (end - start);
    const i = h.end.findIndex((e) => e >= t);
    if (i < 0 || t < h.end[i] - h.window_seconds) { unread(box); return; }
    const words = Object.keys(labels).filter((s) => h.states[s] && h.states[s][i] >= 0.005).map((s) => `${labels[s]} ${percent(h.states[s][i])}`);
    let read = box.querySelector('.strip-read'); let line = box.querySelector('.strip-line');
    if (!read) {
      read = document.createElement('div'); read.className = 'strip-read'; read.setAttribute('aria-hidden', 'true');
      line = document.createElement('div'); line.className = 'strip-line'; box.append(line, read);
    }
    read.textContent = `${localClock.format(new Date(h.end[i] * 1000))}  ${words.join(' · ')}`;
    const x = Math.max(0, Math.min(rect.width, event.clientX - rect.left)); const half = read.offsetWidth / 2;
    line.style.left = `${x}px`; line.style.height = '200px';
    read.style.left = `${Math.max(half - 8, Math.min(rect.width - half + 8, x))}px`;
  });
  const unread = (box) => { for (const n of box.querySelectorAll('.strip-read, .strip-line')) n.remove(); };
  content.addEventListener('pointerleave', () => { for (const box of content.querySelectorAll('[data-strip]')) unread(box); });

  // New figures.
  const kept = (node) => node.nodeType === 1 && (node.classList.contains('uplot-host') || node.classList.contains('strip-read') || node.classList.contains('strip-line'));
  const morph = (html) => {
    Idiomorph.morph(content, html, {
      morphStyle: 'innerHTML',
      restoreFocus: true,
      callbacks: {
        beforeNodeRemoved: (node) => !kept(node),
        beforeAttributeUpdated: (name, node) => !(name === 'open' && node.tagName === 'DETAILS') && name !== 'data-live'
          && !(name === 'hidden' && (node.classList.contains('copy') || node.classList.contains('zoom')))
          && !(name === 'aria-pressed'),
        beforeNodeMorphed: (node) => !(node.nodeType === 1 && node.classList.contains('copy') && node.dataset.label && node.textContent !== node.dataset.label) && !(kept(node)),
      },
    });
    localise(content); showCopy(content); press();
  };
  let figuresOf = live && live.querySelector('time') ? new Date(live.querySelector('time').dateTime) : null;
  const tell = (state, text) => {
    if (!live) return;
    live.className = `live ${state}`;
    if (liveText.textContent !== text) liveText.textContent = text;
    // Only trouble is read out, and once; the time alone would be a nuisance.
    const said = state === 'lost' ? text : '';
    if (alert.textContent !== said) alert.textContent = said;
  };
  const alive = () => `Live${innerWidth < 640 ? '' : ', figures of'} ${localClock.format(figuresOf)}`;
  let timer = 0; let running = false;
  const update = async () => {
    if (running || document.hidden) return;
    running = true;
    const gone = new AbortController(); const limit = setTimeout(() => gone.abort(), Math.max(refresh, 15000));
    try {
      const at = new URL(location.href); at.searchParams.set('fragment', '1'); at.hash = '';
      const answer = await fetch(at, { signal: gone.signal, headers: { Accept: 'text/html' } });
      if (!answer.ok && answer.status !== 404) throw new Error(answer.statusText);
      const html = await answer.text();
      if (answer.ok) {
        morph(html);
        const time = content.querySelector('.foot time');
        if (time) figuresOf = new Date(time.dateTime);
        tell('on fresh', alive());
        if (!calm.matches) setTimeout(() => live.classList.remove('fresh'), 1000);
        await load();
      } else {
        tell('lost', `This engine is no longer known, figures of ${localClock.format(figuresOf)}`);
      }
    } catch {
      tell('lost', `Connection lost, figures of ${figuresOf ? localClock.format(figuresOf) : 'before'}`);
    } finally {
      clearTimeout(limit); running = false;
    }
  };
  const schedule = () => { clearInterval(timer); if (refresh > 0 && !document.hidden) timer = setInterval(update, refresh); };
  document.addEventListener('visibilitychange', () => { schedule(); if (!document.hidden && refresh > 0) update(); });

  localise(document); showCopy(content); press();
  if (live && refresh > 0) tell('on', alive());
  load().catch(() => {});
  schedule();
})();
