// Copyright The otelcol-serving Authors
// SPDX-License-Identifier: Apache-2.0

package page

// What the drawings share. A drawing is a pure function of the figures. Colours are classes, as the page's policy forbids
// style attributes and light and dark differ. Charts are as wide as the page lets them be: their data are in a nested
// drawing that is stretched, their text around it is not.

import (
	"fmt"
	"html"
	"html/template"
	"math"
	"strconv"
	"strings"
)

type drawing struct{ strings.Builder }

// markup is text that is written as it is.
type markup string

// f adds markup. All text in it is escaped, also what is only a number to look at: "< 0.1 %" is one.
func (d *drawing) f(format string, args ...any) { d.WriteString(string(element(format, args...))) }

func element(format string, args ...any) markup {
	for i, a := range args {
		switch a := a.(type) {
		case string:
			args[i] = html.EscapeString(a)
		case fmt.Stringer:
			args[i] = html.EscapeString(a.String())
		}
	}
	return markup(fmt.Sprintf(format, args...))
}

// open begins a drawing that is read out as its title and description.
func (d *drawing) open(id, class string, size markup, title, desc string) {
	d.f(`<svg class="%s" %s role="img" aria-labelledby="%s-t %s-d"><title id="%s-t">%s</title><desc id="%s-d">%s</desc>`,
		class, size, id, id, id, title, id, desc)
}

func (d *drawing) done() template.HTML {
	d.WriteString("</svg>")
	return template.HTML(d.String()) //nolint:gosec // every text in it went through html.EscapeString
}

// num is a coordinate, as short as it can be.
func num(v float64) string {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return "0"
	}
	s := strconv.FormatFloat(v, 'f', 2, 64)
	s = strings.TrimSuffix(strings.TrimRight(s, "0"), ".")
	if s == "-0" {
		return "0"
	}
	return s
}

// pct is a share of the drawing's width.
func pct(v float64) string { return num(clamp(v, 0, 1)*100) + "%" }

func clamp(v, low, high float64) float64 {
	if math.IsNaN(v) {
		return low
	}
	return math.Max(low, math.Min(high, v))
}

// ticks are round values from 0 to at least top, four or five of them.
func ticks(top float64) []float64 {
	if !sane(top) || top < 1e-12 { // a step could be too small to get anywhere
		top = 1
	}
	raw := top / 4
	magnitude := math.Pow(10, math.Floor(math.Log10(raw)))
	step := magnitude * 10
	for _, m := range []float64{1, 2, 2.5, 5} {
		if raw <= m*magnitude*1.0000001 {
			step = m * magnitude
			break
		}
	}
	var t []float64
	for v := 0.0; ; v += step {
		t = append(t, v)
		if v >= top*0.9999999 {
			return t
		}
	}
}

// icon is the shape of a severity.
func icon(s Severity) template.HTML {
	shapes := map[Severity]string{
		Critical: `<path class="shape" d="M7 1h10l6 6v10l-6 6H7l-6-6V7z"/><path class="mark" d="M12 6v7M12 17v.5"/>`,
		Warning:  `<path class="shape" d="M12 1.8 23.4 22H.6z"/><path class="mark" d="M12 9v6M12 18.5v.3"/>`,
		Info:     `<rect class="shape" x="2" y="2" width="20" height="20" rx="4"/><path class="mark" d="M12 7v.3M12 11v6"/>`,
		OK:       `<circle class="shape" cx="12" cy="12" r="11"/><path class="mark" d="m7 12.4 3.4 3.4L17 9"/>`,
		Unknown:  `<circle class="ring" cx="12" cy="12" r="9.5"/><path class="dots" d="M7.5 12h.1M12 12h.1M16.5 12h.1"/>`,
	}
	return template.HTML(`<svg class="icon sev-` + string(s) + `" viewBox="0 0 24 24" width="24" height="24" aria-hidden="true" focusable="false">` + shapes[s] + `</svg>`) //nolint:gosec // constants
}

// confidence as three bars.
func confidence(level string) template.HTML {
	bars := map[string]int{"low": 1, "medium": 2, "high": 3}[level]
	var d drawing
	d.WriteString(`<svg class="confidence" viewBox="0 0 22 16" width="22" height="16" aria-hidden="true" focusable="false">`)
	for i := range 3 {
		class := "off"
		if i < bars {
			class = "on"
		}
		d.f(`<rect class="%s" x="%d" y="%d" width="5" height="%d" rx="1"/>`, class, i*8, 10-i*5, 6+i*5)
	}
	return d.done()
}

// bar is one ratio as a length, for a cell of a table, with its bracket where there is one.
func bar(class string, v, lower, upper *float64) template.HTML {
	if !known(v) {
		return ""
	}
	var d drawing
	d.WriteString(`<svg class="bar" width="100%" height="8" aria-hidden="true" focusable="false"><rect class="track" width="100%" height="8" rx="2"/>`)
	d.f(`<rect class="fill %s" width="%s" height="8" rx="2"/>`, class, pct(*v))
	if known(lower) && known(upper) && *upper > *lower {
		d.f(`<rect class="bracket" x="%s" y="2.5" width="%s" height="3"/>`, pct(*lower), pct(*upper-*lower))
	}
	return d.done()
}

type share struct {
	class, label string
	value        float64
	text         string
}

// stack is several shares of a whole side by side.
func stack(id, class, title string, height int, shares []share) template.HTML {
	var total float64
	var words []string
	for _, s := range shares {
		total += s.value
		if s.label != "" {
			words = append(words, s.label+" "+s.text)
		}
	}
	var d drawing
	d.open(id, class, element(`width="100%%" height="%d"`, height), title, strings.Join(words, ", "))
	x := 0.0
	for _, s := range shares {
		if total <= 0 || s.value <= 0 {
			continue
		}
		w := s.value / total
		if s.label == "" { // room, and not a part
			x += w
			continue
		}
		d.f(`<rect class="%s" x="%s" width="%s" height="100%%"><title>%s %s</title></rect>`, s.class, pct(x), pct(w), s.label, s.text)
		x += w
	}
	return d.done()
}
