// Copyright The otelcol-serving Authors
// SPDX-License-Identifier: Apache-2.0

package page

// The two axes: whether the device works (time), and how much of what it can do is asked for (work). Busy is not full, so
// there are two dials and a map of both.

import (
	"fmt"
	"html/template"
	"math"
)

const (
	dialRadius = 84.0
	dialX      = 110.0
	dialY      = 104.0
)

// onDial is the point of a ratio on a half circle, from left to right.
func onDial(v, radius float64) (x, y float64) {
	angle := math.Pi * (1 - clamp(v, 0, 1))
	return dialX + radius*math.Cos(angle), dialY - radius*math.Sin(angle)
}

func arc(from, to, radius float64) string {
	x0, y0 := onDial(from, radius)
	x1, y1 := onDial(to, radius)
	return fmt.Sprintf("M%s %sA%s %s 0 0 1 %s %s", num(x0), num(y0), num(radius), num(radius), num(x1), num(y1))
}

// dial shows one ratio, with the bracket that it lies in.
type dial struct {
	id, class, title string
	value            *float64
	lower, upper     *float64
	// mark is a second figure on the same scale, as a tick.
	mark      *float64
	markLabel string
	// prefix goes before the number, as "≥".
	prefix string
	// text is what is said where there is no value.
	text string
}

func (g *dial) draw() template.HTML {
	desc := g.text
	if known(g.value) {
		desc = g.prefix + percent(*g.value)
		if known(g.lower) && known(g.upper) {
			desc += ", surely between " + percent(*g.lower) + " and " + percent(*g.upper)
		}
		if known(g.mark) {
			desc += ", " + g.markLabel + " " + percent(*g.mark)
		}
	}
	var d drawing
	d.open(g.id, "dial", `viewBox="0 0 220 128"`, g.title, desc)
	d.f(`<path class="track" d="%s"/>`, arc(0, 1, dialRadius))
	switch {
	case known(g.value):
	case known(g.lower) && known(g.upper):
		g.bracket(&d)
		d.f(`<text class="value long" x="%s" y="%s">%s</text>`, num(dialX), num(dialY-6), g.text)
		return d.done()
	default:
		d.f(`<path class="nothing" d="%s"/>`, arc(0, 1, dialRadius))
		d.f(`<text class="value none" x="%s" y="%s">?</text>`, num(dialX), num(dialY-6))
		return d.done()
	}
	if *g.value > 0 {
		d.f(`<path class="fill %s" d="%s"/>`, g.class, arc(0, *g.value, dialRadius))
	}
	if known(g.lower) && known(g.upper) {
		g.bracket(&d)
	}
	if known(g.mark) {
		x0, y0 := onDial(*g.mark, dialRadius-13)
		x1, y1 := onDial(*g.mark, dialRadius+13)
		d.f(`<path class="mark" d="M%s %sL%s %s"><title>%s %s</title></path>`, num(x0), num(y0), num(x1), num(y1), g.markLabel, percent(*g.mark))
	}
	class := "value"
	if g.prefix != "" || len(percent(*g.value)) > len("100"+nbsp+"%") {
		class += " long"
	}
	d.f(`<text class="%s" x="%s" y="%s">%s%s</text>`, class, num(dialX), num(dialY-6), g.prefix, percent(*g.value))
	for _, v := range []float64{0, 1} {
		x, _ := onDial(v, dialRadius)
		d.f(`<text class="scale" x="%s" y="%s">%s</text>`, num(x), num(dialY+17), percent(v))
	}
	return d.done()
}

// bracket is an arc around the dial.
func (g *dial) bracket(d *drawing) {
	d.f(`<path class="bracket" d="%s"/>`, arc(*g.lower, *g.upper, dialRadius+14))
	for _, v := range []float64{*g.lower, *g.upper} {
		x0, y0 := onDial(v, dialRadius+10)
		x1, y1 := onDial(v, dialRadius+18)
		d.f(`<path class="bracket" d="M%s %sL%s %s"/>`, num(x0), num(y0), num(x1), num(y1))
	}
}

// point is one engine on the map.
type point struct {
	name, href                       string
	severity                         Severity
	busy, lower, upper, capacityUsed float64 // lower and upper NaN: unknown
}

// axesMap places engines by both ratios. Quadrants are cut where the rules of the diagnosis cut.
func axesMap(id string, points []point, links bool) template.HTML {
	const size, left, top = 220.0, 34.0, 36.0
	x := func(v float64) float64 { return left + clamp(v, 0, 1)*size }
	y := func(v float64) float64 { return top + (1-clamp(v, 0, 1))*size }
	desc := "Across: capacity used. Up: device busy. Low and low: idle. Low busy and high capacity: host-bound. High busy and low capacity: headroom. High and high: full."
	for i, p := range points {
		if i == 3 && len(points) > 4 {
			desc += fmt.Sprintf(" And %d more engines.", len(points)-i)
			break
		}
		desc += fmt.Sprintf(" %s: busy %s, capacity used %s.", p.name, percent(p.busy), percent(p.capacityUsed))
	}
	var d drawing
	role := "img"
	if links { // links in a drawing of the role img would be hidden
		role = "group"
	}
	d.f(`<svg class="map" viewBox="0 0 264 314" role="%s" aria-labelledby="%s-t %s-d"><title id="%s-t">Device busy and capacity used</title><desc id="%s-d">%s</desc>`,
		role, id, id, id, id, desc)
	d.f(`<rect class="quadrant q-hot" x="%s" y="%s" width="%s" height="%s"/>`, num(x(.5)), num(y(1)), num(size/2), num(size/2))
	d.f(`<rect class="frame" x="%s" y="%s" width="%s" height="%s"/>`, num(left), num(top), num(size), num(size))
	d.f(`<path class="cut" d="M%s %sV%sM%s %sH%s"/>`, num(x(.5)), num(y(1)), num(y(0)), num(x(0)), num(y(.5)), num(x(1)))
	for _, q := range []struct {
		x, y       float64
		label, sub string
	}{{0, 1, "Headroom", "busy, not full"}, {.5, 1, "Full", "no more to get"}, {0, 0, "Idle", "little asked for"}, {.5, 0, "Host-bound", "device waits"}} {
		at := y(q.y) - 20 // outside of the frame, where no engine lies on it
		if q.y == 0 {
			at = y(q.y) + 15
		}
		d.f(`<text class="q-label" x="%s" y="%s">%s</text><text class="q-sub" x="%s" y="%s">%s</text>`,
			num(x(q.x)+2), num(at), q.label, num(x(q.x)+2), num(at+13), q.sub)
	}
	for _, p := range points {
		cx, cy := x(p.capacityUsed), y(p.busy)
		if links {
			d.f(`<a href="%s" aria-label="%s: busy %s, capacity used %s">`, p.href, p.name, percent(p.busy), percent(p.capacityUsed))
		}
		if p.lower < p.upper {
			d.f(`<path class="whisker" d="M%s %sV%s"/>`, num(cx), num(y(p.lower)), num(y(p.upper)))
		}
		radius := 7.0
		if len(points) > 1 {
			radius = 5.5
		}
		if len(points) > 20 {
			radius = 4.5
		}
		d.f(`<circle class="dot sev-%s" cx="%s" cy="%s" r="%s"><title>%s: busy %s, capacity used %s</title></circle>`,
			p.severity, num(cx), num(cy), num(radius), p.name, percent(p.busy), percent(p.capacityUsed))
		if links {
			d.WriteString(`</a>`)
		}
	}
	d.f(`<text class="axis" x="%s" y="%s">capacity used →</text>`, num(x(.5)), num(y(0)+46))
	d.f(`<text class="axis" transform="translate(%s %s) rotate(-90)">device busy →</text>`, num(left-12), num(y(.5)))
	for _, v := range []float64{0, 1} {
		d.f(`<text class="axis" x="%s" y="%s">%s</text>`, num(clamp(x(v), left+8, left+size-14)), num(y(0)+46), percent(v))
	}
	return d.done()
}
