// Copyright The otelcol-serving Authors
// SPDX-License-Identifier: Apache-2.0

package page

// Drawings of small figures, as files that can be opened in a browser. -update writes them.

import (
	"encoding/xml"
	"errors"
	"flag"
	"html/template"
	"io"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/otelcol-serving/otelcol-serving/internal/summary"
)

var update = flag.Bool("update", false, "write the golden files")

func ptr[T any](v T) *T { return &v }

func column(values ...float64) (c []*float64) {
	for _, v := range values {
		if math.IsNaN(v) {
			c = append(c, nil)
			continue
		}
		c = append(c, &v)
	}
	return c
}

var gap = math.NaN()

func history() *summary.History {
	return &summary.History{
		WindowSeconds: 10,
		// A window is missing between the third and the fourth.
		End: []int64{1010, 1020, 1030, 1050, 1060},
		States: map[string][]float64{
			"decode": {.5, .5, .25, .4, .4}, "prefill": {.25, .25, .25, .1, .1}, "scheduler": {.1, 0, 0, .25, .25},
			"host_other": {0, 0, 0, 0, 0}, "idle": {.15, .25, .5, .25, .25},
		},
		Figures: map[string][]*float64{
			"completeness":  column(1, 1, .99, .94, .9),
			"batch_mean":    column(4, 8, 16, gap, 32),
			"step_duration": column(.011, .012, .014, .015, .018),
		},
		Verdicts: []string{"healthy", "healthy", "host_bound", "host_bound", "host_bound"},
	}
}

func TestGolden(t *testing.T) {
	h := history()
	law := &summary.StepLaw{A: .01, B: .00025, Extrapolates: true, BatchAtObjective: ptr(40.0)}
	axis := newTimeAxis(h.End, h.WindowSeconds)
	lines := chart{
		id: "lines", title: "Requests <b> & \"c\"", height: 100, axis: axis, end: h.End, format: digits, limit: 40, limitLabel: "max_num_seqs 40",
		lines: []line{{class: "waiting", label: "waiting", area: true, values: column(0, 2, gap, 4, 6)}, {class: "running", label: "running", values: column(4, 8, 16, gap, 32)}},
		bands: []band{{lower: column(2, 6, 12, gap, 28), upper: column(6, 10, 20, gap, 36)}, {class: "none", lower: column(1), upper: column(gap)}},
	}
	busy := dial{id: "busy", class: "busy", title: "Device busy", value: ptr(.57), lower: ptr(.53), upper: ptr(.64), mark: ptr(.99), markLabel: "a request was running"}
	full := dial{id: "full", class: "capacity", title: "Capacity used", value: ptr(1.02), prefix: "≥" + nbsp}
	none := dial{id: "none", title: "Device busy", text: "not known"}
	for name, drawn := range map[string]template.HTML{
		"dial_bracket":    busy.draw(),
		"dial_over":       full.draw(),
		"dial_unknown":    none.draw(),
		"map_one":         axesMap("map", []point{{name: "a <b>", severity: Warning, busy: .57, lower: .53, upper: .64, capacityUsed: .23}}, false),
		"map_many":        axesMap("map", []point{{name: "a", href: "?engine=a&b", severity: OK, busy: .5, lower: gap, upper: gap, capacityUsed: .5}, {name: "b", href: "?engine=b", severity: Critical, busy: 1.2, lower: gap, upper: gap, capacityUsed: -1}}, true),
		"strip":           timeStrip("strip", h),
		"strip_empty":     timeStrip("strip", &summary.History{WindowSeconds: 10}),
		"lines":           lines.draw(),
		"steps":           stepChart("steps", h, law, ptr(.02), 48, ptr(30.0)),
		"steps_no_law":    stepChart("steps", h, nil, nil, 0, nil),
		"stack":           stack("stack", "stack", "A mean request", 30, []share{{"part-queue", "Queue", .5, "500 ms"}, {"part-decode", "Decode", 1.5, "1.5 s"}, {"part-frontend", "Front end", 0, "0 s"}}),
		"bar":             bar("busy", ptr(.4), ptr(.3), ptr(.5)),
		"spread":          spreadBar(&summary.Spread{P50: 1, P95: 2, P99: 4}, ptr(3.0)),
		"spread_far_goal": spreadBar(&summary.Spread{P50: 1, P95: 2, P99: 4}, ptr(30.0)),
		"icon":            icon(Critical),
		"confidence":      confidence("medium"),
	} {
		t.Run(name, func(t *testing.T) {
			wellFormed(t, string(drawn))
			path := filepath.Join("testdata", "golden", name+".svg")
			got := strings.ReplaceAll(string(drawn), "><", ">\n<") + "\n"
			if *update {
				require.NoError(t, os.WriteFile(path, []byte(got), 0o600))
			}
			want, err := os.ReadFile(path)
			require.NoError(t, err, "run with -update to write it")
			assert.Equal(t, string(want), got)
		})
	}
}

// wellFormed: a drawing is XML, has no number that is none, and refers to its own title.
func wellFormed(t *testing.T, drawn string) {
	t.Helper()
	assert.NotContains(t, drawn, "NaN")
	assert.NotContains(t, drawn, "Inf")
	assert.NotContains(t, drawn, "style=")
	d := xml.NewDecoder(strings.NewReader(drawn))
	for {
		_, err := d.Token()
		if errors.Is(err, io.EOF) {
			return
		}
		require.NoError(t, err)
	}
}

// The points of the step law are Little's law: requests in the batch / tokens per second.
func TestPace(t *testing.T) {
	h := &summary.History{Figures: map[string][]*float64{
		"requests_running_mean": column(10, 10, gap, 10, 0), "output_throughput": column(500, 250, 100, 0, 100), "occupancy": column(1, .5, 1, 1, 1),
	}}
	batch, perToken := pace(h)
	assert.Equal(t, column(10, 20, gap, gap, gap), batch)
	assert.Equal(t, column(.02, .04, gap, gap, gap), perToken)
	h.Figures["output_throughput"] = nil
	h.Figures["step_duration"] = column(1)
	batch, perToken = pace(h)
	assert.Equal(t, h.Figures["requests_running_mean"], batch)
	assert.Equal(t, column(1), perToken)
}

// Figures of any kind draw something that is well formed.
func FuzzDrawings(f *testing.F) {
	f.Add(.5, .4, .6, 10.0, 3.0)
	f.Add(math.NaN(), math.Inf(1), math.Inf(-1), 0.0, -1.0)
	f.Add(1e300, -1e300, 1e-300, 1e18, 5e-324)
	f.Fuzz(func(t *testing.T, a, b, c, d, e float64) {
		g := dial{id: "d", title: "t", value: &a, lower: &b, upper: &c, mark: &d}
		wellFormed(t, string(g.draw()))
		wellFormed(t, string(axesMap("m", []point{{name: "n", busy: a, lower: b, upper: c, capacityUsed: d}}, true)))
		h := history()
		h.WindowSeconds = math.Abs(e)
		h.States["decode"] = []float64{a, b, c, d, e}
		h.Figures["batch_mean"], h.Figures["step_duration"] = []*float64{&a, &b, &c, &d, &e}, []*float64{&e, &d, &c, &b, &a}
		wellFormed(t, string(timeStrip("s", h)))
		wellFormed(t, string(stepChart("p", h, &summary.StepLaw{A: a, B: b, BatchAtObjective: &c}, &d, 7, &e)))
		l := chart{id: "l", axis: newTimeAxis(h.End, h.WindowSeconds), end: h.End, format: seconds, lines: []line{{values: []*float64{&a, &b, &c, &d, &e}}}, limit: a, reach: e, bands: []band{{"b", []*float64{&a, &b}, []*float64{&c, &d}}}}
		wellFormed(t, string(l.draw()))
		wellFormed(t, string(spreadBar(&summary.Spread{P50: a, P95: b, P99: c}, &d)))
		wellFormed(t, string(bar("b", &a, &b, &c)))
		wellFormed(t, string(stack("k", "k", "t", 3, []share{{"a", "a", a, ""}, {"b", "b", b, ""}})))
	})
}

// The areas of the strip add up: the topmost reaches where the sum of the states is.
func TestStripSumsUp(t *testing.T) {
	h := &summary.History{WindowSeconds: 60, End: []int64{600}, States: map[string][]float64{"decode": {.25}, "scheduler": {.25}, "idle": {.5}}}
	drawn := string(timeStrip("s", h))
	assert.Contains(t, drawn, `class="st-decode" d="M3240 1000V750H3600V1000z"`)
	assert.Contains(t, drawn, `class="st-scheduler" d="M3240 1000V500H3600V1000z"`)
	assert.Contains(t, drawn, `class="st-idle" d="M3240 1000V0H3600V1000z"`)
	assert.Less(t, strings.Index(drawn, "st-idle"), strings.Index(drawn, "st-decode"), "the highest is drawn first")
}
