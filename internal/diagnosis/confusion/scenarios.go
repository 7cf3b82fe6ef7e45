// Copyright The otelcol-serving Authors
// SPDX-License-Identifier: Apache-2.0

package main

// The engines and their troubles.

import (
	"time"

	"github.com/otelcol-serving/otelcol-serving/internal/diagnosis"
	"github.com/otelcol-serving/otelcol-serving/internal/enginesim"
)

// scenario is one engine with one trouble.
type scenario struct {
	name   string
	expect diagnosis.Verdict
	// cause is what HostBound must be narrowed down to; empty: not looked at.
	cause string

	preset   string
	change   func(*enginesim.Config)
	workload enginesim.Workload
	// load is the offered share of the measured capacity; rate, if set, requests per second instead.
	load, rate float64
	// earlier is the load for some minutes before, in which the collector sees the engine already.
	earlier float64
	// then is the load from the moment on at which the collector starts to see requests; 0: the same. stop: none.
	then float64
	stop bool

	tpot time.Duration
	// before are the loads of the day before, each for the same time.
	before []float64
	// peer is another engine of the model, under another load.
	peer float64
	// unknownLimit: max_num_seqs is not configured.
	unknownLimit bool
	maybeMixed   bool
}

var (
	chat     = enginesim.Workload{Lengths: enginesim.LengthsChat, Arrivals: enginesim.Poisson}
	long     = enginesim.Workload{Lengths: enginesim.LengthsLong, Arrivals: enginesim.Poisson}
	conv     = enginesim.Workload{Lengths: enginesim.LengthsAzureConv, Arrivals: enginesim.Poisson}
	mooncake = enginesim.Workload{Lengths: enginesim.LengthsMooncake, Arrivals: enginesim.Poisson}
	code     = enginesim.Workload{Lengths: enginesim.LengthsAzureCode, Arrivals: enginesim.Poisson}
)

// room is for the longest prompts of Mooncake.
func room(c *enginesim.Config) {
	c.MaxModelLen, c.MaxBatchedTokens, c.KVTokens = 131072, 131072, 1<<21
}

func seqs(n int) func(*enginesim.Config) { return func(c *enginesim.Config) { c.MaxNumSeqs = n } }

func bursts(w enginesim.Workload) enginesim.Workload {
	w.Arrivals = enginesim.Bursty
	return w
}

// host makes the host's costs of a v0-hostbound engine.
func host(h enginesim.HostCosts) func(*enginesim.Config) {
	return func(c *enginesim.Config) { c.Host = h }
}

const us = time.Microsecond

// The lists with chosen loads came first; those with bursty arrivals were added when rules and thresholds stood.
var scenarios = []scenario{
	{name: "few requests", expect: diagnosis.Idle, preset: "v0-default", workload: chat, rate: .07},
	{name: "few requests", expect: diagnosis.Idle, preset: "v1", workload: chat, rate: .07},
	{name: "no requests any more", expect: diagnosis.Idle, preset: "v0-default", workload: chat, load: .3, stop: true},
	{name: "no requests any more", expect: diagnosis.Idle, preset: "v1", workload: chat, load: .3, stop: true},
	{name: "occupied, little of it used", expect: diagnosis.Idle, preset: "v0-default", change: seqs(64), workload: chat, load: .15, earlier: .9},
	{name: "occupied, little of it used", expect: diagnosis.Idle, preset: "v1", change: seqs(64), workload: chat, load: .15, earlier: .9},

	{name: "max_num_seqs 8", expect: diagnosis.QueueBoundAdmission, preset: "v0-default", change: seqs(8), workload: chat, load: 1.1},
	{name: "max_num_seqs 8", expect: diagnosis.QueueBoundAdmission, preset: "v0-async", change: seqs(8), workload: chat, load: .97},
	{name: "max_num_seqs 8", expect: diagnosis.QueueBoundAdmission, preset: "v1", change: seqs(8), workload: chat, load: 1.1},
	{name: "max_num_seqs 16", expect: diagnosis.QueueBoundAdmission, preset: "v0-chunked", change: seqs(16), workload: chat, load: 1.1},
	{name: "max_num_seqs 16", expect: diagnosis.QueueBoundAdmission, preset: "v1-async", change: seqs(16), workload: long, load: 1.1},

	{name: "room for 80,000 tokens", expect: diagnosis.QueueBoundKV, preset: "v0-preempt", workload: long, load: 1.1},
	{name: "room for 80,000 tokens", expect: diagnosis.QueueBoundKV, preset: "v1-preempt", workload: long, load: 1.3},
	{name: "room for 80,000 tokens", expect: diagnosis.QueueBoundKV, preset: "v1-preempt", workload: conv, load: 1.1},

	{name: "slow host", expect: diagnosis.HostBound, preset: "v0-hostbound", workload: chat, load: .7},
	{name: "slow host, full", expect: diagnosis.HostBound, preset: "v0-hostbound", workload: chat, load: .95},
	{name: "slow scheduler", expect: diagnosis.HostBound, cause: diagnosis.CauseScheduler, preset: "v0-hostbound", workload: chat, load: .6, change: host(enginesim.HostCosts{
		Scheduler: 2500 * us, SchedulerPerSeq: 80 * us, Prepare: 700 * us, Sample: 500 * us, Output: 150 * us, Loop: 200 * us,
	})},
	{name: "slow input preparation and sampling", expect: diagnosis.HostBound, cause: diagnosis.CauseExecute, preset: "v0-hostbound", workload: chat, load: .6, change: host(enginesim.HostCosts{
		Scheduler: 300 * us, SchedulerPerSeq: 5 * us, Prepare: 3000 * us, PreparePerSeq: 60 * us, Sample: 2500 * us, SamplePerSeq: 60 * us, Output: 150 * us, Loop: 200 * us,
	})},
	{name: "API server in the engine's process", expect: diagnosis.HostBound, cause: diagnosis.CauseOutside, preset: "v0-hostbound", workload: chat, load: .6, change: host(enginesim.HostCosts{
		Scheduler: 300 * us, SchedulerPerSeq: 5 * us, Prepare: 500 * us, Sample: 500 * us, Output: 1000 * us, OutputPerSeq: 40 * us, Loop: 3500 * us, LoopPerSeq: 80 * us,
	})},
	{name: "small batches", expect: diagnosis.HostBound, cause: diagnosis.CauseSmallBatch, preset: "v0-hostbound", workload: chat, load: .6, change: func(c *enginesim.Config) {
		c.MaxNumSeqs = 8
		c.Host = enginesim.HostCosts{Scheduler: 1200 * us, Prepare: 850 * us, Sample: 850 * us, Output: 500 * us, Loop: 1050 * us}
	}},

	{name: "load 0.95", expect: diagnosis.DeviceBoundFull, preset: "v0-default", workload: chat, load: .95},
	{name: "load 0.95", expect: diagnosis.DeviceBoundFull, preset: "v0-chunked", workload: chat, load: .95},
	{name: "load 0.95", expect: diagnosis.DeviceBoundFull, preset: "v0-async", workload: chat, load: .95},
	{name: "load 0.95", expect: diagnosis.DeviceBoundFull, preset: "v1", workload: chat, load: .95},

	{name: "load 0.7, 30 ms a token wanted", expect: diagnosis.DeviceBoundPastKnee, preset: "v0-default", workload: chat, load: .7, tpot: 30 * time.Millisecond},
	{name: "load 0.7, 25 ms a token wanted", expect: diagnosis.DeviceBoundPastKnee, preset: "v1", workload: chat, load: .7, tpot: 25 * time.Millisecond},

	{name: "code completion", expect: diagnosis.PrefillHeavy, preset: "v0-default", workload: code, load: .7},
	{name: "code completion", expect: diagnosis.PrefillHeavy, preset: "v0-async", workload: code, load: .7},
	{name: "code completion", expect: diagnosis.PrefillHeavy, preset: "v1", workload: code, load: .7},

	{name: "prompts of 15,000 tokens", expect: diagnosis.PrefillInterference, preset: "v0-default", change: room, workload: mooncake, load: .45},
	{name: "prompts of 15,000 tokens", expect: diagnosis.PrefillInterference, preset: "v0-async", change: room, workload: mooncake, load: .45},

	{name: "load 0.4 of 64 places", expect: diagnosis.DecodeHeadroom, preset: "v0-default", change: seqs(64), workload: chat, load: .4},
	{name: "load 0.4 of 64 places", expect: diagnosis.DecodeHeadroom, preset: "v1", change: seqs(64), workload: chat, load: .4},

	{name: "1.5 s to prepare a request", expect: diagnosis.FrontendBound, preset: "v1-frontend", workload: chat, load: .6},

	{name: "load from 0.6 to 1.4", expect: diagnosis.OverloadBuilding, preset: "v0-default", workload: chat, load: .6, then: 1.4},
	{name: "load from 0.6 to 1.4", expect: diagnosis.OverloadBuilding, preset: "v1", workload: chat, load: .6, then: 1.4},

	{name: "three times the rate", expect: diagnosis.WorkloadShift, preset: "v0-default", workload: chat, load: .65, before: []float64{.1, .1, .5, .1}},
	{name: "three times the rate", expect: diagnosis.WorkloadShift, preset: "v1", workload: chat, load: .65, before: []float64{.1, .1, .5, .1}},

	{name: "peer at load 0.2", expect: diagnosis.Imbalance, preset: "v0-default", workload: chat, load: .65, peer: .2},
	{name: "peer at load 0.2", expect: diagnosis.Imbalance, preset: "v1", workload: chat, load: .65, peer: .2},

	{name: "load 0.65", expect: diagnosis.Healthy, preset: "v0-default", workload: chat, load: .65},
	{name: "load 0.65", expect: diagnosis.Healthy, preset: "v0-chunked", workload: chat, load: .65},
	{name: "load 0.65", expect: diagnosis.Healthy, preset: "v0-async", workload: chat, load: .65},
	{name: "load 0.65", expect: diagnosis.Healthy, preset: "v1", workload: chat, load: .65},
	{name: "load 0.65", expect: diagnosis.Healthy, preset: "v1-async", workload: chat, load: .65},
	{name: "load 0.65, no device times", expect: diagnosis.Healthy, preset: "v0-default", change: func(c *enginesim.Config) { c.Detail = enginesim.DetailNone }, workload: chat, load: .65},
	{name: "load 0.65, peer the same", expect: diagnosis.Healthy, preset: "v1", workload: chat, load: .65, peer: .65, before: []float64{.6, .7}},

	{name: "few requests, in bursts", expect: diagnosis.Idle, preset: "v0-default", workload: bursts(chat), rate: .05},
	{name: "max_num_seqs 12, bursts", expect: diagnosis.QueueBoundAdmission, preset: "v0-default", change: seqs(12), workload: bursts(chat), load: 1.05},
	{name: "max_num_seqs 12, bursts", expect: diagnosis.QueueBoundAdmission, preset: "v1", change: seqs(12), workload: bursts(chat), load: .95},
	{name: "room for 60,000 tokens, bursts", expect: diagnosis.QueueBoundKV, preset: "v0-preempt", change: func(c *enginesim.Config) { c.KVTokens = 60_000 }, workload: bursts(long), load: 1.1},
	{name: "slow host, bursts", expect: diagnosis.HostBound, preset: "v0-hostbound", workload: bursts(chat), load: .6},
	{name: "load 0.95, bursts", expect: diagnosis.DeviceBoundFull, preset: "v0-default", workload: bursts(chat), load: .95},
	{name: "load 0.7, 30 ms a token wanted, bursts", expect: diagnosis.DeviceBoundPastKnee, preset: "v0-chunked", workload: bursts(chat), load: .7, tpot: 30 * time.Millisecond},
	{name: "code completion, bursts", expect: diagnosis.PrefillHeavy, preset: "v0-default", workload: bursts(code), load: .5},
	{name: "load 0.4 of 64 places, bursts", expect: diagnosis.DecodeHeadroom, preset: "v0-async", change: seqs(64), workload: bursts(chat), load: .4},
	{name: "1.5 s to prepare a request, bursts", expect: diagnosis.FrontendBound, preset: "v1-frontend", workload: bursts(chat), load: .4},
	{name: "load from 0.5 to 1.5, bursts", expect: diagnosis.OverloadBuilding, preset: "v0-async", workload: bursts(chat), load: .5, then: 1.5},
	{name: "load 0.6, bursts", expect: diagnosis.Healthy, preset: "v0-default", workload: bursts(chat), load: .6},
	{name: "load 0.6, bursts", expect: diagnosis.Healthy, preset: "v1", workload: bursts(chat), load: .6},

	{name: "one of ten requests", expect: diagnosis.NoVerdict, preset: "v0-default", change: func(c *enginesim.Config) { c.MaxNumSeqs, c.Sampling, c.Parents = 8, .1, 1 }, workload: chat, load: 1.05},
	{name: "four engines as one", expect: diagnosis.NoVerdict, preset: "v0-default", change: func(c *enginesim.Config) { c.Engines, c.Pooled = 4, true }, workload: chat, load: .6, maybeMixed: true},
	{name: "four engines as one", expect: diagnosis.NoVerdict, preset: "v1", change: func(c *enginesim.Config) { c.Engines, c.Pooled = 4, true }, workload: chat, load: .6, maybeMixed: true},
	{name: "a queue, limit not configured", expect: diagnosis.NoVerdict, preset: "v1", change: seqs(8), workload: chat, load: .93, unknownLimit: true},
}
