// Copyright The otelcol-serving Authors
// SPDX-License-Identifier: Apache-2.0

package main

// The balance of a fault, and the table of them.

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/otelcol-serving/otelcol-serving/internal/docsection"
)

// result is the balance of one fault, in spans.
type result struct {
	fault fault

	sent         int64 // given to clients
	acknowledged int64 // of them, those that the collector took
	forwarded    int64 // different ones at the backend
	again        int64 // times a span came to the backend after its first
	counted      int64 // by llm.serving.request.count, over all lives of the collector
	lost         int64 // acknowledged and not at the backend
	uncounted    int64 // acknowledged and in no count
	twice        int64 // counted more often than once

	noBackend bool   // nothing is forwarded in this fault
	evidence  string // that the fault really happened
	took      time.Duration
	err       error
	log       string
}

// settle computes what follows from the others.
func (r *result) settle() {
	r.uncounted = max(0, r.acknowledged-r.counted)
	r.twice = max(0, r.counted-r.sent)
}

// check is what is wrong with the balance.
func (r *result) check() error {
	var errs []error
	fail := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if r.sent == 0 {
		fail("nothing was sent")
	}
	if r.acknowledged != r.sent {
		fail("%d of %d spans were never acknowledged, although clients kept trying", r.sent-r.acknowledged, r.sent)
	}
	if r.lost > r.fault.mayLose {
		fail("%d acknowledged spans are lost", r.lost)
	}
	if r.uncounted > r.fault.mayMiss {
		fail("%d acknowledged spans are in no count", r.uncounted)
	}
	if r.twice > r.fault.mayRepeat {
		fail("%d spans are counted twice", r.twice)
	}
	if r.evidence == "" {
		errs = append(errs, errNotSeen)
	}
	return errors.Join(errs...)
}

// errNotSeen is a balance that proves nothing. It says nothing against the collector.
var errNotSeen = errors.New("nothing shows that the fault happened")

func (r *result) print(to io.Writer) {
	verdict := "ok"
	if r.err != nil {
		verdict = "FAILED"
	}
	fmt.Fprintf(to, "%-22s %-6s %4.1f s  sent %d, acknowledged %d, forwarded %d (+%d again), counted %d; lost %d, uncounted %d, twice %d; %s\n",
		r.fault.name, verdict, r.took.Seconds(), r.sent, r.acknowledged, r.forwarded, r.again, r.counted, r.lost, r.uncounted, r.twice, r.evidence)
	if r.err != nil {
		fmt.Fprintf(to, "%v\n%s\n", r.err, r.log)
	}
}

// table is the balance of all faults, in Markdown.
func table(results []*result) string {
	var b strings.Builder
	b.WriteString("| fault | sent | acknowledged | forwarded | again | counted | lost | not counted | twice | it happened |\n")
	b.WriteString("| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | --- |\n")
	for _, r := range results {
		forwarded, again, lost := fmt.Sprint(r.forwarded), fmt.Sprint(r.again), fmt.Sprint(r.lost)
		if r.noBackend {
			forwarded, again, lost = "-", "-", "-"
		}
		evidence := r.evidence
		if r.err != nil {
			evidence = "FAILED: " + strings.ReplaceAll(r.err.Error(), "\n", "; ")
			if len(evidence) > 200 {
				evidence = evidence[:200] + "..."
			}
		}
		fmt.Fprintf(&b, "| %s | %d | %d | %s | %s | %d | %s | %d | %d | %s |\n",
			r.fault.title, r.sent, r.acknowledged, forwarded, again, r.counted, lost, r.uncounted, r.twice, evidence)
	}
	return b.String()
}

// section is what the command writes.
var section = docsection.Section{Begin: "<!-- faults: begin -->", End: "<!-- faults: end -->"}
