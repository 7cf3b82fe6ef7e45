// Copyright The otelcol-serving Authors
// SPDX-License-Identifier: Apache-2.0

package main

// Plots as SVG.

import (
	"image/color"
	"path/filepath"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

type series struct {
	name string
	y    []float64
}

// Of the Okabe and Ito palette, which people with any colour vision can tell apart.
var colours = []color.Color{
	color.RGBA{0x00, 0x72, 0xb2, 0xff}, color.RGBA{0xd5, 0x5e, 0x00, 0xff}, color.RGBA{0x00, 0x9e, 0x73, 0xff}, color.RGBA{0xcc, 0x79, 0xa7, 0xff},
}

// plotLines draws lines over x, which is logarithmic, from zero up.
func plotLines(folder, name, title, xLabel, yLabel string, x []float64, all ...series) error {
	p := plot.New()
	p.Title.Text = title
	p.X.Label.Text, p.Y.Label.Text = xLabel, yLabel
	p.X.Scale, p.X.Tick.Marker = plot.LogScale{}, plot.LogTicks{Prec: -1}
	p.Title.Padding, p.X.Padding, p.Y.Padding = vg.Points(6), vg.Points(4), vg.Points(4)
	p.Legend.Top, p.Legend.Left = true, true
	p.Add(plotter.NewGrid())
	for i, s := range all {
		points := make(plotter.XYs, len(x))
		for j := range x {
			points[j].X, points[j].Y = x[j], s.y[j]
		}
		line, dots, err := plotter.NewLinePoints(points)
		if err != nil {
			return err
		}
		line.Color, dots.Color = colours[i], colours[i]
		line.Width, dots.Radius, dots.Shape = vg.Points(1.5), vg.Points(2.5), draw.CircleGlyph{}
		p.Add(line, dots)
		p.Legend.Add(s.name, line, dots)
	}
	p.Y.Min = 0
	p.Y.Max *= 1.15 // room for the legend
	return p.Save(16*vg.Centimeter, 9*vg.Centimeter, filepath.Join(folder, name+".svg"))
}
