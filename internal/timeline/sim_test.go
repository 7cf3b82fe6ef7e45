// Copyright The otelcol-serving Authors
// SPDX-License-Identifier: Apache-2.0

package timeline

// A small continuous-batching engine with ground truth, for the tests of this package: steps are
// prefill or decode (prompts first) or both (chunks), requests are given the step times that
// vLLM V0 gives them.

import (
	"math"
	"math/rand/v2"
	"sort"
	"time"

	"go.opentelemetry.io/collector/pdata/pcommon"

	"github.com/otelcol-serving/otelcol-serving/internal/llmrequest"
)

// engineModel is one engine; times in seconds.
type engineModel struct {
	chunked, async, v1 bool
	maxSeqs, budget    int
	kv                 int // tokens; 0: no limit

	fwd, fwdSeq, fwdCtx, fwdTok float64 // forward: step, per sequence, per 1000 tokens of context, per prompt token
	prep, prepSeq, post         float64 // in the executor, not forward
	sched, schedSeq             float64
	other, otherSeq             float64 // output processing
	spec                        float64 // tokens accepted per step, 0: one
}

var baseModel = engineModel{
	maxSeqs: 128, budget: 4096, fwd: 0.011, fwdSeq: 0.00006, fwdCtx: 0.00004, fwdTok: 0.00009,
	prep: 0.0012, prepSeq: 0.00001, post: 0.0008, sched: 0.0004, schedSeq: 0.00001, other: 0.0009, otherSeq: 0.00003,
}

func modelOf(name string) engineModel {
	m := baseModel
	switch name {
	case "default":
	case "async":
		m.async = true
	case "hostbound":
		m.prep, m.prepSeq, m.sched, m.schedSeq, m.other, m.otherSeq = 0.005, 0.00006, 0.003, 0.00004, 0.006, 0.00008
	case "preempt":
		m.kv = 45000
	case "chunked":
		m.chunked, m.budget = true, 512
	case "v1":
		m.chunked, m.budget, m.v1 = true, 2048, true
	default:
		panic(name)
	}
	return m
}

type simRequest struct {
	arrival, rs, fs, re float64
	f, e, s             float64
	prompt, out         int

	done, prefilled int // tokens made; prompt tokens run
	credit          float64
}

type workload struct {
	prompt, out float64 // means, lognormal
	burst       string  // poisson, bursty, onoff
}

func (w workload) draw(r *rand.Rand) (int, int) {
	ln := func(mean, sigma float64) int {
		return max(1, int(mean*math.Exp(sigma*r.NormFloat64()-sigma*sigma/2)))
	}
	return min(ln(w.prompt, 0.7), 4000), min(ln(w.out, 0.8), 2000)
}

// arrivals are about rate a second up to end.
func (w workload) arrivals(r *rand.Rand, rate, end float64) []float64 {
	var out []float64
	t, level, until := 0.0, 1.0, 0.0
	for {
		switch w.burst {
		case "bursty":
			if t >= until {
				level, until = math.Exp(0.7*r.NormFloat64()-0.245), t+r.ExpFloat64()*8
			}
		case "onoff":
			if t >= until {
				if level > 1 {
					level = 0.4
				} else {
					level = 1.6
				}
				until = t + 20 + 20*r.Float64()
			}
		}
		t += r.ExpFloat64() / (rate * level)
		if t > end {
			return out
		}
		out = append(out, t)
	}
}

// truth is what really happened, in seconds since the start.
type truth struct {
	fwdA, fwdB []float64 // forward passes
	requests   []*simRequest
	end        float64
	tokens     int
	preempted  int
	decodeA    []float64
	decodeD    []float64 // durations of decode steps
}

// run simulates arrivals to the end of all requests, or to stop.
func (m engineModel) run(seed uint64, w workload, rate, end, stop float64) *truth {
	r := rand.New(rand.NewPCG(seed, 7))
	tr := &truth{}
	var queue, running []*simRequest
	times := w.arrivals(r, rate, end)
	next := 0
	now := 0.0
	kv := 0
	var late []*simRequest // async: outputs still to be processed
	jit := func(x float64) float64 { return x * (0.9 + 0.2*r.Float64()) }
	stamp := func(at float64, qs []*simRequest) {
		for _, q := range qs {
			if q.fs == 0 {
				q.fs = at
			}
			if q.done >= q.out {
				q.re = at
				tr.requests = append(tr.requests, q)
			}
		}
	}
	for now < stop {
		for next < len(times) && times[next] <= now {
			p, o := w.draw(r)
			queue = append(queue, &simRequest{arrival: times[next], prompt: p, out: o})
			next++
		}
		if len(queue) == 0 && len(running) == 0 {
			if len(late) > 0 {
				stamp(now, late)
				late = nil
			}
			if next >= len(times) {
				break
			}
			now = max(now, times[next])
			continue
		}
		// Schedule.
		var pre, dec []*simRequest
		var chunk []int
		promptTokens := 0
		took := jit(m.sched + m.schedSeq*float64(len(running)))
		if m.chunked {
			for _, q := range running {
				if q.prefilled >= q.prompt {
					dec = append(dec, q)
				}
			}
			left := m.budget - len(dec)
			for _, q := range running {
				if n := min(q.prompt-q.prefilled, left); n > 0 {
					pre, chunk = append(pre, q), append(chunk, n)
					left -= n
					promptTokens += n
				}
			}
			for len(queue) > 0 && left > 0 && len(running) < m.maxSeqs {
				q := queue[0]
				queue = queue[1:]
				q.rs = now + took
				n := min(q.prompt, left)
				pre, chunk = append(pre, q), append(chunk, n)
				left -= n
				promptTokens += n
				running = append(running, q)
			}
		} else {
			for len(queue) > 0 && len(running) < m.maxSeqs {
				q := queue[0]
				need := q.prompt + q.done
				if promptTokens > 0 && promptTokens+need > m.budget || m.kv > 0 && len(running) > 0 && kv+need+len(running) > m.kv {
					break
				}
				queue = queue[1:]
				if q.rs == 0 {
					q.rs = now + took
				}
				kv += need
				promptTokens += need
				pre, chunk = append(pre, q), append(chunk, need)
				running = append(running, q)
			}
			if len(pre) == 0 {
				// Preempt the newest while the caches do not fit.
				for m.kv > 0 && kv+len(running) > m.kv && len(running) > 1 {
					v := running[len(running)-1]
					running = running[:len(running)-1]
					kv -= v.prompt + v.done
					queue = append([]*simRequest{v}, queue...)
					tr.preempted++
				}
				dec = running
			}
		}
		for _, q := range running {
			q.s += took
		}
		began := now
		now += took
		// Execute.
		n := len(pre) + len(dec)
		ctx := 0
		for _, q := range dec {
			ctx += q.prompt + q.done
		}
		prep, post := jit(m.prep+m.prepSeq*float64(n)), jit(m.post)
		fwd := jit(m.fwd + m.fwdSeq*float64(n) + m.fwdCtx*float64(ctx)/1000 + m.fwdTok*float64(promptTokens))
		a := now + prep
		b := a + fwd
		tr.fwdA, tr.fwdB = append(tr.fwdA, a), append(tr.fwdB, b)
		if len(late) > 0 {
			stamp(a+0.0003, late)
			late = late[:0]
		}
		now = b + post
		for _, qs := range [2][]*simRequest{pre, dec} {
			for _, q := range qs {
				q.f += fwd
				q.e += prep + fwd + post
			}
		}
		var outs []*simRequest
		for i, q := range pre {
			if q.prefilled += chunk[i]; q.prefilled >= q.prompt {
				q.prefilled = q.prompt
				q.done++
				tr.tokens++
				kv++
				outs = append(outs, q)
			}
		}
		for _, q := range dec {
			k := 1
			if m.spec > 0 {
				q.credit += 1 + (m.spec-1)*2*r.Float64()
				k = min(int(q.credit), q.out-q.done)
				q.credit -= float64(k)
			}
			q.done += k
			tr.tokens += k
			kv += k
			outs = append(outs, q)
		}
		keep := running[:0:0]
		for _, q := range running {
			if q.done < q.out {
				keep = append(keep, q)
			} else {
				kv -= q.prompt + q.done
			}
		}
		running = keep
		if m.async {
			late = append(late[:0:0], outs...)
		} else {
			stamp(now, outs)
			now += jit(m.other + m.otherSeq*float64(n))
		}
		if len(dec) > 0 {
			tr.decodeA, tr.decodeD = append(tr.decodeA, began), append(tr.decodeD, now-began)
		}
	}
	stamp(now, late)
	tr.end = now
	return tr
}

// capacity is the request rate at which the engine is full.
func (m engineModel) capacity(w workload) (requests, tokens float64) {
	tr := m.run(99, workload{w.prompt, w.out, "poisson"}, 200, 400, 400)
	n := 0
	for _, q := range tr.requests {
		if q.re > 100 {
			n++
		}
	}
	made := 0.0
	for _, q := range tr.requests {
		if q.re > 100 {
			made += float64(q.out)
		}
	}
	return float64(n) / 300, made / 300
}

var simEpoch = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// request is q as the engine's span tells it, offset by at seconds.
func (m engineModel) request(q *simRequest, at float64) llmrequest.Request {
	var r llmrequest.Request
	base := float64(simEpoch.Unix()) + at
	// A float64 of Unix seconds, as Python's clock gives it.
	st := math.Round((base+q.arrival)*4194304) / 4194304
	whole := math.Floor(st)
	ns := int64(whole)*1e9 + int64(math.Round((st-whole)*1e9))
	shift := func(x float64) float64 { return x - (st - base) }
	r.Start = pcommon.Timestamp(ns)
	r.End = r.Start + pcommon.Timestamp((shift(q.re)+0.0005)*1e9)
	r.Kind, r.Sequences = llmrequest.KindVLLM, 1
	r.Set(llmrequest.E2E, shift(q.re))
	r.Set(llmrequest.TimeToFirstToken, shift(q.fs))
	r.Set(llmrequest.Queue, max(0, shift(q.rs)))
	r.Set(llmrequest.InputTokens, float64(q.prompt))
	r.Set(llmrequest.OutputTokens, float64(q.out))
	if m.v1 {
		r.Generation = llmrequest.GenerationV1
		r.Set(llmrequest.Prefill, q.fs-q.rs)
		r.Set(llmrequest.Decode, q.re-q.fs)
		r.Set(llmrequest.Inference, q.re-q.rs)
		return r
	}
	r.Generation = llmrequest.GenerationV0
	r.Set(llmrequest.Scheduler, q.s)
	r.Set(llmrequest.Forward, q.f)
	r.Set(llmrequest.Execute, q.e)
	return r
}

// spans are all finished requests in the order of their arrival at the collector, which is late
// by up to delay seconds.
func (m engineModel) spans(tr *truth, seed uint64, delay, at float64) []llmrequest.Request {
	r := rand.New(rand.NewPCG(seed, 11))
	type arriving struct {
		t float64
		q *simRequest
	}
	var as []arriving
	for _, q := range tr.requests {
		as = append(as, arriving{q.re + delay*r.Float64(), q})
	}
	sort.SliceStable(as, func(i, j int) bool { return as[i].t < as[j].t })
	out := make([]llmrequest.Request, 0, len(as))
	for _, a := range as {
		out = append(out, m.request(a.q, at))
	}
	return out
}

// busy is the true forward time in [a, b), s.
func (tr *truth) busy(a, b float64) float64 {
	s := 0.0
	for i := sort.SearchFloat64s(tr.fwdB, a); i < len(tr.fwdA) && tr.fwdA[i] < b; i++ {
		s += min(tr.fwdB[i], b) - max(tr.fwdA[i], a)
	}
	return s
}

// running is the true request seconds in [a, b) and the union of them.
func (tr *truth) concurrency(a, b float64) (running, waiting, occupied float64) {
	var u []span
	for _, q := range tr.requests {
		if x := min(q.re, b) - max(q.rs, a); x > 0 {
			running += x
			u = append(u, span{int64(max(q.rs, a) * sec), int64(min(q.re, b) * sec)})
		}
		waiting += max(0, min(q.rs, b)-max(q.arrival, a))
	}
	sort.Slice(u, func(i, j int) bool { return u[i].b < u[j].b })
	return running, waiting, float64(sum(u[unionByEnd(u):])) / sec
}

// step is the mean duration of the decode steps that began in [a, b).
func (tr *truth) step(a, b float64) float64 {
	i, j := sort.SearchFloat64s(tr.decodeA, a), sort.SearchFloat64s(tr.decodeA, b)
	if i == j {
		return 0
	}
	s := 0.0
	for _, d := range tr.decodeD[i:j] {
		s += d
	}
	return s / float64(j-i)
}
