// Copyright The otelcol-serving Authors
// SPDX-License-Identifier: Apache-2.0

package page

// Numbers for people: three digits, always with their unit, a dash with a reason where there is none.

import (
	"html/template"
	"math"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/otelcol-serving/otelcol-serving/internal/summary"
)

// nbsp keeps a number and its unit on one line.
const nbsp = "\u00a0"

// absent stands where a figure is not known.
const absent = "–"

// sane reports whether v is a figure: finite, and so far from the largest numbers that what is computed from it is, too.
// Nothing that an engine does comes near.
func sane(v float64) bool { return math.Abs(v) <= 1e15 }

// seconds as the unit in which they have one to three digits before the point.
func seconds(s float64) string {
	if !sane(s) {
		return absent
	}
	switch v := math.Abs(s); {
	case v == 0:
		return "0" + nbsp + "s"
	case v < 0.9995e-3:
		return digits(s*1e6) + nbsp + "µs"
	case v < 0.9995:
		return digits(s*1e3) + nbsp + "ms"
	case v < 119.5:
		return digits(s) + nbsp + "s"
	case v < 119.5*60:
		return digits(s/60) + nbsp + "min"
	default:
		return digits(s/3600) + nbsp + "h"
	}
}

// digits are the three that matter.
func digits(v float64) string {
	switch a := math.Abs(v); {
	case a >= 99.95:
		return grouped(v)
	case a >= 9.995:
		return trimZero(strconv.FormatFloat(v, 'f', 1, 64))
	case a >= 0.9995:
		return trimZero(strconv.FormatFloat(v, 'f', 2, 64))
	case a == 0:
		return "0"
	case a < 0.005: // more than nothing, and no more is meant by it
		return "0.00"
	default:
		return strconv.FormatFloat(v, 'g', 2, 64)
	}
}

func trimZero(s string) string {
	return strings.TrimSuffix(strings.TrimRight(s, "0"), ".")
}

// grouped is a whole number with its thousands apart.
func grouped(v float64) string {
	s := strconv.FormatFloat(math.Abs(math.Round(v)), 'f', 0, 64)
	var b strings.Builder
	if v <= -0.5 {
		b.WriteByte('-')
	}
	for i, c := range s {
		if i > 0 && (len(s)-i)%3 == 0 && len(s) > 4 {
			b.WriteString("\u202f")
		}
		b.WriteRune(c)
	}
	return b.String()
}

// percent of a ratio.
func percent(v float64) string {
	if !sane(v) {
		return absent
	}
	p := v * 100
	switch a := math.Abs(p); {
	case a == 0, a >= 9.95 && (a < 99 || a >= 99.95):
		return grouped(p) + nbsp + "%"
	case a < 0.1:
		return "<" + nbsp + "0.1" + nbsp + "%"
	default:
		return trimZero(strconv.FormatFloat(p, 'f', 1, 64)) + nbsp + "%"
	}
}

// withUnit writes a value in a unit of UCUM, as OpenTelemetry names them.
func withUnit(v float64, unit string) string {
	if !sane(v) {
		return absent
	}
	switch unit {
	case "1":
		return percent(v)
	case "s":
		return seconds(v)
	case "":
		return digits(v)
	}
	name, per, rate := strings.Cut(strings.NewReplacer("{", "", "}", "").Replace(unit), "/")
	if v != 1 && len(name) > 1 && !strings.HasSuffix(name, "s") {
		name += "s"
	}
	if rate {
		name += "/" + per
	}
	return digits(v) + nbsp + name
}

func count(n int64) string { return grouped(float64(n)) }

// plural is a count with its noun.
func plural(n int64, noun string) string {
	if n == 1 {
		return "1" + nbsp + noun
	}
	if strings.HasSuffix(noun, "y") {
		return count(n) + nbsp + strings.TrimSuffix(noun, "y") + "ies"
	}
	return count(n) + nbsp + noun + "s"
}

// span of time in words for a sentence.
func span(d time.Duration) string {
	switch {
	case d < 0:
		return "0" + nbsp + "s"
	case d < 90*time.Second:
		return strconv.Itoa(int(d.Round(time.Second)/time.Second)) + nbsp + "s"
	case d < 90*time.Minute:
		return strconv.Itoa(int(d.Round(time.Minute)/time.Minute)) + nbsp + "min"
	case d < 36*time.Hour:
		return digits(math.Round(d.Hours()*10)/10) + nbsp + "h"
	default:
		return digits(math.Round(d.Hours()/2.4)/10) + nbsp + "days"
	}
}

func known(v *float64) bool { return v != nil && sane(*v) }

// opt formats what may be absent.
func opt(v *float64, format func(float64) string) string {
	if !known(v) {
		return absent
	}
	return format(*v)
}

// countText is how many requests: a range where one number cannot stand for it, and how many at least where no more is known.
func countText(c summary.Count) string {
	switch {
	case !sane(c.Value()), c.AtLeast() && c.Lower <= 0:
		return absent
	case c.AtLeast():
		return "at least" + nbsp + digits(c.Lower)
	case c.Wide() && sane(c.Upper):
		return digits(c.Lower) + "–" + digits(c.Upper)
	default:
		return digits(c.Mean)
	}
}

// settings are command line flags, configuration keys and environment variables in a sentence.
var settings = regexp.MustCompile(`--[a-z][a-z0-9-]*[a-z0-9]|\b[a-z_]+::[a-z_:]+\b|\b[A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+\b`)

// prose is a sentence in which settings are marked as what can be typed, and do not break at their dashes.
func prose(text string) template.HTML {
	var b strings.Builder
	at := 0
	for _, m := range settings.FindAllStringIndex(text, -1) {
		b.WriteString(template.HTMLEscapeString(text[at:m[0]]))
		b.WriteString(`<code class="set">` + template.HTMLEscapeString(text[m[0]:m[1]]) + `</code>`)
		at = m[1]
	}
	b.WriteString(template.HTMLEscapeString(text[at:]))
	return template.HTML(b.String()) //nolint:gosec // escaped
}

// breakable lets a long setting break behind the signs that part it.
func breakable(text string) template.HTML {
	s := template.HTMLEscapeString(text)
	return template.HTML(strings.NewReplacer("=", "=<wbr>", ",", ",<wbr>", "/", "/<wbr>").Replace(s)) //nolint:gosec // escaped
}

// webLink tells whether an address leads to a web page, and is not a script.
func webLink(address string) bool {
	return strings.HasPrefix(address, "https://") || strings.HasPrefix(address, "http://")
}
