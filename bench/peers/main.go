// Copyright The otelcol-serving Authors
// SPDX-License-Identifier: Apache-2.0

// Command peers measures what a request span costs in serving_metrics, beside decoding it from OTLP and beside contrib's
// span_metrics and signal_to_metrics connectors, all in one process.
//
//	go run ./peers [-short] [-write ../docs/performance.md]
//
// Every round measures every row of a table once, so that a change of the machine's speed meets all of them; the tables have
// medians over the rounds, with the smallest and largest value. A ratio is taken within one round.
package main

import (
	"flag"
	"fmt"
	"log"
	"os"
	"time"

	"github.com/otelcol-serving/otelcol-serving/bench/internal/report"
)

func main() {
	log.SetFlags(0)
	short := flag.Bool("short", false, "measure briefly: to see that it works, and to compare ratios roughly")
	rounds := flag.Int("rounds", 7, "how often everything is measured")
	write := flag.String("write", "", "Markdown file that gets the tables")
	only := flag.String("only", "", "one table: base, two, batch, engines, series, scaling")
	flag.Parse()

	e := &effort{rounds: *rounds, each: 400 * time.Millisecond, fill: 1_200_000}
	if *short {
		e = &effort{rounds: 3, each: 80 * time.Millisecond, fill: 100_000}
	}
	var d report.Document
	d.Text("%s %d rounds of %v.", report.Machine(), e.rounds, e.each)
	var all []*row
	for _, t := range tables() {
		if *only != "" && *only != t.name {
			continue
		}
		began := time.Now()
		if err := t.measure(e); err != nil {
			log.Fatal(err)
		}
		fmt.Fprintf(os.Stderr, "%s: %v\n", t.name, time.Since(began).Round(time.Second))
		t.write(&d)
		all = append(all, t.rows...)
	}
	var summary report.Document
	summary.Budgets(budgets(all))
	if err := report.Finish(*write, "peers", &d, &summary); err != nil {
		log.Fatal(err)
	}
}
