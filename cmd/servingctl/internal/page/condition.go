// Copyright The otelcol-serving Authors
// SPDX-License-Identifier: Apache-2.0

package page

// Conditions such as verdict=host_bound or ttft_p99>1s, for a build to fail on.

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/otelcol-serving/otelcol-serving/internal/diagnosis"
	"github.com/otelcol-serving/otelcol-serving/internal/summary"
)

// Condition is a comparison that holds or not for an engine.
type Condition struct {
	text     string
	name, op string
	verdict  string
	value    float64
	get      func(*summary.Engine) *float64
	// count is set for requests that run or wait, of which there may be known only how many at least.
	count func(*summary.Figures) summary.Count
}

// The figures by the name they have in a condition.
var conditionFigures = map[string]func(*summary.Engine) *float64{
	"device_utilization":         func(e *summary.Engine) *float64 { return e.Figures.Utilization },
	"device_wait_ratio":          func(e *summary.Engine) *float64 { return e.Figures.WaitRatio },
	"occupancy":                  func(e *summary.Engine) *float64 { return e.Figures.Occupancy },
	"queue_pressure":             func(e *summary.Engine) *float64 { return e.Figures.QueuePressure },
	"requests_running_mean":      func(e *summary.Engine) *float64 { return mean(e.Figures.RunningCount()) },
	"requests_running_lower":     func(e *summary.Engine) *float64 { return e.Figures.RunningLower },
	"requests_running_upper":     func(e *summary.Engine) *float64 { return e.Figures.RunningUpper },
	"requests_running_max":       func(e *summary.Engine) *float64 { return e.Figures.RunningMax },
	"requests_waiting_mean":      func(e *summary.Engine) *float64 { return mean(e.Figures.WaitingCount()) },
	"requests_waiting_lower":     func(e *summary.Engine) *float64 { return e.Figures.WaitingLower },
	"requests_waiting_upper":     func(e *summary.Engine) *float64 { return e.Figures.WaitingUpper },
	"requests_waiting_max":       func(e *summary.Engine) *float64 { return e.Figures.WaitingMax },
	"batch_utilization":          func(e *summary.Engine) *float64 { return e.Figures.BatchUtilization },
	"step_duration":              func(e *summary.Engine) *float64 { return e.Figures.Step },
	"step_host_gap":              func(e *summary.Engine) *float64 { return e.Figures.HostGap },
	"capacity_utilization_fit":   func(e *summary.Engine) *float64 { return e.Figures.CapacityFit },
	"capacity_utilization_peak":  func(e *summary.Engine) *float64 { return e.Figures.CapacityPeak },
	"capacity_utilization_lower": func(e *summary.Engine) *float64 { return e.Figures.CapacityLower },
	"capacity_utilization_upper": func(e *summary.Engine) *float64 { return e.Figures.CapacityUpper },
	"output_throughput":          func(e *summary.Engine) *float64 { return e.Figures.OutputThroughput },
	"input_throughput":           func(e *summary.Engine) *float64 { return e.Figures.InputThroughput },
	"completeness":               func(e *summary.Engine) *float64 { return e.Certainty.Completeness },
	"rate":                       func(e *summary.Engine) *float64 { return e.Requests.Rate },
	"failed":                     func(e *summary.Engine) *float64 { v := float64(e.Requests.Failed); return &v },
	"requests":                   func(e *summary.Engine) *float64 { v := float64(e.Requests.Count); return &v },
}

// conditionCounts are the figures that are bounded from below where they are not known.
var conditionCounts = map[string]func(*summary.Figures) summary.Count{
	"requests_running_mean": (*summary.Figures).RunningCount,
	"requests_waiting_mean": (*summary.Figures).WaitingCount,
}

func mean(c summary.Count) *float64 {
	if math.IsNaN(c.Mean) || c.AtLeast() {
		return nil
	}
	return &c.Mean
}

func init() {
	for name, get := range map[string]func(*summary.Engine) *summary.Spread{
		"ttft": func(e *summary.Engine) *summary.Spread { return e.Requests.TTFT },
		"tpot": func(e *summary.Engine) *summary.Spread { return e.Requests.TPOT },
		"e2e":  func(e *summary.Engine) *summary.Spread { return e.Requests.E2E },
	} {
		for part, value := range map[string]func(*summary.Spread) float64{
			"mean": func(s *summary.Spread) float64 { return s.Mean },
			"p50":  func(s *summary.Spread) float64 { return s.P50 },
			"p90":  func(s *summary.Spread) float64 { return s.P90 },
			"p95":  func(s *summary.Spread) float64 { return s.P95 },
			"p99":  func(s *summary.Spread) float64 { return s.P99 },
		} {
			conditionFigures[name+"_"+part] = func(e *summary.Engine) *float64 {
				s := get(e)
				if s == nil {
					return nil
				}
				v := value(s)
				return &v
			}
		}
	}
	for _, slo := range []string{"ttft", "tpot", "e2e", "all"} {
		conditionFigures["goodput_"+slo] = func(e *summary.Engine) *float64 {
			if v, ok := e.Requests.Goodput[slo]; ok {
				return &v
			}
			return nil
		}
	}
}

// Figures are the names of the figures that a condition can have.
func Figures() []string { return slices.Sorted(maps.Keys(conditionFigures)) }

// ParseCondition reads verdict=NAME, verdict!=NAME, or FIGURE with >, >=, < or <= and a number, a percentage or a duration.
func ParseCondition(text string) (*Condition, error) {
	i := strings.IndexAny(text, "<>=!")
	if i <= 0 {
		return nil, fmt.Errorf("%q is no condition: write verdict=host_bound, ttft_p99>1s, or capacity_utilization_fit>90%%", text)
	}
	c := &Condition{text: text, name: strings.TrimSpace(text[:i])}
	rest := text[i:]
	for _, op := range []string{">=", "<=", "!=", "==", ">", "<", "="} {
		if value, ok := strings.CutPrefix(rest, op); ok {
			c.op, rest = op, strings.TrimSpace(value)
			break
		}
	}
	if c.op == "==" {
		c.op = "="
	}
	if c.name == "verdict" {
		if c.op != "=" && c.op != "!=" {
			return nil, fmt.Errorf("%q: a verdict can be = or != to one, not more or less", text)
		}
		if _, ok := diagnosis.ParseVerdict(rest); !ok {
			return nil, fmt.Errorf("%q: there is no verdict %q; there are %s", text, rest, strings.Join(verdicts(), ", "))
		}
		c.verdict = rest
		return c, nil
	}
	c.get, c.count = conditionFigures[c.name], conditionCounts[c.name]
	if c.get == nil {
		return nil, fmt.Errorf("%q: there is no figure %q; there are verdict, %s", text, c.name, strings.Join(Figures(), ", "))
	}
	if c.op != ">" && c.op != ">=" && c.op != "<" && c.op != "<=" {
		return nil, fmt.Errorf("%q: compare a figure by >, >=, < or <=", text)
	}
	value, err := parseValue(rest)
	if err != nil {
		return nil, fmt.Errorf("%q: %w", text, err)
	}
	c.value = value
	return c, nil
}

func verdicts() []string {
	var all []string
	for v := range diagnosis.NumVerdicts {
		all = append(all, v.String())
	}
	return all
}

// parseValue reads 0.9, 90% or 500ms.
func parseValue(text string) (float64, error) {
	number, percent := strings.CutSuffix(text, "%")
	if v, err := strconv.ParseFloat(number, 64); err == nil && !math.IsNaN(v) && !math.IsInf(v, 0) {
		if percent {
			v /= 100
		}
		return v, nil
	}
	if d, err := time.ParseDuration(text); err == nil {
		return d.Seconds(), nil
	}
	return 0, fmt.Errorf("%q is no number, percentage or duration such as 500ms", text)
}

// Finding is what became of a condition.
type Finding struct {
	Condition string
	Engine    string
	// Met says that the condition holds; Unknown that the engine has no such figure.
	Met, Unknown bool
	// Is is what the engine has, as text.
	Is string
}

// Check checks every condition against every engine.
func Check(r *summary.Report, conditions []*Condition) []Finding {
	var all []Finding
	for _, c := range conditions {
		for i := range r.Engines {
			all = append(all, c.check(&r.Engines[i]))
		}
	}
	return all
}

func (c *Condition) check(e *summary.Engine) Finding {
	f := Finding{Condition: c.text, Engine: Name(e)}
	if c.get == nil {
		f.Is = e.Diagnosis.Verdict
		// While nothing is known, an engine is neither of a verdict nor not of it.
		f.Unknown = f.Is == diagnosis.NoVerdict.String() && c.verdict != f.Is
		f.Met = !f.Unknown && (f.Is == c.verdict) == (c.op == "=")
		return f
	}
	v := c.get(e)
	if v == nil {
		f.Unknown, f.Is = true, "unknown"
		if c.count == nil {
			return f
		}
		// More may wait than are known of: that is enough for "more than", and against "less than".
		if least := c.count(&e.Figures); least.AtLeast() {
			f.Is = "at least " + strconv.FormatFloat(least.Lower, 'g', 4, 64)
			more := c.op == ">" || c.op == ">="
			f.Unknown = c.holds(least.Lower) != more
			f.Met = !f.Unknown && more
		}
		return f
	}
	f.Is = strconv.FormatFloat(*v, 'g', 4, 64)
	f.Met = c.holds(*v)
	return f
}

func (c *Condition) holds(v float64) bool {
	switch c.op {
	case ">":
		return v > c.value
	case ">=":
		return v >= c.value
	case "<":
		return v < c.value
	default:
		return v <= c.value
	}
}
