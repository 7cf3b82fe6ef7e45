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
	"github.com/otelcol-serving/otelcol-serving/internal/enginesim"
	"github.com/otelcol-serving/otelcol-serving/internal/jobs"
)

func main() {
	if err := command(os.Args[1:], os.Stdout, os.Stderr); err != nil {
		if !errors.Is(err, flag.ErrHelp) {
			fmt.Fprintln(os.Stderr, "accuracy:", err)
		}
		os.Exit(1)
	}
}

// command is the whole program.
func command(args []string, stdout, stderr io.Writer) error {
	flags := flag.NewFlagSet("accuracy", flag.ContinueOnError)
	flags.SetOutput(stderr)
	short := flags.Bool("short", false, "a smoke test: few engine kinds, workloads and loads; the other flags but -write do not matter")
	duration := flags.Duration("duration", defaultDuration, "simulated time of each run")
	seeds := flags.Int("seeds", defaultSeeds, "runs of each cell")
	engines := flags.String("engines", strings.Join(enginesim.Presets(), ","), "engine kinds")
	names := flags.String("workloads", strings.Join(workloadNames(), ","), "workloads")
	file := flags.String("write", "", "write the tables between the markers of this file instead of printing them")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() > 0 {
		return fmt.Errorf("unexpected argument %q", flags.Arg(0))
	}
	p := shortPlan()
	if !*short {
		var err error
		if p, err = newPlan(split(*engines), split(*names), *duration, *seeds); err != nil {
			return err
		}
	}
	if *file != "" {
		// Before minutes of work, not after.
		if err := section.Check(*file); err != nil {
			return err
		}
	}

	r := runner{plan: p, capacities: &capacities{}, tell: jobs.Progress(stderr, "accuracy")}
	res, err := r.run()
	if err != nil {
		return err
	}
	if *file == "" {
		return res.write(stdout)
	}
	var b bytes.Buffer
	if err := res.write(&b); err != nil {
		return err
	}
	return section.Write(*file, b.String())
}

func split(s string) []string {
	var out []string
	for name := range strings.SplitSeq(s, ",") {
		if name = strings.TrimSpace(name); name != "" {
			out = append(out, name)
		}
	}
	return out
}

// section is what this command writes.
var section = docsection.Section{
	Begin: "<!-- accuracy: written by go run ./internal/accuracy -write docs/accuracy.md, do not edit -->",
	End:   "<!-- accuracy: end -->",
}
