// Copyright The otelcol-serving Authors
// SPDX-License-Identifier: Apache-2.0

package replay

// The replay itself: what is sent when.

import (
	"context"
	"fmt"
	"time"

	"go.opentelemetry.io/collector/consumer/consumererror"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/ptrace"
)

// Options is how a recording is replayed.
type Options struct {
	// Speed scales the arrivals: 2 is twice as fast, 0 as fast as possible. Times in spans are not scaled.
	Speed float64
	// Now shifts the recording to the present. Loop repeats it until the context is done, and implies Now.
	Now, Loop bool
	// Batch is the recorded time whose spans are sent together. More than 0.
	Batch time.Duration
	// Progress is told the number of spans that were dealt with. Warn is told what a person should know. Either may be nil.
	Progress func(spans int)
	Warn     func(message string)
	// Clock is nil for the real one.
	Clock Clock
}

// Clock is the time that arrivals are paced by.
type Clock interface {
	Now() time.Time
	// Wait returns at time t, or earlier with an error when ctx is done.
	Wait(ctx context.Context, t time.Time) error
}

// Sender sends one request. rejected is the number of spans that the peer took the request without.
type Sender interface {
	Send(ctx context.Context, td ptrace.Traces) (rejected int, err error)
}

// Summary is what came of a replay.
type Summary struct {
	// Passes is the number of passes begun.
	Passes int
	// Sent spans and requests were accepted by the peer. Failed spans were not. Unsent spans of the
	// last pass were not tried, because the replay ended before.
	Sent, SentRequests, Failed, Unsent int
	// MaxLag is how much later than due a request was sent at most. 0 at Speed 0.
	MaxLag time.Duration
	// Duration is how long it took.
	Duration time.Duration
	// Err is why the replay ended before its end, if the peer was the reason.
	Err error
}

const (
	// maxBatchSpans is what OpenTelemetry SDKs send at most by default.
	maxBatchSpans = 512
	// maxBatchBytes is below the 4 MiB that a gRPC server takes by default.
	maxBatchBytes = 3 << 20
	// stopGrace is how long the request in flight may take when the replay is stopped.
	stopGrace = 2 * time.Second
)

// Run replays r until its end, until ctx is done, or until the peer cannot be reached any more.
// A request that the peer refuses for good is counted, and the next one is sent.
func Run(ctx context.Context, r *Recording, sender Sender, o Options) Summary {
	if o.Clock == nil {
		o.Clock = RealClock{}
	}
	if o.Progress == nil {
		o.Progress = func(int) {}
	}
	if o.Warn == nil {
		o.Warn = func(string) {}
	}
	// Stopping lets the request in flight end, so that its spans are counted for what they are.
	sending, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	defer context.AfterFunc(ctx, func() { time.AfterFunc(stopGrace, cancel) })()

	p := &player{rec: r, sender: sender, opts: o, sending: sending}
	start := o.Clock.Now()
	for {
		p.sum.Passes++
		p.pass(ctx)
		if !o.Loop || ctx.Err() != nil || p.sum.Err != nil {
			break
		}
	}
	p.sum.Duration = o.Clock.Now().Sub(start)
	return p.sum
}

type player struct {
	rec     *Recording
	sender  Sender
	opts    Options
	sending context.Context
	sum     Summary
}

func (p *player) pass(ctx context.Context) {
	begin := p.opts.Clock.Now()
	by := p.shift(begin)
	for next := 0; next < len(p.rec.items); {
		end := p.rec.batch(next, p.opts)
		batch := p.rec.items[next:end]
		if p.opts.Speed > 0 {
			due := begin.Add(p.scaled(p.rec.offset(batch[len(batch)-1])))
			if p.opts.Clock.Wait(ctx, due) == nil {
				p.sum.MaxLag = max(p.sum.MaxLag, p.opts.Clock.Now().Sub(due))
			}
		}
		if ctx.Err() != nil || p.sum.Err != nil {
			p.sum.Unsent += len(p.rec.items) - next
			return
		}
		p.send(p.rec.request(batch, by), batch)
		next = end
	}
}

// shift is what makes the recording start at begin. Played faster than recorded it would run ahead of the
// clock, so then it is what makes the last span end when it is sent.
func (p *player) shift(begin time.Time) shift {
	if !p.opts.Now && !p.opts.Loop {
		return shift{}
	}
	now := uint64(begin.UnixNano())
	if p.opts.Speed > 0 && p.opts.Speed <= 1 {
		return shift{now - uint64(p.rec.first.from)}
	}
	return shift{now + uint64(p.scaled(p.rec.Duration())) - uint64(p.rec.last.at)}
}

// scaled is how long recorded time takes.
func (p *player) scaled(d time.Duration) time.Duration {
	switch p.opts.Speed {
	case 0:
		return 0
	case 1:
		return d
	}
	// A speed near 0 must not overflow into the past.
	const forever = 1 << 62
	return time.Duration(min(float64(d)/p.opts.Speed, forever))
}

// offset is the recorded time from the first start until it ended.
func (r *Recording) offset(it item) time.Duration {
	if it.at <= r.first.from {
		return 0
	}
	return time.Duration(it.at - r.first.from)
}

// batch is the end of the batch that begins at the item from.
func (r *Recording) batch(from int, o Options) int {
	window := r.offset(r.items[from]) / o.Batch
	size := 0
	for i := from; i < len(r.items); i++ {
		size += r.items[i].size
		if i > from && (i-from >= maxBatchSpans || size > maxBatchBytes || o.Speed > 0 && r.offset(r.items[i])/o.Batch != window) {
			return i
		}
	}
	return len(r.items)
}

// request is a copy of the spans of batch under their resources and scopes, moved by the shift.
func (r *Recording) request(batch []item, by shift) ptrace.Traces {
	td := ptrace.NewTraces()
	resources := map[int]ptrace.ResourceSpans{}
	scopes := map[[2]int]ptrace.ScopeSpans{}
	for _, it := range batch {
		rs, ok := resources[it.resource]
		if !ok {
			rs = td.ResourceSpans().AppendEmpty()
			r.resources[it.resource].CopyTo(rs)
			resources[it.resource] = rs
		}
		key := [2]int{it.resource, it.scope}
		ss, ok := scopes[key]
		if !ok {
			ss = rs.ScopeSpans().AppendEmpty()
			r.scopes[it.scope].CopyTo(ss)
			scopes[key] = ss
		}
		span := ss.Spans().AppendEmpty()
		it.span.CopyTo(span)
		by.apply(span)
	}
	return td
}

func (p *player) send(td ptrace.Traces, batch []item) {
	requests := 0
	for _, it := range batch {
		if it.request {
			requests++
		}
	}
	rejected, err := p.sender.Send(p.sending, td)
	switch {
	case err != nil:
		p.sum.Failed += len(batch)
		p.opts.Warn(fmt.Sprintf("%d spans that ended at %v: %v", len(batch), pcommon.Timestamp(batch[len(batch)-1].at), err))
		if !consumererror.IsPermanent(err) {
			// Retries are used up: whatever comes next would only wait as long again.
			p.sum.Err = fmt.Errorf("the peer cannot be reached: %w", err)
		}
	case rejected > 0:
		// Which of them were refused is not said, so the requests among them cannot be told.
		rejected = min(rejected, len(batch))
		p.sum.Failed += rejected
		p.sum.Sent += len(batch) - rejected
		p.sum.SentRequests += max(0, requests-rejected)
		p.opts.Warn(fmt.Sprintf("the peer rejected %d of %d spans", rejected, len(batch)))
	default:
		p.sum.Sent += len(batch)
		p.sum.SentRequests += requests
	}
	p.opts.Progress(len(batch))
}

// RealClock is the machine's.
type RealClock struct{}

// Now is the present.
func (RealClock) Now() time.Time { return time.Now() }

// Wait waits with a timer.
func (RealClock) Wait(ctx context.Context, t time.Time) error {
	timer := time.NewTimer(time.Until(t))
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}
