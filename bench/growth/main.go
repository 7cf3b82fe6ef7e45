// Copyright The otelcol-serving Authors
// SPDX-License-Identifier: Apache-2.0

// Command growth measures how the cost of serving_metrics grows: with series, with engines, with the rate of requests of an engine,
// and what a collect does to ingest. It makes tables and plots.
//
//	go run ./growth [-short] [-write ../docs/performance.md -images ../docs/images]
package main

import (
	"flag"
	"fmt"
	"log"
	"os"
	"time"

	"github.com/otelcol-serving/otelcol-serving/bench/internal/report"
)

type effort struct {
	rounds    int
	each      time.Duration // of a measurement of ingest
	fill      int
	most      int           // series and engines
	quantiles time.Duration // of ingest, for each of with and without a collect
	requests  int           // for the windows
}

func main() {
	log.SetFlags(0)
	short := flag.Bool("short", false, "measure briefly and not the largest sizes, to see that it works")
	write := flag.String("write", "", "Markdown file that gets the tables")
	images := flag.String("images", "", "folder that gets the plots")
	flag.Parse()

	e := &effort{rounds: 5, each: 400 * time.Millisecond, fill: 1_200_000, most: 20_000, quantiles: 20 * time.Second, requests: 100_000}
	if *short {
		e = &effort{rounds: 2, each: 50 * time.Millisecond, fill: 100_000, most: 20_000, quantiles: 2 * time.Second, requests: 20_000}
	}
	var d, summary report.Document
	d.Text("%s %d rounds.", report.Machine(), e.rounds)
	var budgets []report.Budget
	for _, step := range []func(*effort, *report.Document, string) ([]report.Budget, error){bySeries, byEngines, byRate, whileCollecting} {
		began := time.Now()
		lines, err := step(e, &d, *images)
		if err != nil {
			log.Fatal(err)
		}
		budgets = append(budgets, lines...)
		fmt.Fprintln(os.Stderr, time.Since(began).Round(time.Second))
	}
	summary.Budgets(budgets)
	if err := report.Finish(*write, "growth", &d, &summary); err != nil {
		log.Fatal(err)
	}
}
