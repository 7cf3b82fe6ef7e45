// Copyright The otelcol-serving Authors
// SPDX-License-Identifier: Apache-2.0

package main

// The command line, and the tables' place in a document.

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/otelcol-serving/otelcol-serving/internal/docsection"
	"github.com/otelcol-serving/otelcol-serving/internal/jobs"
)

func main() {
	if err := command(os.Args[1:], os.Stdout, os.Stderr); err != nil {
		if !errors.Is(err, flag.ErrHelp) {
			fmt.Fprintln(os.Stderr, "confusion:", err)
		}
		os.Exit(1)
	}
}

// The table is made with seeds from firstSeed on; rules and thresholds were tried on those from 0 on.
const (
	defaultSeeds = 5
	firstSeed    = 100
)

// command is the whole program.
func command(args []string, stdout, stderr io.Writer) error {
	flags := flag.NewFlagSet("confusion", flag.ContinueOnError)
	flags.SetOutput(stderr)
	short := flags.Bool("short", false, "a smoke test: one seed")
	seeds := flags.Int("seeds", defaultSeeds, "runs of each trouble")
	first := flags.Int("first", firstSeed, "the first seed")
	only := flags.String("only", "", "only troubles whose verdict, name or engine has this in it")
	details := flags.Bool("details", false, "also print every run with its sentence")
	file := flags.String("write", "", "write the tables between the markers of this file instead of printing them")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() > 0 {
		return fmt.Errorf("unexpected argument %q", flags.Arg(0))
	}
	if *seeds < 1 || *seeds > 1000 {
		return fmt.Errorf("-seeds %d: want 1 to 1000", *seeds)
	}
	if *first < 0 {
		return fmt.Errorf("-first %d: want 0 or more", *first)
	}
	if *short {
		*seeds = 1
	}
	var list []scenario
	for _, s := range scenarios {
		if strings.Contains(s.expect.String()+" "+s.name+" "+s.preset, *only) {
			list = append(list, s)
		}
	}
	if len(list) == 0 {
		return fmt.Errorf("-only %q: no such trouble", *only)
	}
	if *file != "" {
		// Before minutes of work, not after.
		if err := section.Check(*file); err != nil {
			return err
		}
	}
	results, err := runAll(list, *first, *seeds, jobs.Progress(stderr, "confusion"))
	if err != nil {
		return err
	}
	if *details {
		for i := range results {
			r := &results[i]
			mark := " "
			if !r.right() {
				mark = "!"
			}
			fmt.Fprintf(stdout, "%s %-22s %-12s %-34s %4v %5d requests -> %s (%s %s, tracked %s) %s also %v\n", mark, r.scenario.expect, r.scenario.preset, r.scenario.name, r.size,
				r.Figures.Requests, r.Verdict, r.Confidence, r.Cause, r.tracked, r.Sentence, alsoOf(r))
		}
	}
	if *file == "" {
		return write(stdout, results, *seeds)
	}
	var b bytes.Buffer
	if err := write(&b, results, *seeds); err != nil {
		return err
	}
	return section.Write(*file, b.String())
}

// section is what this command writes.
var section = docsection.Section{
	Begin: "<!-- confusion: written by go run ./internal/diagnosis/confusion -write docs/diagnosis.md, do not edit -->",
	End:   "<!-- confusion: end -->",
}
