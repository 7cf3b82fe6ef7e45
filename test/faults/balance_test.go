// Copyright The otelcol-serving Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/otelcol-serving/otelcol-serving/test/faults/rig"
)

func TestCheck(t *testing.T) {
	good := result{sent: 100, acknowledged: 100, forwarded: 100, counted: 100, evidence: "seen"}
	good.settle()
	require.NoError(t, good.check())
	for want, change := range map[string]func(r *result){
		"nothing was sent":                   func(r *result) { r.sent, r.acknowledged, r.counted = 0, 0, 0 },
		"1 of 100 spans were never":          func(r *result) { r.acknowledged-- },
		"3 acknowledged spans are lost":      func(r *result) { r.lost = 3 },
		"1 acknowledged spans are in no":     func(r *result) { r.counted-- },
		"2 spans are counted twice":          func(r *result) { r.counted += 2 },
		"nothing shows that the fault":       func(r *result) { r.evidence = "" },
		"2 acknowledged spans are in no cou": func(r *result) { r.counted -= 2; r.fault.mayMiss = 1 },
	} {
		r := good
		change(&r)
		r.settle()
		assert.ErrorContains(t, r.check(), want)
	}
	allowed := good
	allowed.fault = fault{mayLose: unbound, mayRepeat: 2}
	allowed.lost, allowed.counted = 50, 102
	allowed.settle()
	require.NoError(t, allowed.check())
}

func TestSumSamples(t *testing.T) {
	text := "# HELP a b\na{x=\"1\",y=\"2\"} 3\na{x=\"2\"} 4.5 1700000000000\na_total{x=\"1\"} 1\nab 100\na 2e3\n"
	for _, test := range []struct {
		labels []string
		want   float64
	}{{nil, 2008.5}, {[]string{`x="1"`}, 4}, {[]string{`x="1"`, `y="2"`}, 3}, {[]string{`z=`}, 0}} {
		got, err := rig.SumSamples(text, "a", test.labels...)
		require.NoError(t, err)
		assert.InDelta(t, test.want, got, 1e-9)
	}
	_, err := rig.SumSamples("a x", "a")
	require.Error(t, err)
}
