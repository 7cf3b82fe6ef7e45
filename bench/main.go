// Copyright The otelcol-serving Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"flag"
	"fmt"
	"log"
	"os"
	"slices"
	"testing"
	"text/tabwriter"

	"github.com/open-telemetry/opentelemetry-collector-contrib/connector/spanmetricsconnector"
	"go.opentelemetry.io/collector/component/componenttest"
	"go.opentelemetry.io/collector/connector"
	"go.opentelemetry.io/collector/connector/connectortest"
	"go.opentelemetry.io/collector/consumer/consumertest"
	"go.opentelemetry.io/collector/pdata/ptrace"
	"go.opentelemetry.io/collector/pdata/ptrace/ptraceotlp"

	"github.com/otelcol-serving/otelcol-serving/connector/servingmetricsconnector"
)

// measurement is one row of the table.
type measurement struct {
	name  string
	setup func() func(b *testing.B) // a fresh state, and what is measured; one iteration is one payload
	spans int                       // per iteration

	ns, bytes, allocs []float64 // per span, a value per round
}

func main() {
	testing.Init()
	rounds := flag.Int("rounds", 5, "how often everything is measured")
	batch := flag.Int("batch", 100, "spans per payload")
	flag.Parse()

	for _, kind := range []string{"v0", "v1"} {
		rows := measurements(kind, *batch)
		for range *rounds {
			for _, m := range rows {
				r := testing.Benchmark(m.setup())
				spans := float64(r.N * m.spans)
				m.ns = append(m.ns, float64(r.T.Nanoseconds())/spans)
				m.bytes = append(m.bytes, float64(r.MemBytes)/spans)
				m.allocs = append(m.allocs, float64(r.MemAllocs)/spans)
			}
		}
		print(kind, *batch, *rounds, rows)
	}
}

func measurements(kind string, batch int) []*measurement {
	return []*measurement{
		{name: "OTLP decode", spans: batch, setup: func() func(*testing.B) {
			wire, err := ptraceotlp.NewExportRequestFromTraces(payload(kind, batch, 1)).MarshalProto()
			check(err)
			return func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					check(ptraceotlp.NewExportRequest().UnmarshalProto(wire))
				}
			}
		}},
		{name: "walk the attributes", spans: batch, setup: func() func(*testing.B) {
			td := payload(kind, batch, 1)
			return func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					walk(td)
				}
			}
		}},
		{name: "serving_metrics connector, 1 engine", spans: batch, setup: consume(servingmetricsconnector.NewFactory(), kind, batch, 1)},
		{name: "serving_metrics connector, 100 engines", spans: batch, setup: consume(servingmetricsconnector.NewFactory(), kind, batch, 100)},
		{name: "span_metrics connector, 1 engine", spans: batch, setup: consume(spanmetricsconnector.NewFactory(), kind, batch, 1)},
		{name: "span_metrics connector, 100 engines", spans: batch, setup: consume(spanmetricsconnector.NewFactory(), kind, batch, 100)},
	}
}

// consume measures ConsumeTraces of a traces to metrics connector in its default configuration.
func consume(factory connector.Factory, kind string, batch, engines int) func() func(*testing.B) {
	return func() func(*testing.B) {
		sink := consumertest.NewNop()
		c, err := factory.CreateTracesToMetrics(context.Background(), connectortest.NewNopSettings(factory.Type()), factory.CreateDefaultConfig(), sink)
		check(err)
		check(c.Start(context.Background(), componenttest.NewNopHost()))
		payloads := make([]ptrace.Traces, engines)
		for i := range payloads {
			payloads[i] = payload(kind, batch, i)
			check(c.ConsumeTraces(context.Background(), payloads[i]))
		}
		next := uint64(0)
		return func(b *testing.B) {
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				td := payloads[i%engines]
				next = renumber(td, next)
				check(c.ConsumeTraces(context.Background(), td))
			}
			b.StopTimer()
			check(c.Shutdown(context.Background()))
		}
	}
}

func print(kind string, batch, rounds int, rows []*measurement) {
	fmt.Printf("\nvLLM %s spans, %d per payload, one core, medians of %d rounds\n\n", kind, batch, rounds)
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "\tns/span\tB/span\tallocs/span\tto decode\tto span_metrics\t")
	decode := median(rows[0].ns)
	peers := map[string]float64{}
	for _, m := range rows {
		peers[m.name] = median(m.ns)
	}
	for _, m := range rows {
		ratio := ""
		for _, engines := range []string{"1 engine", "100 engines"} {
			if m.name == "serving_metrics connector, "+engines {
				ratio = fmt.Sprintf("%.2f", median(m.ns)/peers["span_metrics connector, "+engines])
			}
		}
		fmt.Fprintf(w, "%s\t%.0f\t%.0f\t%.2f\t%.2f\t%s\t\n", m.name, median(m.ns), median(m.bytes), median(m.allocs), median(m.ns)/decode, ratio)
	}
	w.Flush()
}

func median(values []float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	return sorted[len(sorted)/2]
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
