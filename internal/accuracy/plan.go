// Copyright The otelcol-serving Authors
// SPDX-License-Identifier: Apache-2.0

package main

// What is simulated: engine kinds by workload by load, and the runs whose input is at fault.

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/otelcol-serving/otelcol-serving/internal/enginesim"
)

const (
	// warmUp is the time after the start of a run before which no window counts: the estimates learn
	// from requests that have finished.
	warmUp = 2 * time.Minute
	// tick is how often the collector is asked for metrics: the default interval of serving_metrics.
	tick = 15 * time.Second

	defaultDuration = 30 * time.Minute
	defaultSeeds    = 2
)

// loads are shares of the measured capacity.
var loads = []float64{0.05, 0.20, 0.50, 0.80, 1.00, 1.20}

// workload is a name for the command line and what it stands for.
type workload struct {
	name string
	enginesim.Workload
}

func workloads() []workload {
	var ws []workload
	for _, lengths := range []string{enginesim.LengthsChat, enginesim.LengthsLong} {
		for _, arrivals := range []enginesim.Arrivals{enginesim.Poisson, enginesim.Bursty, enginesim.OnOff} {
			ws = append(ws, workload{lengths + "/" + string(arrivals), enginesim.Workload{Lengths: lengths, Arrivals: arrivals}})
		}
	}
	for _, lengths := range []string{enginesim.LengthsAzureConv, enginesim.LengthsAzureCode, enginesim.LengthsMooncake} {
		ws = append(ws, workload{lengths + "/trace", enginesim.Workload{Lengths: lengths, Arrivals: enginesim.Recorded}})
	}
	return ws
}

func workloadNames() []string {
	var names []string
	for _, w := range workloads() {
		names = append(names, w.name)
	}
	return names
}

// fits reports whether an engine has room for a workload's prompts: only one has for Mooncake's.
func fits(cfg *enginesim.Config, w workload) bool {
	return w.Lengths != enginesim.LengthsMooncake || cfg.MaxModelLen > 100_000
}

// plan is what one call of the command does.
type plan struct {
	engines   []enginesim.Config
	workloads []workload
	loads     []float64
	duration  time.Duration
	seeds     int

	// The runs whose input is at fault.
	faultLoads    []float64
	faultDuration time.Duration
}

func newPlan(engines, names []string, duration time.Duration, seeds int) (plan, error) {
	p := plan{
		loads: loads, duration: duration, seeds: seeds,
		faultLoads: []float64{0.10, 0.30, 0.80}, faultDuration: min(duration, 15*time.Minute),
	}
	if seeds < 1 || seeds > 100 {
		return p, fmt.Errorf("-seeds %d: want 1 to 100", seeds)
	}
	if duration < 10*time.Minute || duration > 24*time.Hour {
		return p, fmt.Errorf("-duration %v: want 10m to 24h: windows close up to 3 min after their end, and %v are left out first", duration, warmUp)
	}
	for _, name := range engines {
		cfg, err := enginesim.Preset(name)
		if err != nil {
			return p, fmt.Errorf("-engines: %w", err)
		}
		p.engines = append(p.engines, cfg)
	}
	known := workloads()
	for _, name := range names {
		i := slices.IndexFunc(known, func(w workload) bool { return w.name == name })
		if i < 0 {
			return p, fmt.Errorf("-workloads: unknown workload %q: want some of %s", name, strings.Join(workloadNames(), ", "))
		}
		p.workloads = append(p.workloads, known[i])
	}
	if len(p.engines) == 0 || len(p.workloads) == 0 {
		return p, fmt.Errorf("no engine or no workload is left: -engines and -workloads take names, separated by commas")
	}
	return p, nil
}

// settings is one line on how the tables were made.
func (p *plan) settings() string {
	var ls []string
	for _, l := range p.loads {
		ls = append(ls, fmt.Sprintf("%.0f", 100*l))
	}
	return fmt.Sprintf("%d engine kinds, %d workloads, loads of %s %% of the measured capacity, %d seeds of %v each, the first %v left out.",
		len(p.engines), len(p.workloads), strings.Join(ls, ", "), p.seeds, p.duration, warmUp)
}

// shortPlan is a smoke test's.
func shortPlan() plan {
	p, err := newPlan([]string{"v0-default", "v0-async", "v0-chunked", "v0-hostbound", "v1"}, []string{"chat/poisson", "long/onoff"}, 12*time.Minute, 1)
	if err != nil {
		panic(err) // the names above are wrong
	}
	p.loads = []float64{0.20, 0.80}
	p.faultLoads = []float64{0.30}
	return p
}
