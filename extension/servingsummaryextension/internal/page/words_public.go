// Copyright The otelcol-serving Authors
// SPDX-License-Identifier: Apache-2.0

package page

// The words and numbers of the page for other forms of the same.

import (
	"github.com/otelcol-serving/otelcol-serving/internal/summary"
)

// EngineName is what the engine is called.
func EngineName(e *summary.Engine) string { return engineName(e) }

// EngineKind is its make and generation.
func EngineKind(e *summary.Engine) string { return engineKind(e) }

// SeverityOf is that of the engine's verdict, Unknown where it is of the past.
func SeverityOf(e *summary.Engine) Severity { return engineSeverity(e) }

// FindingLabel is a finding's verdict in one or two words.
func FindingLabel(f *summary.Finding) string { return findingLabel(f) }

// FindingText is a finding about the estimate in a sentence.
func FindingText(name string) string { return findingText(name) }

// Gain is the bound of a gain in words, empty where there is none.
func Gain(g *summary.Gain) string { return gainText(g) }

// Condition is a comparison in the unit of its figure.
func Condition(condition, unit string) string { return conditionText(condition, unit) }

// Percent of a ratio, a dash where it is not known.
func Percent(v *float64) string { return opt(v, percent) }

// Seconds with their unit, a dash where they are not known.
func Seconds(v *float64) string { return opt(v, seconds) }

// Number without a unit, a dash where it is not known.
func Number(v *float64) string { return opt(v, digits) }

// Waiting is how many requests wait: a number, a range, or how many at least; a dash where it is not known.
func Waiting(f *summary.Figures) string { return countText(f.WaitingCount()) }

// Running is how many requests run, or how many at least; a dash where it is not known.
func Running(f *summary.Figures) string { return countText(withoutBracket(f.RunningCount())) }

// WithUnit is a number in a unit of UCUM.
func WithUnit(v float64, unit string) string { return withUnit(v, unit) }

// Capacity used, with the side on which it can lie of the truth; a dash where it is not known.
func Capacity(f *summary.Figures) string {
	text, _ := capacityText(f)
	return text
}
