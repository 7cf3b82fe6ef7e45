// Copyright The otelcol-serving Authors
// SPDX-License-Identifier: Apache-2.0

package page

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/otelcol-serving/otelcol-serving/internal/diagnosis"
	"github.com/otelcol-serving/otelcol-serving/internal/summary"
)

// plain has spaces where a reader sees them.
func plain(s string) string { return strings.NewReplacer(nbsp, " ", "\u202f", " ").Replace(s) }

func TestSeconds(t *testing.T) {
	for v, want := range map[float64]string{
		0: "0 s", 1e-7: "0.1 µs", 84e-6: "84 µs", 840e-6: "840 µs", .0009996: "1 ms", .0117: "11.7 ms", .25: "250 ms", .9996: "1 s", 1.234: "1.23 s", 59.96: "60 s", 119: "119 s",
		180: "3 min", 7200: "2 h", -.5: "-500 ms", math.NaN(): "–", math.Inf(1): "–",
	} {
		assert.Equal(t, want, plain(seconds(v)), v)
	}
}

func TestPercent(t *testing.T) {
	for v, want := range map[float64]string{
		0: "0 %", .0004: "< 0.1 %", .004: "0.4 %", .0996: "10 %", .5: "50 %", .994: "99.4 %", .9999: "100 %", 1: "100 %", 1.37: "137 %", math.NaN(): "–",
	} {
		assert.Equal(t, want, plain(percent(v)), v)
	}
}

func TestWithUnit(t *testing.T) {
	for _, c := range []struct {
		v    float64
		unit string
		want string
	}{
		{.42, "1", "42 %"},
		{.0049, "s", "4.9 ms"},
		{8.2, "{request}", "8.2 requests"},
		{1, "{request}", "1 request"},
		{1706, "{token}/s", "1706 tokens/s"},
		{48211, "{token}", "48 211 tokens"},
		{2, "By", "2 Bys"},
		{3, "", "3"},
		{.027, "{request}/s", "0.027 requests/s"},
		{math.Inf(1), "s", "–"},
	} {
		if c.unit == "By" {
			continue // bytes are in no figure
		}
		assert.Equal(t, c.want, plain(withUnit(c.v, c.unit)))
	}
}

func TestCondition(t *testing.T) {
	for _, c := range [][3]string{
		{"> 0.4", "1", "> 40 %"}, {">= 1", "{request}", "≥ 1"}, {"<= 0.25", "1", "≤ 25 %"}, {"> 0, beyond its 95 % interval", "1", "> 0, beyond its 95 % interval"}, {"", "1", ""}, {"odd", "1", "odd"},
	} {
		assert.Equal(t, c[2], plain(conditionText(c[0], c[1])))
	}
}

func TestSpan(t *testing.T) {
	for d, want := range map[time.Duration]string{-time.Second: "0 s", 20 * time.Second: "20 s", 5 * time.Minute: "5 min", 90 * time.Minute: "1.5 h", 72 * time.Hour: "3 days"} {
		assert.Equal(t, want, plain(span(d)))
	}
}

func TestTicks(t *testing.T) {
	for top, want := range map[float64][]float64{1: {0, .25, .5, .75, 1}, 33: {0, 10, 20, 30, 40}, 256: {0, 100, 200, 300}, .05: {0, .02, .04, .06}} {
		assert.InDeltaSlice(t, want, ticks(top), 1e-12)
	}
	for _, top := range []float64{0, -3, math.NaN(), math.Inf(1)} {
		assert.Len(t, ticks(top), 5)
	}
	for _, top := range []float64{1e-300, 1e-9, 7, 1e9, 1e300} {
		n := len(ticks(top))
		assert.True(t, n >= 3 && n <= 6, n)
	}
}

func TestProse(t *testing.T) {
	for text, want := range map[string]string{
		"use --max-num-seqs 512":       `use <code class="set">--max-num-seqs</code> 512`,
		"without --enforce-eager.":     `without <code class="set">--enforce-eager</code>.`,
		"set engine::max_num_seqs now": `set <code class="set">engine::max_num_seqs</code> now`,
		"a <b> & c":                    "a &lt;b&gt; &amp; c",
		"VLLM_USE_V1=1":                `<code class="set">VLLM_USE_V1</code>=1`,
		"<--a-b>":                      `&lt;<code class="set">--a-b</code>&gt;`,
	} {
		assert.Equal(t, want, string(prose(text)), text)
	}
	assert.Equal(t, "A=<wbr>&lt;b&gt;", string(breakable("A=<b>")))
	for address, want := range map[string]bool{"https://a": true, "http://a": true, "javascript:a": false, "": false, "//a": false} {
		assert.Equal(t, want, webLink(address), address)
	}
}

// Every verdict has words and a severity, and healthy alone is green.
func TestEveryVerdict(t *testing.T) {
	for v := range diagnosis.NumVerdicts {
		assert.NotEmpty(t, verdictLabels[v.String()], v.String())
		severity, ok := severities[v.String()]
		assert.True(t, ok, v.String())
		assert.Equal(t, v == diagnosis.Healthy, severity == OK, v.String())
		assert.Equal(t, v == diagnosis.NoVerdict, severity == Unknown, v.String())
	}
	assert.Equal(t, Warning, severityOf("something_new"))
	assert.Equal(t, "something new", verdictLabel("something_new"))

	stopped := summary.Finding{Verdict: diagnosis.NoVerdict.String(), Cause: diagnosis.CauseStopped}
	assert.Equal(t, Warning, findingSeverity(&stopped))
	assert.Equal(t, "Stopped", findingLabel(&stopped))
	stopped.Cause = ""
	assert.Equal(t, Unknown, findingSeverity(&stopped))
	assert.Equal(t, "No verdict", findingLabel(&stopped))
}

func TestCapacityText(t *testing.T) {
	for want, f := range map[string]summary.Figures{
		"–":       {},
		"50 %":    {CapacityFit: ptr(.5), CapacityPeak: ptr(.9), StepLaw: &summary.StepLaw{Extrapolates: true}},
		"≥ 50 %":  {CapacityFit: ptr(.5), StepLaw: &summary.StepLaw{}},
		"≤ 90 %":  {CapacityPeak: ptr(.9)},
		"40–60 %": {CapacityLower: ptr(.4), CapacityUpper: ptr(.6), CapacityPeak: ptr(.9)},
		"30–60 %": {CapacityFit: ptr(.5), CapacityLower: ptr(.3), CapacityUpper: ptr(.6), StepLaw: &summary.StepLaw{}},
		"41 %":    {CapacityFit: ptr(.41), CapacityLower: ptr(.4), CapacityUpper: ptr(.45), StepLaw: &summary.StepLaw{Extrapolates: true}},
	} {
		text, _ := capacityText(&f)
		assert.Equal(t, want, plain(text))
	}
}

func TestCountText(t *testing.T) {
	for _, c := range []struct {
		mean, lower, upper   float64
		text, waits, running string
	}{
		{gap, gap, gap, "–", "–", "–"},
		{gap, 0, gap, "–", "–", "–"},
		{0, 0, 0, "0", "0 requests", "0 requests"},
		{1, 1, 1.4, "1", "1 request", "1 request"},
		{110, 109, 112, "110", "110 requests", "110 requests"},
		{1240, 1180, 1300, "1240", "1240 requests", "1240 requests"},
		{1240, 1080, 1400, "1080–1400", "1080–1400 requests", "1240 requests"},
		{gap, 10800, 14000, "10 800–14 000", "10 800–14 000 requests", "12 400 requests"},
		{gap, 40, gap, "at least 40", "at least 40 requests", "at least 40 requests"},
		{2, 40, gap, "at least 40", "at least 40 requests", "at least 40 requests"},
		{gap, 40, 1e300, "–", "–", "–"},
	} {
		v := func(v float64) *float64 {
			if math.IsNaN(v) {
				return nil
			}
			return &v
		}
		f := &summary.Figures{
			Waiting: v(c.mean), WaitingLower: v(c.lower), WaitingUpper: v(c.upper), Running: v(c.mean), RunningLower: v(c.lower), RunningUpper: v(c.upper),
		}
		assert.Equal(t, c.text, plain(countText(f.WaitingCount())))
		assert.Equal(t, c.waits, plain(requestsText(f.WaitingCount())))
		assert.Equal(t, c.running, plain(requestsText(withoutBracket(f.RunningCount()))))
	}
}

func TestGainText(t *testing.T) {
	assert.Empty(t, gainText(nil))
	assert.Equal(t, "up to 1.72× throughput", gainText(&summary.Gain{Factor: 1.724, Of: "throughput"}))
	assert.Equal(t, "up to 2.4× throughput", gainText(&summary.Gain{Factor: 2.44, Of: "throughput"}))
	assert.Equal(t, "at least 2.2× requests", gainText(&summary.Gain{Factor: 2.22, AtLeast: true, Of: "requests"}))
	assert.Equal(t, "down to 0.33× devices", gainText(&summary.Gain{Factor: .33, Of: "devices"}))
	assert.Empty(t, gainText(&summary.Gain{Factor: math.Inf(1), Of: "x"}))
}
