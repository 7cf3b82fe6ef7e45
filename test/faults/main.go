// Copyright The otelcol-serving Authors
// SPDX-License-Identifier: Apache-2.0

package main

// Runs the faults, several at a time since they mostly wait, and prints their balance.

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/otelcol-serving/otelcol-serving/test/faults/rig"
)

func main() {
	var o options
	flag.StringVar(&o.write, "write", "", "write the table into this file, between its markers")
	flag.StringVar(&o.only, "only", "", "run only these faults, separated by commas")
	flag.BoolVar(&o.short, "short", false, "shorter faults, for CI")
	flag.IntVar(&o.parallel, "parallel", 4, "faults at a time")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	ok, err := o.run(ctx)
	if err != nil {
		fmt.Fprintln(os.Stderr, "faults:", err)
	}
	if !ok || err != nil {
		stop()
		os.Exit(1)
	}
}

type options struct {
	write, only string
	short       bool
	parallel    int
}

// longest is how long one fault may take before it has failed.
const longest = 100 * time.Second

// run reports whether every balance is right.
func (o *options) run(ctx context.Context) (bool, error) {
	binary, err := rig.Binary()
	if err != nil {
		return false, err
	}
	chosen, err := choose(o.only)
	if err != nil {
		return false, err
	}
	if o.write != "" && (o.only != "" || o.short) {
		return false, errors.New("-write wants all faults at their full length: leave out -only and -short")
	}
	begin := time.Now()
	results := make([]*result, len(chosen))
	slots := make(chan struct{}, max(o.parallel, 1))
	var all sync.WaitGroup
	var printing sync.Mutex
	for i, f := range chosen {
		slots <- struct{}{}
		all.Go(func() {
			defer func() { <-slots }()
			// A machine that is busy can let the moment pass in which the fault would have shown. A balance that
			// is wrong is wrong the first time.
			for range 3 {
				if results[i] = o.one(ctx, binary, f); !errors.Is(results[i].err, errNotSeen) {
					break
				}
			}
			printing.Lock()
			defer printing.Unlock()
			results[i].print(os.Stdout)
		})
	}
	all.Wait()
	fmt.Printf("\n%s\n%d faults in %.0f s\n", table(results), len(results), time.Since(begin).Seconds())
	failed := slices.ContainsFunc(results, func(r *result) bool { return r.err != nil })
	if o.write != "" && !failed {
		return true, section.Write(o.write, table(results))
	}
	return !failed, nil
}

func choose(only string) ([]fault, error) {
	if only == "" {
		return faults, nil
	}
	var chosen []fault
	for name := range strings.SplitSeq(only, ",") {
		i := slices.IndexFunc(faults, func(f fault) bool { return f.name == name })
		if i < 0 {
			var names []string
			for _, f := range faults {
				names = append(names, f.name)
			}
			return nil, fmt.Errorf("no fault is called %q; there are %s", name, strings.Join(names, ", "))
		}
		chosen = append(chosen, faults[i])
	}
	return chosen, nil
}

// one runs one fault in a folder of its own.
func (o *options) one(ctx context.Context, binary string, f fault) *result {
	r := &result{fault: f}
	began := time.Now()
	defer func() { r.took = time.Since(began) }()
	dir, err := os.MkdirTemp("", "otelcol-serving-fault-")
	if err != nil {
		r.err = err
		return r
	}
	defer os.RemoveAll(dir)
	ctx, cancel := context.WithTimeout(ctx, longest)
	x := &trial{binary: binary, dir: dir, length: 3 * time.Second, settling: 30 * time.Second, cancel: cancel, result: r}
	if o.short {
		x.length = time.Second
	}
	defer x.end()
	if r.err = f.run(ctx, x); r.err == nil {
		r.err = r.check()
	}
	if r.err != nil {
		r.log = x.logs()
	}
	return r
}
