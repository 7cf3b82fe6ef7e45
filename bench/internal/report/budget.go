// Copyright The otelcol-serving Authors
// SPDX-License-Identifier: Apache-2.0

package report

// What may be spent, and what was.

import "fmt"

// Budget is one line: Value is to be at most Limit, or with AtLeast at least. Without both it has no budget and is only shown.
type Budget struct {
	What, Limited, Measured string // as shown
	Value, Limit            float64
	AtLeast                 bool
	// Verdict is shown in place of met or missed.
	Verdict string
}

// verdict says how far off a missed budget is.
func (b *Budget) verdict() string {
	switch {
	case b.Verdict != "":
		return b.Verdict
	case b.Value == 0 && b.Limit == 0:
		return ""
	case b.AtLeast && b.Value >= b.Limit, !b.AtLeast && b.Value <= b.Limit:
		return "met"
	case b.Limit == 0:
		return "**missed**"
	case b.AtLeast:
		return fmt.Sprintf("**missed**: %.2f of it", b.Value/b.Limit)
	}
	return fmt.Sprintf("**missed**: %.2f times it", b.Value/b.Limit)
}

// Budgets adds a table of budgets.
func (d *Document) Budgets(all []Budget) {
	rows := make([][]string, len(all))
	for i := range all {
		rows[i] = []string{all[i].What, all[i].Limited, all[i].Measured, all[i].verdict()}
	}
	d.Table([]string{"", "budget", "measured", ""}, rows)
}
