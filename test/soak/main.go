// Copyright The otelcol-serving Authors
// SPDX-License-Identifier: Apache-2.0

package main

// The run: a collector, its traffic, and a sample every few seconds.

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"os"
	"os/signal"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/otelcol-serving/otelcol-serving/test/faults/rig"
	"github.com/otelcol-serving/otelcol-serving/test/program"
)

func main() {
	duration := flag.Duration("duration", 15*time.Minute, "how long")
	rate := flag.Int("rate", 1000, "spans per second, besides those of the simulated engines")
	every := flag.Duration("every", 10*time.Second, "time between samples")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, *duration, *every, *rate); err != nil {
		fmt.Fprintln(os.Stderr, "soak:", err)
		stop()
		os.Exit(1)
	}
}

// The limits of this run. All are small and all times are short, so that everything that ends does so many
// times within it.
const (
	maxSeries  = 600
	maxEngines = 60
	expiration = time.Minute
	// settled is after how long nothing has a reason to grow: series live for expiration after their last
	// request, the prometheus exporter keeps them a little longer, and spans are remembered for two dedupe windows.
	settled = 100 * time.Second
)

// sample is the collector at one moment.
type sample struct {
	at                   time.Duration
	sent                 int64
	heap, rss            float64 // MiB; the heap right after a collection
	goroutines           int
	engines, series      int
	overflow, duplicates int64
	scrape               int // bytes
}

func run(ctx context.Context, duration, every time.Duration, rate int) error {
	if duration < settled+12*every {
		return fmt.Errorf("-duration must be %v or more with -every %v: %v to warm up, and samples to compare", settled+12*every, every, settled)
	}
	binary, err := rig.Binary()
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "otelcol-serving-soak-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	traces, err := rig.NewBackend()
	if err != nil {
		return err
	}
	defer traces.Down()
	traces.Discard = true
	s := &soak{collector: rig.NewCollector(binary, dir, traces, traces), pprof: program.Address(program.FreePort()), prometheus: program.Address(program.FreePort())}
	s.configure()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if err := s.collector.Start(ctx); err != nil {
		return err
	}
	defer s.collector.Kill()
	t, err := startTraffic(ctx, s.collector.GRPC, rate)
	if err != nil {
		return err
	}

	fmt.Printf("limits: %d series, %d engines; series end after %v; warm-up %v\n\n", maxSeries, maxEngines, expiration, settled)
	fmt.Println("| time | spans sent | heap MiB | RSS MiB | goroutines | engines | series | overflow | resent | scrape kB |")
	fmt.Println("| ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |")
	begin := time.Now()
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	var samples []sample
	for time.Since(begin) < duration {
		select {
		case <-ctx.Done():
			return errors.New("was stopped")
		case <-ticker.C:
		}
		if s.collector.Ended() {
			return fmt.Errorf("the collector ended\n%s", s.collector.Output())
		}
		x, err := s.sample()
		if err != nil {
			return err
		}
		x.at, x.sent = time.Since(begin), t.sent.Load()
		samples = append(samples, x)
		fmt.Printf("| %.0f s | %d | %.1f | %.0f | %d | %d | %d | %d | %d | %d |\n",
			x.at.Seconds(), x.sent, x.heap, x.rss, x.goroutines, x.engines, x.series, x.overflow, x.duplicates, x.scrape/1000)
	}
	t.stop()
	failed := t.failed.Load()
	verdict := judge(samples)
	if failed > 0 {
		verdict = errors.Join(verdict, fmt.Errorf("%d exports to the collector failed", failed))
	}
	return errors.Join(verdict, s.collector.Terminate())
}

type soak struct {
	collector         *rig.Collector
	pprof, prometheus string // addresses
}

func (s *soak) configure() {
	c := s.collector
	c.At("processors")["serving_metrics"] = rig.Section{
		"interval":   "5s",
		"dimensions": []any{rig.Section{"name": "tenant"}},
		"limits":     rig.Section{"series": maxSeries, "engines": maxEngines, "series_expiration": expiration.String()},
		"dedupe":     rig.Section{"window": "20s", "max_entries": 200_000},
		"slo":        rig.Section{"ttft": "1s"},
	}
	delete(c.At("exporters"), "otlp_grpc/metrics")
	c.At("exporters")["prometheus"] = rig.Section{"endpoint": s.prometheus, "metric_expiration": (expiration + 10*time.Second).String(), "enable_open_metrics": true}
	c.At("service", "pipelines", "metrics")["exporters"] = []string{"prometheus"}
	c.At("extensions")["pprof"] = rig.Section{"endpoint": s.pprof}
	c.At("service")["extensions"] = []string{"pprof"}
	c.At("service", "telemetry", "logs")["level"] = "error" // each engine is announced
	if _, port, err := net.SplitHostPort(s.pprof); err != nil || port == "" {
		panic("a free port is an address")
	}
}

var (
	heapAlloc  = regexp.MustCompile(`(?m)^# HeapAlloc = (\d+)$`)
	goroutines = regexp.MustCompile(`^goroutine profile: total (\d+)`)
)

func (s *soak) sample() (x sample, err error) {
	// A scrape first, as Prometheus would, so that what it leaves behind is collected too.
	scrape, err := rig.Fetch("http://" + s.prometheus + "/metrics")
	if err != nil {
		return x, err
	}
	x.scrape = len(scrape)
	heap, err := rig.Fetch("http://" + s.pprof + "/debug/pprof/heap?gc=1&debug=1")
	if err != nil {
		return x, err
	}
	routines, err := rig.Fetch("http://" + s.pprof + "/debug/pprof/goroutine?debug=1")
	if err != nil {
		return x, err
	}
	bytes, err := number(heapAlloc, heap)
	if err != nil {
		return x, err
	}
	x.heap = float64(bytes) / (1 << 20)
	n, err := number(goroutines, routines)
	if err != nil {
		return x, err
	}
	x.goroutines = int(n)
	own, err := rig.Fetch("http://" + s.collector.Self + "/metrics")
	if err != nil {
		return x, err
	}
	for name, to := range map[string]func(float64){
		"otelcol_process_memory_rss":                 func(v float64) { x.rss = v / (1 << 20) },
		"otelcol_serving_metrics_engines":            func(v float64) { x.engines = int(v) },
		"otelcol_serving_metrics_series":             func(v float64) { x.series = int(v) },
		"otelcol_serving_metrics_requests_overflow":  func(v float64) { x.overflow = int64(v) },
		"otelcol_serving_metrics_requests_duplicate": func(v float64) { x.duplicates = int64(v) },
	} {
		if !strings.Contains(own, name) {
			return x, fmt.Errorf("the collector does not tell %s", name)
		}
		v, err := rig.SumSamples(own, name)
		if err != nil {
			return x, err
		}
		to(v)
	}
	return x, nil
}

func number(pattern *regexp.Regexp, text string) (int64, error) {
	found := pattern.FindStringSubmatch(text)
	if found == nil {
		return 0, fmt.Errorf("the collector's profile has no %s", pattern)
	}
	return strconv.ParseInt(found[1], 10, 64)
}
