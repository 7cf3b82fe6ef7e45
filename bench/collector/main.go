// Copyright The otelcol-serving Authors
// SPDX-License-Identifier: Apache-2.0

// Command collector measures the built collector under closed-loop OTLP/gRPC load on loopback, with and without serving_metrics.
//
//	go run ./collector [-binary ../dist/otelcol-serving] [-seconds 15] [-rounds 5] [-write ../docs/performance.md]
//
// Every round starts each pipeline once in a process of its own. CPU time is that of the collector's process, from the begin
// of the measurement to its end, so that the final collect of what was recorded is in it.
package main

import (
	"context"
	"flag"
	"fmt"
	"log"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/otelcol-serving/otelcol-serving/bench/internal/load"
	"github.com/otelcol-serving/otelcol-serving/bench/internal/measure"
	"github.com/otelcol-serving/otelcol-serving/bench/internal/process"
	"github.com/otelcol-serving/otelcol-serving/bench/internal/report"
	"github.com/otelcol-serving/otelcol-serving/bench/internal/spans"
)

type options struct {
	binary      string
	seconds     float64
	warmUp      float64
	connections int
	batch       int
	rate        int
}

func main() {
	log.SetFlags(0)
	var o options
	flag.StringVar(&o.binary, "binary", "../dist/otelcol-serving", "the collector")
	flag.Float64Var(&o.seconds, "seconds", 15, "how long each measurement takes; 15 has one collect in each")
	flag.Float64Var(&o.warmUp, "warmup", 3, "seconds of load before it")
	flag.IntVar(&o.connections, "connections", 8, "connections that each wait for their answer; each is an engine")
	flag.IntVar(&o.batch, "batch", 100, "spans per export")
	flag.IntVar(&o.rate, "rate", 10, "requests that an engine ends per second of span time")
	rounds := flag.Int("rounds", 5, "how often everything is measured")
	short := flag.Bool("short", false, "measure briefly, to see that it works")
	write := flag.String("write", "", "Markdown file that gets the table")
	flag.Parse()
	if *short {
		o.seconds, o.warmUp, *rounds = 2, 0.5, 2
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()

	var d, summary report.Document
	var budgets []report.Budget
	d.Text("%s %d rounds of %v s, %d connections, %d spans per export, %d requests per second of span time and engine.", report.Machine(), *rounds, o.seconds, o.connections, o.batch, o.rate)
	for _, kind := range []spans.Kind{spans.V0, spans.V1} {
		samples := make([][]sample, len(variants))
		for range *rounds {
			for i, v := range variants {
				s, err := v.measure(ctx, kind, o)
				if err != nil {
					log.Fatalf("%s: %v", v.name, err)
				}
				samples[i] = append(samples[i], s)
			}
		}
		budgets = append(budgets, table(&d, kind, samples))
	}
	summary.Budgets(budgets)
	if err := report.Finish(*write, "collector", &d, &summary); err != nil {
		log.Fatal(err)
	}
}

// sample is one measurement.
type sample struct {
	throughput float64 // spans/s
	cpu        float64 // µs per span
	memory     float64 // MiB
}

func (v *variant) measure(ctx context.Context, kind spans.Kind, o options) (s sample, err error) {
	port, err := process.FreePort()
	if err != nil {
		return s, err
	}
	collector, err := process.Start(ctx, o.binary, v.config(port), port)
	if err != nil {
		return s, err
	}
	stopped := false
	defer func() {
		if !stopped {
			_ = collector.Stop()
		}
	}()
	l, err := load.Start(load.Config{Port: port, Kind: kind, Batch: o.batch, Connections: o.connections, Rate: o.rate})
	if err != nil {
		return s, err
	}
	if err := wait(ctx, o.warmUp); err != nil {
		_ = l.Stop()
		return s, err
	}
	cpu, err := collector.CPU()
	if err != nil {
		_ = l.Stop()
		return s, err
	}
	sent, began := l.Sent(), time.Now()
	err = wait(ctx, o.seconds)
	s.throughput = float64(l.Sent()-sent) / time.Since(began).Seconds()
	memory, memoryErr := collector.Memory()
	s.memory = float64(memory) / (1 << 20)
	for _, err := range []error{err, memoryErr, l.Stop()} {
		if err != nil {
			return s, err
		}
	}
	stopped = true
	if err := collector.Stop(); err != nil {
		return s, err
	}
	s.cpu = (collector.TotalCPU() - cpu).Seconds() * 1e6 / float64(l.Sent()-sent)
	return s, nil
}

func wait(ctx context.Context, seconds float64) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(time.Duration(seconds * float64(time.Second))):
		return nil
	}
}

// table adds the table of one kind, and returns the budget that it decides.
func table(d *report.Document, kind spans.Kind, samples [][]sample) report.Budget {
	spread := func(i int, f func(round int) float64) measure.Spread {
		values := make([]float64, len(samples[i]))
		for round := range values {
			values[round] = f(round)
		}
		return measure.Of(values)
	}
	var lines [][]string
	for i, v := range variants {
		line := []string{
			v.name,
			spread(i, func(r int) float64 { return samples[i][r].throughput / 1000 }).Format("%.0f"),
			spread(i, func(r int) float64 { return samples[i][r].cpu }).Format("%.2f"),
			spread(i, func(r int) float64 { return samples[i][r].memory }).Format("%.0f"),
			"", "",
		}
		if i > 0 {
			line[4] = spread(i, func(r int) float64 { return samples[i][r].throughput / samples[0][r].throughput }).Format("%.3f")
			line[5] = spread(i, func(r int) float64 { return samples[0][r].cpu / samples[i][r].cpu }).Format("%.3f")
		}
		lines = append(lines, line)
	}
	d.Text("**%s spans**", kind)
	d.Table([]string{"pipelines", "1000 spans/s", "CPU µs/span", "memory MiB", "throughput to the first", "spans per CPU second to the first"}, lines)
	const with = 1
	throughput := spread(with, func(r int) float64 { return samples[with][r].throughput / samples[0][r].throughput })
	return report.Budget{
		What: "`" + kind.String() + "`: throughput of the built collector with `serving_metrics`, to without", Limited: fmt.Sprintf(">= %.2f", budget),
		Measured: throughput.Format("%.3f"), Value: throughput.Median, Limit: budget, AtLeast: true,
	}
}

const budget = 0.92
