// Copyright The otelcol-serving Authors
// SPDX-License-Identifier: Apache-2.0

// Command lean answers whether a collector that only derives metrics would gain by reading the needed fields off the wire instead of
// decoding whole spans: what decoding costs there, by a CPU profile of the built collector under load, what a prototype that
// decodes no span would cost instead, and what follows for the collector at most.
//
//	go run ./lean [-binary ../dist/otelcol-serving] [-seconds 15] [-write ../docs/performance.md]
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"

	"github.com/google/pprof/profile"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/otelcol-serving/otelcol-serving/bench/internal/lean"
	"github.com/otelcol-serving/otelcol-serving/bench/internal/measure"
	"github.com/otelcol-serving/otelcol-serving/bench/internal/process"
	"github.com/otelcol-serving/otelcol-serving/bench/internal/report"
	"github.com/otelcol-serving/otelcol-serving/bench/internal/spans"
	"github.com/otelcol-serving/otelcol-serving/internal/llmrequest"
)

// goal is how many times the throughput must be for the leaner way to be built.
const goal = 1.5

func main() {
	log.SetFlags(0)
	binary := flag.String("binary", "../dist/otelcol-serving", "the collector")
	seconds := flag.Int("seconds", 15, "length of each profile")
	rounds := flag.Int("rounds", 3, "how often everything is measured")
	write := flag.String("write", "", "Markdown file that gets the tables")
	keep := flag.String("keep", "", "folder that gets the last CPU profile of each kind of spans, for go tool pprof")
	how := flag.String("serve", "", "be a server: "+serveWhole+" or "+serveLean)
	port := flag.String("port", "", "of that server")
	flag.Parse()
	if *how != "" {
		if err := serve(*how, *port); err != nil {
			log.Fatal(err)
		}
		return
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()

	var d, summary report.Document
	var budgets []report.Budget
	d.Text("%s %d rounds of %d s.", report.Machine(), *rounds, *seconds)
	for _, kind := range []spans.Kind{spans.V0, spans.V1} {
		var f figures
		for range *rounds {
			if err := f.round(ctx, kind, *binary, *seconds, *keep); err != nil {
				log.Fatal(err)
			}
		}
		budgets = append(budgets, f.write(&d, kind))
	}
	summary.Budgets(budgets)
	if err := report.Finish(*write, "lean", &d, &summary); err != nil {
		log.Fatal(err)
	}
}

// figures are what the rounds gave.
type figures struct {
	shares             [numParts][]float64 // of the collector's CPU time
	perSpan            []float64           // that CPU time, µs
	decode, read, lean []float64           // ns per span
	whole, bare        []float64           // µs per span of the servers
	amdahl             []float64           // times the throughput at most, by the profile
	gain, floor        []float64           // by the servers; if serving_metrics itself cost nothing
	threshold          []float64           // µs per span, of the collector, below which the gain is goal
}

func (f *figures) round(ctx context.Context, kind spans.Kind, binary string, seconds int, keep string) error {
	shares, perSpan, err := profiled(ctx, kind, binary, seconds, keep)
	if err != nil {
		return err
	}
	for part, share := range shares {
		f.shares[part] = append(f.shares[part], share)
	}
	f.perSpan = append(f.perSpan, perSpan)
	decode, read, leaner, err := compare(kind)
	if err != nil {
		return err
	}
	f.decode, f.read, f.lean = append(f.decode, decode), append(f.read, read), append(f.lean, leaner)
	// Nearly all garbage is decoding's: at most, none of its collection is left.
	gone := (shares[decoding]+shares[reading])*(1-leaner/(decode+read)) + shares[garbage]
	f.amdahl = append(f.amdahl, 1/(1-gone))

	whole, err := served(ctx, kind, serveWhole, seconds)
	if err != nil {
		return err
	}
	bare, err := served(ctx, kind, serveLean, seconds)
	if err != nil {
		return err
	}
	f.whole, f.bare = append(f.whole, whole), append(f.bare, bare)
	f.gain = append(f.gain, perSpan/(perSpan-(whole-bare)))
	f.floor = append(f.floor, whole/bare)
	f.threshold = append(f.threshold, (whole-bare)*goal/(goal-1))
	return nil
}

// write adds the tables of one kind, and returns what decides whether the leaner way is built.
func (f *figures) write(d *report.Document, kind spans.Kind) report.Budget {
	d.Text("**%s**: where the CPU time of a metrics-only collector goes.", kind)
	var lines [][]string
	for part, name := range partNames {
		percent := make([]float64, len(f.shares[part]))
		for i, share := range f.shares[part] {
			percent[i] = 100 * share
		}
		lines = append(lines, []string{name, measure.Of(percent).Format("%.1f") + " %"})
	}
	d.Table([]string{"part", "share"}, lines)
	gain := measure.Of(f.gain)
	d.Table([]string{"reading requests off the wire", ""}, [][]string{
		{"decode whole spans, ns/span", measure.Of(f.decode).Format("%.0f")},
		{"read the request from each, ns/span", measure.Of(f.read).Format("%.0f")},
		{"the prototype in place of both, ns/span", measure.Of(f.lean).Format("%.0f")},
		{"collector's throughput, to now, by the profile: at most", measure.Of(f.amdahl).Format("%.2f")},
		{"CPU of the collector, µs/span", measure.Of(f.perSpan).Format("%.2f")},
		{"CPU of a server that decodes and reads, and does no more, µs/span", measure.Of(f.whole).Format("%.2f")},
		{"CPU of one with the prototype, µs/span", measure.Of(f.bare).Format("%.2f")},
		{"collector's throughput, to now, if it saved the difference", gain.Format("%.2f")},
		{"which is 1.5 where the collector needs less than, µs/span", measure.Of(f.threshold).Format("%.2f")},
		{"collector's throughput, to now, if recording and collecting cost nothing", measure.Of(f.floor).Format("%.2f")},
	})
	verdict := "below, so not built"
	if gain.Median >= goal {
		verdict = "reached: worth building"
	}
	return report.Budget{
		What: "`" + kind.String() + "`: throughput of a metrics-only collector that reads requests off the wire, to now", Limited: fmt.Sprintf("built from %.1f on", goal),
		Measured: gain.Format("%.2f"), Verdict: verdict,
	}
}

// part is a part of the collector's work.
type part int

const (
	decoding part = iota
	reading
	recording
	collecting
	transport
	garbage
	rest
	numParts
)

var partNames = [numParts]string{
	"decode spans from protobuf", "read requests from decoded spans", "record requests, without reading", "windows and metrics (collect)",
	"gRPC, HTTP/2 and the network", "garbage collection in the background", "the rest (scheduler, timers)",
}

// parts are told by the functions on the stack, the first that is found.
var marks = []struct {
	part part
	in   []string
}{
	{garbage, []string{"runtime.gcBgMarkWorker", "runtime.bgsweep", "runtime.bgscavenge"}},
	{decoding, []string{".UnmarshalProto"}},
	{reading, []string{"internal/llmrequest.Read"}},
	{collecting, []string{"serving.(*Aggregator).Take", "serving.(*Snapshot)", "serving.(*windows).add", "emitter.(*Emitter).collect"}},
	{recording, []string{"serving.(*Aggregator).Record"}},
	{transport, []string{"google.golang.org/grpc", "golang.org/x/net", "internal/poll", "syscall.", "runtime.netpoll"}},
}

func partOf(s *profile.Sample) part {
	for _, m := range marks {
		for _, location := range s.Location {
			for _, line := range location.Line {
				for _, in := range m.in {
					if strings.Contains(line.Function.Name, in) {
						return m.part
					}
				}
			}
		}
	}
	return rest
}

// profiled is the share of each part in the CPU time of a collector under load, and that CPU time per span, in µs.
func profiled(ctx context.Context, kind spans.Kind, binary string, seconds int, keep string) (shares [numParts]float64, perSpan float64, err error) {
	port, err := process.FreePort()
	if err != nil {
		return shares, 0, err
	}
	profilePort, err := process.FreePort()
	if err != nil {
		return shares, 0, err
	}
	collector, err := process.Start(ctx, binary, fmt.Sprintf(`
receivers:
  otlp: {protocols: {grpc: {endpoint: "127.0.0.1:%d"}}}
connectors:
  serving_metrics:
exporters:
  nop:
extensions:
  pprof: {endpoint: "127.0.0.1:%d"}
service:
  extensions: [pprof]
  pipelines:
    traces: {receivers: [otlp], exporters: [serving_metrics]}
    metrics: {receivers: [serving_metrics], exporters: [nop]}
  telemetry: {metrics: {level: none}, logs: {level: warn}}
`, port, profilePort), port)
	if err != nil {
		return shares, 0, err
	}
	defer func() { err = errors.Join(err, collector.Stop()) }()
	var p *profile.Profile
	perSpan, err = loaded(ctx, collector, port, kind, func() (err error) {
		p, err = fetch(ctx, fmt.Sprintf("http://127.0.0.1:%d/debug/pprof/profile?seconds=%d", profilePort, seconds), seconds)
		return err
	})
	if err != nil {
		return shares, 0, err
	}
	if keep != "" {
		if err := save(p, filepath.Join(keep, strings.Fields(kind.String())[0]+".pprof")); err != nil {
			return shares, 0, err
		}
	}
	total := 0.0
	for _, s := range p.Sample {
		v := float64(s.Value[len(s.Value)-1])
		shares[partOf(s)] += v
		total += v
	}
	for i := range shares {
		shares[i] /= total
	}
	return shares, perSpan, nil
}

// fetch gets a profile, which takes so many seconds.
func fetch(ctx context.Context, url string, seconds int) (*profile.Profile, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Duration(seconds+30)*time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	return profile.Parse(response.Body)
}

func save(p *profile.Profile, path string) error {
	file, err := os.Create(path)
	if err != nil {
		return err
	}
	return errors.Join(p.Write(file), file.Close())
}

// compare measures decoding, reading what was decoded, and the prototype, in turns.
func compare(kind spans.Kind) (decode, read, leaner float64, err error) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	const batch = 100
	template, err := spans.New(kind, batch, false)
	if err != nil {
		return 0, 0, 0, err
	}
	visited := 0
	visit := func(_ *lean.Resource, r *llmrequest.Request) {
		if r.Has(llmrequest.E2E) {
			visited++
		}
	}
	var total [3]time.Duration
	n := 0
	for begin := time.Now(); time.Since(begin) < time.Second; n += batch {
		template.Set(spans.Export{FirstID: uint64(n), End: 1_790_000_000_000_000_000, Step: 1e8})
		t0 := measure.CPU()
		td, err := template.Traces()
		if err != nil {
			return 0, 0, 0, err
		}
		t1 := measure.CPU()
		visited += readAll(td)
		t2 := measure.CPU()
		if err := lean.Requests(template.Wire, visit); err != nil {
			return 0, 0, 0, err
		}
		t3 := measure.CPU()
		for i, took := range []time.Duration{t1 - t0, t2 - t1, t3 - t2} {
			total[i] += took
		}
	}
	if visited != 2*n {
		return 0, 0, 0, fmt.Errorf("%d of %d requests were found", visited, 2*n)
	}
	per := func(i int) float64 { return float64(total[i].Nanoseconds()) / float64(n) }
	return per(0), per(1), per(2), nil
}

// readAll reads the requests of decoded spans, as serving_metrics does, and counts them.
func readAll(td ptrace.Traces) (n int) {
	var r llmrequest.Request
	for _, rs := range td.ResourceSpans().All() {
		for _, ss := range rs.ScopeSpans().All() {
			src := llmrequest.NewSource(rs.Resource().Attributes(), ss.Scope().Name())
			for _, span := range ss.Spans().All() {
				if llmrequest.Read(span, &src, &r) && r.Has(llmrequest.E2E) {
					n++
				}
			}
		}
	}
	return n
}
