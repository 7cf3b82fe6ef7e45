// Copyright The otelcol-serving Authors
// SPDX-License-Identifier: Apache-2.0

package main

// The results as Markdown.

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
)

// write writes all tables.
func (r *results) write(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "%s\n\n", r.plan.settings())
	aims := r.aims()
	r.summary(&b, aims)
	r.device(&b)
	r.others(&b)
	r.faults(&b)
	misses(&b, aims)
	_, err := io.WriteString(w, strings.TrimRight(b.String(), "\n")+"\n")
	return err
}

func row(b *strings.Builder, cells ...string) {
	fmt.Fprintf(b, "| %s |\n", strings.Join(cells, " | "))
}

func head(b *strings.Builder, cells ...string) {
	row(b, cells...)
	row(b, slices.Repeat([]string{"---"}, len(cells))...)
}

func number(format string, m mean) string {
	if m.n == 0 {
		return "-"
	}
	return fmt.Sprintf(format, m.value())
}

func (r *results) summary(b *strings.Builder, aims []aim) {
	b.WriteString("### Aims\n\n")
	head(b, "aim", "measured", "misses it", "")
	for _, a := range aims {
		misses := "-"
		if a.all > 0 {
			misses = fmt.Sprintf("%d of %d %s", a.missed, a.all, a.unit)
		}
		verdict := "met"
		if !a.met {
			verdict = "**missed**"
		}
		row(b, a.name, a.figure, misses, verdict)
	}
	b.WriteString("\n")
}

// device is the table of the device's utilisation: first by engine kind and load, then every cell.
func (r *results) device(b *strings.Builder) {
	var v0 []string
	for _, cfg := range r.plan.engines {
		if !cfg.Dialect.V1() {
			v0 = append(v0, cfg.Name)
		}
	}
	b.WriteString("### Device utilisation\n\n")
	if len(v0) == 0 {
		b.WriteString("None of these engine kinds reports forward times.\n\n")
		return
	}
	b.WriteString("Mean absolute error (bias) over all workloads:\n\n")
	columns := []string{"engine kind", "window"}
	for _, l := range r.plan.loads {
		columns = append(columns, fmt.Sprintf("%.0f %%", 100*l))
	}
	head(b, columns...)
	for _, engine := range v0 {
		for i, length := range windowLengths {
			cells := []string{engine, seconds(length)}
			for _, load := range r.plan.loads {
				var abs, bias mean
				for k := range r.cells {
					if c := &r.cells[k]; c.engine == engine && c.load == load {
						abs.merge(c.scores[i].deviceAbs)
						bias.merge(c.scores[i].bias)
					}
				}
				cells = append(cells, number("%.4f", abs)+" ("+number("%+.4f", bias)+")")
			}
			row(b, cells...)
		}
	}
	b.WriteString("\n*given*: share of windows with a figure; *MAE*, *bias*: of device utilisation; *in*: share of the windows given whose bracket holds the truth; *width*: the bracket's; *verdict*: \"waits for host\" right.\n\n")
	for _, engine := range v0 {
		fmt.Fprintf(b, "<details><summary>%s, every workload and load</summary>\n\n", engine)
		cells := []string{"workload", "load"}
		for _, length := range windowLengths {
			s := seconds(length)
			cells = append(cells, s+": windows", "given", "MAE", "bias", "in", "width", "verdict")
		}
		head(b, cells...)
		for k := range r.cells {
			c := &r.cells[k]
			if c.engine != engine {
				continue
			}
			cells := []string{c.workload, fmt.Sprintf("%.0f %%", 100*c.load)}
			for i := range c.scores {
				s := &c.scores[i]
				cells = append(cells, fmt.Sprint(s.windows), percent(s.given), number("%.4f", s.deviceAbs), number("%+.4f", s.bias),
					percent(s.inside), number("%.3f", s.width), percent(s.verdict))
			}
			row(b, cells...)
		}
		b.WriteString("\n</details>\n\n")
	}

	b.WriteString("Where the time went, 10 s: mean absolute error of each state's share of the window, all cells.\n\n")
	columns = []string{"engine kind"}
	for _, s := range comparedStates {
		columns = append(columns, s.String())
	}
	head(b, columns...)
	for _, engine := range v0 {
		all := r.total(engine, 0)
		cells := []string{engine}
		for _, s := range comparedStates {
			cells = append(cells, number("%.4f", all.states[s]))
		}
		row(b, cells...)
	}
	b.WriteString("\n")
}

func seconds(d time.Duration) string { return fmt.Sprintf("%.0f s", d.Seconds()) }

// total is all cells of an engine kind together.
func (r *results) total(engine string, length int) *score {
	var s score
	for k := range r.cells {
		if c := &r.cells[k]; c.engine == engine {
			s.merge(&c.scores[length])
		}
	}
	return &s
}

// others are the figures besides the device's, by engine kind.
func (r *results) others(b *strings.Builder) {
	b.WriteString("### Requests, steps, capacity, completeness\n\n")
	b.WriteString("Mean absolute errors over all cells, then the worst cell's. *given*: share of windows with a figure, the errors are theirs; *bracket*: share of windows with both ends; *in*: share of windows whose bracket holds the truth, to one request (running: and 1 %); *middle*: relative error of the middle of the bracket where 20 or more wait; *step given*: share of the windows with 20 decode steps that have a step, *least*: in a cell; *step*, *tokens* (output tokens per second), *capacity*: relative; *admitted*: share of windows in which the guard admits a capacity; *late*: requests that came too late for a window.\n\n")
	for i, length := range windowLengths {
		fmt.Fprintf(b, "%s windows:\n\n", seconds(length))
		head(b, "engine kind", "running: mean of truth", "given", "error", "worst", "in", "waiting: mean of truth", "given", "error", "worst", "in", "middle", "step", "bias", "worst", "step given", "least", "tokens", "worst", "capacity", "worst", "admitted", "completeness", "worst", "late", "windows")
		for _, cfg := range r.plan.engines {
			all := r.total(cfg.Name, i)
			worst := func(format string, of func(s *score) mean) string {
				var worst mean
				for k := range r.cells {
					if c := &r.cells[k]; c.engine == cfg.Name {
						if m := of(&c.scores[i]); m.n > 0 && (worst.n == 0 || m.value() > worst.value()) {
							worst = m
						}
					}
				}
				return number(format, worst)
			}
			least := mean{}
			for k := range r.cells {
				if g := r.cells[k].scores[i].stepGiven; r.cells[k].engine == cfg.Name && g.n > 0 && (least.n == 0 || g.value() < least.value()) {
					least = g
				}
			}
			row(
				b, cfg.Name,
				number("%.1f", all.runningTruth), percent(all.runningGiven), number("%.2f", all.running), worst("%.2f", func(s *score) mean { return s.running }), percent(all.runningInside),
				number("%.1f", all.waitingTruth), percent(all.waitingGiven), number("%.2f", all.waiting), worst("%.2f", func(s *score) mean { return s.waiting }), percent(all.waitingInside), number("%.3f", all.waitingMiddle),
				number("%.4f", all.step), number("%+.4f", all.stepBias), worst("%.4f", func(s *score) mean { return s.step }),
				percent(all.stepGiven), percent(least),
				number("%.4f", all.output), worst("%.4f", func(s *score) mean { return s.output }),
				number("%.3f", all.capacity), worst("%.3f", func(s *score) mean { return s.capacity }), percent(all.admitted),
				number("%.4f", all.completeness), worst("%.4f", func(s *score) mean { return s.completeness }),
				fmt.Sprint(all.late), fmt.Sprint(all.windows),
			)
		}
		b.WriteString("\n")
	}

	b.WriteString("By load, all engine kinds, 10 s:\n\n")
	head(b, "load", "running: mean of truth", "given", "error", "in", "waiting: mean of truth", "given", "error", "bracket", "in", "middle", "step", "bias", "step given", "tokens", "capacity", "admitted", "completeness")
	for _, load := range r.plan.loads {
		var all score
		for k := range r.cells {
			if c := &r.cells[k]; c.load == load {
				all.merge(&c.scores[0])
			}
		}
		row(b, fmt.Sprintf("%.0f %%", 100*load), number("%.1f", all.runningTruth), percent(all.runningGiven), number("%.2f", all.running), percent(all.runningInside),
			number("%.1f", all.waitingTruth), percent(all.waitingGiven), number("%.2f", all.waiting), percent(all.waitingBounded), percent(all.waitingInside), number("%.3f", all.waitingMiddle),
			number("%.4f", all.step), number("%+.4f", all.stepBias), percent(all.stepGiven), number("%.4f", all.output), number("%.3f", all.capacity), percent(all.admitted), number("%.4f", all.completeness))
	}

	r.capacities(b)

	b.WriteString("\nWindows closed too early on purpose (chat/poisson): completeness said, and its error over a run.\n\n")
	columns := []string{"engine kind"}
	for _, g := range graces {
		columns = append(columns, "grace "+seconds(g), "error")
	}
	head(b, columns...)
	for k, cfg := range r.plan.engines {
		cells := []string{cfg.Name}
		for i := range graces {
			e := &r.early[k*len(graces)+i]
			cells = append(cells, number("%.3f", e.said), number("%.3f", e.err))
		}
		row(b, cells...)
	}
	b.WriteString("\n")
}

// capacities is the capacity by who is told what, of the windows that each has a figure or a bracket in.
func (r *results) capacities(b *strings.Builder) {
	b.WriteString("\nCapacity, 10 s windows, the KV cache's tokens told and not told. *one figure*: share of all windows, *error* and *worst* cell of it; *bracket*: share of all windows, *in*: the truth in it or within 5 % of it, *width*: half of it over its middle. First by engine kind at 50 % load or more, then all engine kinds by load.\n\n")
	head(b, "engine kind or load", "told: one figure", "error", "worst", "bracket", "in", "width", "not told: one figure", "error", "worst", "bracket", "in", "width")
	line := func(name string, in func(c *cell) bool) {
		var told, untold score
		var worst [2]mean
		for k := range r.cells {
			c := &r.cells[k]
			if !in(c) {
				continue
			}
			told.merge(&c.scores[0])
			untold.merge(&c.untold)
			for i, m := range []mean{c.scores[0].capacity, c.untold.capacity} {
				if m.n > 0 && (worst[i].n == 0 || m.value() > worst[i].value()) {
					worst[i] = m
				}
			}
		}
		cells := []string{name}
		for i, s := range []*score{&told, &untold} {
			cells = append(cells, percent(s.admitted), number("%.3f", s.capacity), number("%.3f", worst[i]), percent(s.capacityGiven), percent(s.capacityInside), number("%.2f", s.capacityWidth))
		}
		row(b, cells...)
	}
	const half = 0.5
	for _, cfg := range r.plan.engines {
		line(cfg.Name, func(c *cell) bool { return c.engine == cfg.Name && c.load >= half })
	}
	for _, load := range r.plan.loads {
		line(fmt.Sprintf("%.0f %%", 100*load), func(c *cell) bool { return c.load == load })
	}
}

// faults are the runs whose input is at fault, and the findings in those whose input is not.
func (r *results) faults(b *strings.Builder) {
	b.WriteString("### Faulty input\n\n")
	fmt.Fprintf(b, "Four engines under one key, chat/poisson and chat/bursty, runs of %v. *needed*: requests received when the first window was flagged, median and most.\n\n", r.plan.faultDuration)
	head(b, "engine kind", fmt.Sprintf("found, runs of >= %d requests", enoughRequests), "found, shorter runs", "needed", "device figures in flagged windows")
	for _, p := range r.pooled {
		needed := "-"
		if n := len(p.needed); n > 0 {
			slices.Sort(p.needed)
			needed = fmt.Sprintf("%d, %d", p.needed[n/2], p.needed[n-1])
		}
		row(b, p.engine, fmt.Sprintf("%d of %d", p.enoughFlagged, p.enough), fmt.Sprintf("%d of %d", p.fewFlagged, p.few), needed, fmt.Sprint(p.figures))
	}
	b.WriteString("\nA tenth of the requests, chat/poisson. *given*: share of windows with device figures or a capacity; *MAE*: of device utilisation where it was given; *running*: mean relative error of a run's running requests.\n\n")
	head(b, "engine kind", "case", "flagged at the end", "windows flagged", "given", "MAE", "running")
	for _, s := range r.sampled {
		row(b, s.engine, s.name, fmt.Sprintf("%d of %d runs", s.flaggedRuns, s.runs), percent(s.flagged), percent(s.windows), number("%.3f", s.deviceAbs), number("%.3f", s.running))
	}

	b.WriteString("\nFindings where nothing is wrong: share of all windows of single engines, all requests received.\n\n")
	columns := []string{"engine kind"}
	for _, f := range flagNames {
		columns = append(columns, f.name)
	}
	head(b, columns...)
	findings := func(name string, s *score) {
		cells := []string{name}
		for _, f := range flagNames {
			cells = append(cells, percent(mean{s.closed, float64(s.flags[f.flag])}))
		}
		row(b, cells...)
	}
	for _, cfg := range r.plan.engines {
		s := r.total(cfg.Name, 0)
		s.merge(r.total(cfg.Name, 1))
		findings(cfg.Name, s)
	}
	s := r.apiServers.scores[0]
	s.merge(&r.apiServers.scores[1])
	findings("v1, four API servers", &s)
	b.WriteString("\n")
}

// mostMisses is the number of cells listed that miss an aim.
const mostMisses = 12

// misses lists the cells that miss an aim, the worst first.
func misses(b *strings.Builder, aims []aim) {
	b.WriteString("### Cells that miss an aim\n\n")
	any := false
	for _, a := range aims {
		if len(a.worst) == 0 {
			continue
		}
		any = true
		slices.SortStableFunc(a.worst, func(x, y miss) int {
			dx, dy := distance(x), distance(y)
			switch {
			case dx > dy:
				return -1
			case dx < dy:
				return 1
			}
			return 0
		})
		fmt.Fprintf(b, "%s:\n\n", a.name)
		head(b, "engine kind", "workload", "load", "measured", "limit")
		for _, m := range a.worst[:min(len(a.worst), mostMisses)] {
			row(b, m.cell.engine, m.cell.workload, fmt.Sprintf("%.0f %%", 100*m.cell.load), fmt.Sprintf("%.4g", m.value), fmt.Sprintf("%.4g", m.limit))
		}
		if n := len(a.worst) - mostMisses; n > 0 {
			fmt.Fprintf(b, "\nand %d more.\n", n)
		}
		b.WriteString("\n")
	}
	if !any {
		b.WriteString("None.\n")
	}
}

// distance is how far a figure is from its limit, relative to it where there is one.
func distance(m miss) float64 {
	d := m.value - m.limit
	if d < 0 {
		d = -d
	}
	if m.limit != 0 {
		d /= m.limit
	}
	return d
}
