// Copyright The otelcol-serving Authors
// SPDX-License-Identifier: Apache-2.0

// Package jobs runs simulations that do not depend on each other, on all processors, and tells how far it is.
package jobs

import (
	"fmt"
	"io"
	"runtime"
	"sync"
	"time"
)

// Run does the jobs and gives the first error in their order. tell, which may be nil, is told after each of them, by one at a
// time.
func Run(jobs []func() error, tell func(done, all int)) error {
	errs := make([]error, len(jobs))
	next := make(chan int)
	var wg sync.WaitGroup
	var mu sync.Mutex
	done := 0
	for range min(runtime.GOMAXPROCS(0), len(jobs)) {
		wg.Go(func() {
			for i := range next {
				errs[i] = jobs[i]()
				mu.Lock()
				done++
				if tell != nil {
					tell(done, len(jobs))
				}
				mu.Unlock()
			}
		})
	}
	for i := range jobs {
		next <- i
	}
	close(next)
	wg.Wait()
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// Progress writes now and then how far the command of that name is.
func Progress(w io.Writer, command string) func(done, all int) {
	last := time.Now()
	return func(done, all int) {
		if now := time.Now(); now.Sub(last) > 10*time.Second {
			last = now
			fmt.Fprintf(w, "%s: %d of %d jobs done\n", command, done, all)
		}
	}
}
