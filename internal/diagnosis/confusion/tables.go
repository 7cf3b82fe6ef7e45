// Copyright The otelcol-serving Authors
// SPDX-License-Identifier: Apache-2.0

package main

// The results as Markdown.

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/otelcol-serving/otelcol-serving/internal/diagnosis"
)

// aim is the share of right first verdicts that is aimed at, at the stated size of data and up.
const (
	aim         = .9
	statedSize  = 5 * time.Minute
	statedCount = 100
)

func alsoOf(r *result) []string {
	var names []string
	for _, f := range r.Also {
		names = append(names, f.Verdict.String())
	}
	return names
}

// stated reports whether a run has the data for which the aim holds: no requests are needed to tell idleness.
func (r *result) stated() bool {
	return r.size >= statedSize && (r.Figures.Requests >= statedCount || r.scenario.expect == diagnosis.Idle)
}

// tally counts runs.
type tally struct{ all, right, sureWrong, none int }

func (t *tally) add(r *result) {
	t.all++
	switch {
	case r.right():
		t.right++
	case r.Verdict == diagnosis.NoVerdict:
		t.none++
	case r.Confidence == diagnosis.High:
		t.sureWrong++
	}
}

func (t *tally) share() string {
	if t.all == 0 {
		return "–"
	}
	return fmt.Sprintf("%.1f %%", 100*float64(t.right)/float64(t.all))
}

func write(out io.Writer, results []result, seeds int) error {
	var b strings.Builder
	fmt.Fprintf(&b, "%d troubles and states, %d runs each, every run judged at each size of data: %d verdicts.\n\n", len(results)/seeds/len(sizes), seeds, len(results))

	// The matrix, at the stated size.
	var counts [diagnosis.NumVerdicts][diagnosis.NumVerdicts]int
	used := map[diagnosis.Verdict]bool{}
	var stated, tracked tally
	for i := range results {
		r := &results[i]
		if !r.stated() {
			continue
		}
		counts[r.scenario.expect][r.Verdict]++
		used[r.scenario.expect], used[r.Verdict] = true, true
		stated.add(r)
		tracked.all++
		if r.tracked == r.scenario.expect {
			tracked.right++
		}
	}
	fmt.Fprintf(&b, "From %s and %d requests on (idle: any number), the first verdict is right in **%s** (%d of %d, causes of `host_bound` included; aim %.0f %%), and wrong with high confidence in %d. With hysteresis %s are right.\n\n",
		short(statedSize), statedCount, stated.share(), stated.right, stated.all, 100*aim, stated.sureWrong, tracked.share())
	b.WriteString("Rows: the trouble that was built in. Columns: the verdict that came first.\n\n| |")
	var order []diagnosis.Verdict
	for v := diagnosis.NoVerdict; v < diagnosis.NumVerdicts; v++ {
		if used[v] {
			order = append(order, v)
		}
	}
	for _, v := range order {
		fmt.Fprintf(&b, " %s |", v)
	}
	b.WriteString("\n| --- |" + strings.Repeat(" ---: |", len(order)) + "\n")
	for _, row := range order {
		sum := 0
		for _, n := range counts[row] {
			sum += n
		}
		if sum == 0 {
			continue
		}
		fmt.Fprintf(&b, "| %s |", row)
		for _, column := range order {
			switch n := counts[row][column]; {
			case n == 0:
				b.WriteString(" |")
			case row == column:
				fmt.Fprintf(&b, " **%d** |", n)
			default:
				fmt.Fprintf(&b, " %d |", n)
			}
		}
		b.WriteString("\n")
	}

	b.WriteString("\nBy size of data, all troubles:\n\n| time | requests | verdicts | right | no verdict though one was due | wrong, of these with high confidence |\n| --- | --- | ---: | ---: | ---: | ---: |\n")
	for _, size := range sizes {
		for _, bucket := range buckets {
			var t tally
			for i := range results {
				if r := &results[i]; r.size == size && r.Figures.Requests >= bucket.from && r.Figures.Requests < bucket.to {
					t.add(r)
				}
			}
			if t.all == 0 {
				continue
			}
			fmt.Fprintf(&b, "| %s | %s | %d | %s | %d | %d, %d |\n", short(size), bucket.name, t.all, t.share(), t.none, t.all-t.right-t.none, t.sureWrong)
		}
	}

	b.WriteString("\nBy trouble:\n\n| trouble | engine | verdict due |")
	for _, size := range sizes {
		fmt.Fprintf(&b, " right at %s |", short(size))
	}
	b.WriteString(" came instead, from 5 min on |\n| --- | --- | --- |" + strings.Repeat(" ---: |", len(sizes)) + " --- |\n")
	for i := 0; i < len(results); i += seeds * len(sizes) {
		group := results[i : i+seeds*len(sizes)]
		s := group[0].scenario
		due := s.expect.String()
		if s.cause != "" {
			due += ": " + s.cause
		}
		fmt.Fprintf(&b, "| %s | %s | %s |", s.name, s.preset, due)
		instead := map[string]int{}
		for _, size := range sizes {
			var t tally
			for k := range group {
				if group[k].size != size {
					continue
				}
				t.add(&group[k])
				if size >= statedSize && !group[k].right() {
					got := group[k].Verdict.String()
					if group[k].Verdict == s.expect {
						got += ": " + group[k].Cause
					}
					instead[got]++
				}
			}
			fmt.Fprintf(&b, " %d/%d |", t.right, t.all)
		}
		b.WriteString(" " + list(instead) + " |\n")
	}
	_, err := io.WriteString(out, b.String())
	return err
}

var buckets = []struct {
	name     string
	from, to int64
}{
	{"below 30", 0, 30}, {"30–99", 30, 100}, {"100–299", 100, 300}, {"300 and more", 300, 1 << 62},
}

func short(d time.Duration) string { return fmt.Sprintf("%.0f min", d.Minutes()) }

func list(counts map[string]int) string {
	var parts []string
	for v := diagnosis.NoVerdict; v < diagnosis.NumVerdicts; v++ {
		for _, cause := range []string{"", ": ", ": " + diagnosis.CauseScheduler, ": " + diagnosis.CauseExecute, ": " + diagnosis.CauseOutside, ": " + diagnosis.CauseSmallBatch} {
			if n := counts[v.String()+cause]; n > 0 {
				parts = append(parts, fmt.Sprintf("%s %d", strings.TrimSuffix(v.String()+cause, ": "), n))
			}
		}
	}
	return strings.Join(parts, ", ")
}
