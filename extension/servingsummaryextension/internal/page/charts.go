// Copyright The otelcol-serving Authors
// SPDX-License-Identifier: Apache-2.0

package page

// Figures over the last hour: where the time went, lines, and the step law.

import (
	"fmt"
	"html/template"
	"math"
	"strconv"
	"strings"

	"github.com/otelcol-serving/otelcol-serving/internal/summary"
)

// axisHeight is the room below a chart for the time.
const axisHeight = 22

// timeAxis is a span of time from the end of the first column's begin to the last column's end, of at least ten minutes.
type timeAxis struct {
	start, end float64 // Unix seconds
	column     float64 // length of a column, s
}

func newTimeAxis(end []int64, column float64) timeAxis {
	if len(end) == 0 || column <= 0 {
		return timeAxis{0, 600, 10}
	}
	last := float64(end[len(end)-1])
	first := math.Min(float64(end[0])-column, last-600)
	return timeAxis{math.Max(first, last-3600), last, column}
}

// at is the place of a moment, 0 to 1.
func (a timeAxis) at(t float64) float64 { return (t - a.start) / (a.end - a.start) }

// labels are written below a chart that is height high, as minutes before its end.
func (a timeAxis) labels(d *drawing, height float64) {
	minutes := (a.end - a.start) / 60
	step := 15.0
	switch {
	case minutes <= 12:
		step = 2
	case minutes <= 31:
		step = 5
	}
	for m := 0.0; m <= minutes+.01; m += step {
		x := 1 - m/minutes
		anchor, label := "middle", "−"+num(m)+" min"
		switch {
		case m == 0:
			anchor, label = "end", "now"
		case x < .04:
			x, anchor = 0, "start"
		}
		class := "axis"
		if m != 0 && int(m/step)%2 == 1 && minutes/step > 3 {
			class = "axis minor"
		}
		if m > 0 {
			d.f(`<line class="grid" x1="%s" x2="%s" y1="0" y2="%s"/>`, pct(x), pct(x), num(height))
		}
		d.f(`<text class="%s" x="%s" y="%s" text-anchor="%s">%s</text>`, class, pct(x), num(height+16), anchor, label)
	}
}

// timeStrip is where each window's time went, 100 % high.
func timeStrip(id string, h *summary.History) template.HTML {
	const height, ribbon = 200.0, 10.0
	var d drawing
	axis := newTimeAxis(h.End, h.WindowSeconds)
	d.open(id, "chart strip", element(`width="100%%" height="%s"`, num(height+ribbon+4+axisHeight)), "Where the time went", stripWords(h))
	d.f(`<svg width="100%%" height="%s" viewBox="0 0 3600 1000" preserveAspectRatio="none">`, num(height))
	// Each area is drawn down to the baseline, those on top first.
	sums := make([]float64, len(h.End))
	var layers []markup
	for _, s := range states {
		values, ok := h.States[s.name]
		if !ok || !anyPositive(values) {
			continue
		}
		for i := range sums {
			if i < len(values) {
				sums[i] += values[i]
			}
		}
		var p strings.Builder
		x, y := -1, -1
		for i, end := range h.End {
			x0, x1 := stripX(axis, float64(end)-h.WindowSeconds), stripX(axis, float64(end))
			top := 1000 - int(math.Round(1000*clamp(sums[i], 0, 1)))
			if x1 <= 0 || x1 <= x0 {
				continue
			}
			if x0 != x { // the first, or after a gap
				if x >= 0 {
					p.WriteString("V1000z")
				}
				fmt.Fprintf(&p, "M%d 1000V%d", x0, top)
			} else if top != y {
				p.WriteString("V" + strconv.Itoa(top))
			}
			p.WriteString("H" + strconv.Itoa(x1))
			x, y = x1, top
		}
		if x >= 0 {
			layers = append(layers, element(`<path class="st-%s" d="%sV1000z"><title>%s: %s</title></path>`, s.name, p.String(), s.label, s.what))
		}
	}
	for i := len(layers) - 1; i >= 0; i-- {
		d.WriteString(string(layers[i]))
	}
	d.WriteString(`</svg>`)
	// What was not seen enough of is provisional; what is withheld is hatched too.
	d.f(`<defs><pattern id="%s-h" width="7" height="7" patternUnits="userSpaceOnUse" patternTransform="rotate(45)"><rect class="hatch" width="2" height="7"/></pattern></defs>`, id)
	completeness := h.Figures["completeness"]
	for i := 0; i < len(h.End); i++ {
		from := i
		for i < len(h.End) && i < len(completeness) && known(completeness[i]) && *completeness[i] < provisional {
			i++
		}
		if i > from {
			x := axis.at(float64(h.End[from]) - h.WindowSeconds)
			d.f(`<rect x="%s" width="%s" height="%s" fill="url(#%s-h)"><title>Provisional: less than 95 %% of the running time had been seen</title></rect>`, pct(x), pct(axis.at(float64(h.End[i-1]))-x), num(height), id)
		}
	}
	for _, v := range []float64{.25, .5, .75} {
		y := height * (1 - v)
		d.f(`<line class="grid over" x1="0" x2="100%%" y1="%s" y2="%s"/>`, num(y), num(y))
	}
	for _, v := range []float64{.5, 1} {
		d.f(`<text class="axis inside" x="6" y="%s">%s</text>`, num(height*(1-v)+14), percent(v))
	}
	for _, run := range verdictRuns(h) {
		x := axis.at(float64(h.End[run.from]) - h.WindowSeconds)
		d.f(`<rect class="ribbon sev-%s" x="%s" y="%s" width="%s" height="%s"><title>%s for %s</title></rect>`,
			severityOf(run.verdict), pct(x), num(height+3), pct(axis.at(float64(h.End[run.to]))-math.Max(x, 0)), num(ribbon),
			verdictLabel(run.verdict), span(secondsOf(h.WindowSeconds*float64(run.to-run.from+1))))
	}
	axis.labels(&d, height+ribbon+4)
	return d.done()
}

// provisional is the completeness below which a window may still change what it means.
const provisional = 0.95

func stripX(a timeAxis, t float64) int { return int(math.Round(3600 * clamp(a.at(t), 0, 1))) }

func anyPositive(values []float64) bool {
	for _, v := range values {
		if v > 0 {
			return true
		}
	}
	return false
}

type verdictRun struct {
	verdict  string
	from, to int
}

func verdictRuns(h *summary.History) (runs []verdictRun) {
	for i := range min(len(h.Verdicts), len(h.End)) {
		if n := len(runs); n > 0 && runs[n-1].verdict == h.Verdicts[i] && h.End[i]-h.End[i-1] <= int64(math.Ceil(h.WindowSeconds))+1 {
			runs[n-1].to = i
			continue
		}
		runs = append(runs, verdictRun{h.Verdicts[i], i, i})
	}
	return runs
}

func stripWords(h *summary.History) string {
	words := []string{}
	for _, s := range states {
		if m, ok := mean(h.States[s.name]); ok && m > 0 {
			words = append(words, s.label+" "+percent(m))
		}
	}
	text := "Means of the shown time: " + strings.Join(words, ", ") + "."
	if runs := verdictRuns(h); len(runs) > 0 {
		text += " Verdict now: " + verdictLabel(runs[len(runs)-1].verdict) + "."
	}
	return text
}

func mean(values []float64) (float64, bool) {
	if len(values) == 0 {
		return 0, false
	}
	var sum float64
	for _, v := range values {
		sum += v
	}
	return sum / float64(len(values)), true
}

// line is one figure over time.
type line struct {
	class, label string
	values       []*float64
	// at is its last value in words, where it is more than the last of values.
	at string
	// area: filled down to the baseline.
	area bool
}

// chart of lines over time.
type chart struct {
	id, title string
	height    float64
	axis      timeAxis
	end       []int64
	lines     []line
	bands     []band
	// limit is a horizontal line; NaN: none.
	limit      float64
	limitLabel string
	// top is the end of the scale; 0: what the values and reach need.
	top, reach float64
	format     func(float64) string
}

// band is drawn between two figures over time.
type band struct {
	class        string
	lower, upper []*float64
}

func (c *chart) draw() template.HTML {
	top := c.top
	if top == 0 {
		if sane(c.reach) {
			top = c.reach
		}
		for _, l := range c.lines {
			for _, v := range l.values {
				if known(v) {
					top = math.Max(top, *v)
				}
			}
		}
		// A limit far away would flatten what there is.
		if c.limit > 0 && (top == 0 || c.limit < top*2.5) {
			top = math.Max(top, c.limit*1.08)
		}
	}
	scale := ticks(top)
	top = scale[len(scale)-1]
	y := func(v float64) float64 { return 1000 * (1 - clamp(v/top, 0, 1)) }
	x := func(i int) float64 { return 3600 * c.axis.at(float64(c.end[i])-c.axis.column/2) }

	var words []string
	for _, l := range c.lines {
		if l.at != "" {
			words = append(words, l.label+" "+l.at+" at the end")
		} else if v := last(l.values); known(v) {
			words = append(words, l.label+" "+c.format(*v)+" at the end")
		}
	}
	if c.limit > 0 {
		words = append(words, c.limitLabel)
	}
	var d drawing
	d.open(c.id, "chart", element(`width="100%%" height="%s"`, num(c.height+axisHeight)), c.title, strings.Join(words, ", ")+".")
	for _, v := range scale[1:] {
		at := c.height * (1 - v/top)
		d.f(`<line class="grid" x1="0" x2="100%%" y1="%s" y2="%s"/>`, num(at), num(at))
	}
	c.axis.labels(&d, c.height)
	d.f(`<svg width="100%%" height="%s" viewBox="0 0 3600 1000" preserveAspectRatio="none">`, num(c.height))
	for _, b := range c.bands {
		if p := bandPath(b.lower, b.upper, x, y, len(c.end)); p != "" {
			d.f(`<path class="%s" d="%s"/>`, strings.TrimSpace("band "+b.class), p)
		}
	}
	for _, l := range c.lines {
		p := linePath(l.values, x, y, len(c.end), l.area)
		if p == "" {
			continue
		}
		class := "line"
		if l.area {
			class = "area"
		}
		d.f(`<path class="%s %s" d="%s"><title>%s</title></path>`, class, l.class, p, l.label)
	}
	d.WriteString(`</svg>`)
	if c.limit > 0 {
		if at := c.height * (1 - c.limit/top); at >= 0 {
			d.f(`<line class="limit" x1="0" x2="100%%" y1="%s" y2="%s"/><text class="limit-label" x="100%%" y="%s" text-anchor="end">%s</text>`,
				num(at), num(at), num(math.Max(at-5, 10)), c.limitLabel)
		}
	}
	for i, v := range scale {
		if i > 0 && (i%2 == (len(scale)-1)%2 || len(scale) <= 4) {
			d.f(`<text class="axis inside" x="2" y="%s">%s</text>`, num(c.height*(1-v/top)+12), c.format(v))
		}
	}
	return d.done()
}

func last(values []*float64) *float64 {
	for i := len(values) - 1; i >= 0; i-- {
		if known(values[i]) {
			return values[i]
		}
	}
	return nil
}

// linePath goes through the known values and breaks where one is not.
func linePath(values []*float64, x func(int) float64, y func(float64) float64, n int, area bool) string {
	var p strings.Builder
	begin := -1
	finish := func(end int) {
		switch {
		case begin < 0:
		case area:
			fmt.Fprintf(&p, "L%d 1000L%d 1000z", round(x(end)), round(x(begin)))
		case begin == end:
			p.WriteString("h1") // a lone point shall be seen
		}
		begin = -1
	}
	for i := range min(n, len(values)) {
		if !known(values[i]) || x(i) < 0 {
			finish(i - 1)
			continue
		}
		switch {
		case begin < 0:
			begin = i
			p.WriteByte('M')
		case i == begin+1:
			p.WriteByte('L')
		default:
			p.WriteByte(' ')
		}
		fmt.Fprintf(&p, "%d %d", round(x(i)), round(y(*values[i])))
	}
	finish(min(n, len(values)) - 1)
	return p.String()
}

func bandPath(lower, upper []*float64, x func(int) float64, y func(float64) float64, n int) string {
	var p strings.Builder
	n = min(n, len(lower), len(upper))
	for i := 0; i < n; i++ {
		from := i
		for i < n && known(lower[i]) && known(upper[i]) && x(i) >= 0 {
			i++
		}
		if i-from < 2 {
			continue
		}
		for j := from; j < i; j++ {
			p.WriteString(map[bool]string{true: "M", false: "L"}[j == from])
			fmt.Fprintf(&p, "%d %d", round(x(j)), round(y(*upper[j])))
		}
		for j := i - 1; j >= from; j-- {
			fmt.Fprintf(&p, "L%d %d", round(x(j)), round(y(*lower[j])))
		}
		p.WriteByte('z')
	}
	return p.String()
}

func round(v float64) int { return int(math.Round(v)) }

// pace are the points of the step law, window by window: the requests in the batch, and the wall time per output token of
// each, which is running requests / output tokens per second. Where there are no tokens, the decode step stands in.
func pace(h *summary.History) (batch, perToken []*float64) {
	running, tokens, occupancy := h.Figures["requests_running_mean"], h.Figures["output_throughput"], h.Figures["occupancy"]
	if !known(last(tokens)) || !known(last(running)) {
		batch = h.Figures["batch_mean"]
		if batch == nil {
			batch = running
		}
		return batch, h.Figures["step_duration"]
	}
	n := min(len(running), len(tokens))
	batch, perToken = make([]*float64, n), make([]*float64, n)
	for i := range n {
		if !known(running[i]) || !known(tokens[i]) || *tokens[i] <= 0 || *running[i] <= 0 {
			continue
		}
		b, p := *running[i], *running[i] / *tokens[i]
		if i < len(occupancy) && known(occupancy[i]) && *occupancy[i] > 0 {
			b /= *occupancy[i]
		}
		batch[i], perToken[i] = &b, &p
	}
	return batch, perToken
}

// stepChart is the time per output token by the number of requests in the batch.
func stepChart(id string, h *summary.History, law *summary.StepLaw, objective *float64, maxNumSeqs int, now *float64) template.HTML {
	const height = 220.0
	batch, step := pace(h)
	var maxX, maxY float64
	seen := 0.0
	for i := range min(len(batch), len(step)) {
		if known(batch[i]) && known(step[i]) {
			seen = math.Max(seen, *batch[i])
			maxX, maxY = math.Max(maxX, *batch[i]), math.Max(maxY, *step[i])
		}
	}
	if law != nil && law.BatchAtObjective != nil && law.Extrapolates && *law.BatchAtObjective < maxX*4 {
		maxX = math.Max(maxX, *law.BatchAtObjective*1.1)
	}
	if maxNumSeqs > 0 && float64(maxNumSeqs) < maxX*2.5 {
		maxX = math.Max(maxX, float64(maxNumSeqs)*1.03)
	}
	if objective != nil && *objective < maxY*3 {
		maxY = math.Max(maxY, *objective*1.08)
	}
	xs, ys := ticks(maxX), ticks(maxY)
	topX, topY := xs[len(xs)-1], ys[len(ys)-1]
	if maxX > 0 && topX > maxX*1.12 {
		topX = maxX * 1.06
	}
	y := func(v float64) float64 { return height * (1 - v/topY) }

	desc := "Each dot is one window of the last hour."
	if law != nil {
		desc += fmt.Sprintf(" The fitted line begins at %s and rises by %s per request.", seconds(law.A), seconds(law.B))
	}
	var d drawing
	d.open(id, "chart scatter", element(`width="100%%" height="%s"`, num(height+axisHeight)), "Time per output token by requests in the batch", desc)
	for _, v := range ys[1:] {
		d.f(`<line class="grid" x1="0" x2="100%%" y1="%s" y2="%s"/>`, num(y(v)), num(y(v)))
	}
	for i, v := range xs {
		if v > topX {
			break
		}
		anchor := "middle"
		if i == 0 {
			anchor = "start"
		} else {
			d.f(`<line class="grid" x1="%s" x2="%s" y1="0" y2="%s"/>`, pct(v/topX), pct(v/topX), num(height))
		}
		if v/topX > .96 {
			anchor = "end"
		}
		d.f(`<text class="axis" x="%s" y="%s" text-anchor="%s">%s</text>`, pct(v/topX), num(height+16), anchor, digits(v))
	}
	d.f(`<svg width="100%%" height="%s" viewBox="0 0 3600 1000" preserveAspectRatio="none">`, num(height))
	n := min(len(batch), len(step))
	var old, recent strings.Builder
	for i := range n {
		if known(batch[i]) && known(step[i]) {
			p := &old
			if i >= n-30 {
				p = &recent
			}
			fmt.Fprintf(p, "M%d %dh0", round(3600**batch[i]/topX), round(1000*(1-*step[i]/topY)))
		}
	}
	d.f(`<path class="points old" d="%s"/><path class="points recent" d="%s"/>`, old.String(), recent.String())
	if law != nil {
		at := func(b float64) string {
			return fmt.Sprintf("%d %d", round(3600*b/topX), round(1000*(1-(law.A+law.B*b)/topY)))
		}
		d.f(`<path class="line law" d="M%sL%s"/>`, at(0), at(seen))
		if seen < topX {
			d.f(`<path class="line law beyond" d="M%sL%s"/>`, at(seen), at(topX))
		}
	}
	d.WriteString(`</svg>`)
	for i, v := range ys {
		if i > 0 && (i%2 == (len(ys)-1)%2 || len(ys) <= 4) {
			d.f(`<text class="axis inside" x="2" y="%s">%s</text>`, num(y(v)+12), seconds(v))
		}
	}
	if objective != nil && *objective <= topY {
		d.f(`<line class="limit" x1="0" x2="100%%" y1="%s" y2="%s"/><text class="limit-label" x="100%%" y="%s" text-anchor="end">objective %s per token</text>`,
			num(y(*objective)), num(y(*objective)), num(math.Max(y(*objective)-5, 10)), seconds(*objective))
		if law != nil && law.BatchAtObjective != nil && *law.BatchAtObjective > 0 && *law.BatchAtObjective <= topX {
			d.f(`<line class="limit" x1="%s" x2="%s" y1="%s" y2="%s"/>`, pct(*law.BatchAtObjective/topX), pct(*law.BatchAtObjective/topX), num(y(*objective)), num(height))
		}
	}
	if maxNumSeqs > 0 && float64(maxNumSeqs) <= topX {
		x := float64(maxNumSeqs) / topX
		d.f(`<line class="wall" x1="%s" x2="%s" y1="0" y2="%s"/><text class="wall-label" x="%s" y="%s" text-anchor="end" dx="-6">max_num_seqs %d</text>`, pct(x), pct(x), num(height), pct(x), num(height-8), maxNumSeqs)
	}
	if law != nil && known(now) && *now <= topX {
		d.f(`<circle class="now" cx="%s" cy="%s" r="6"><title>Now: %s requests, %s by the line</title></circle>`, pct(*now/topX), num(y(law.A+law.B**now)), digits(*now), seconds(law.A+law.B**now))
	}
	return d.done()
}

// spread draws p50, p95 and p99 of one quantity beside its objective.
func spreadBar(s *summary.Spread, objective *float64) template.HTML {
	top := s.P99
	if objective != nil && *objective < top*3 {
		top = math.Max(top, *objective)
	}
	if top <= 0 {
		return ""
	}
	top *= 1.04
	var d drawing
	d.WriteString(`<svg class="spread" width="100%" height="26" aria-hidden="true" focusable="false">`)
	d.f(`<line class="track" x1="0" x2="100%%" y1="13" y2="13"/>`)
	d.f(`<rect class="wide" x="%s" y="9" width="%s" height="8" rx="2"/>`, pct(s.P50/top), pct((s.P95-s.P50)/top))
	d.f(`<line class="tail" x1="%s" x2="%s" y1="13" y2="13"/>`, pct(s.P95/top), pct(s.P99/top))
	d.f(`<circle class="median" cx="%s" cy="13" r="5"/>`, pct(s.P50/top))
	d.f(`<line class="end" x1="%s" x2="%s" y1="7" y2="19"/>`, pct(s.P99/top), pct(s.P99/top))
	if objective != nil && *objective <= top {
		d.f(`<line class="limit" x1="%s" x2="%s" y1="0" y2="26"/>`, pct(*objective/top), pct(*objective/top))
	}
	return d.done()
}
