// Copyright The otelcol-serving Authors
// SPDX-License-Identifier: Apache-2.0

package emitter

// The collect loop and its outputs. One goroutine collects and sends, in order; the final collect of
// an output is its own shutdown's.

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/component/componentstatus"
	"go.opentelemetry.io/collector/consumer"
	"go.opentelemetry.io/collector/consumer/consumererror"
	"go.opentelemetry.io/collector/pdata/ptrace"
	"go.uber.org/zap"

	"github.com/otelcol-serving/otelcol-serving/internal/emitter/internal/metadata"
	"github.com/otelcol-serving/otelcol-serving/internal/emitter/internal/reload"
	"github.com/otelcol-serving/otelcol-serving/internal/serving"
)

// A consumer has an interval's time to take the metrics, within these bounds.
const (
	minSendTimeout = time.Second
	maxSendTimeout = 30 * time.Second
)

// Emitter owns an aggregator and the loop that empties it.
type Emitter struct {
	aggregator *serving.Aggregator
	interval   time.Duration
	timeout    time.Duration // of one send
	delta      bool
	version    string
	logger     *zap.Logger
	id         component.ID
	kind       string
	telemetry  *metadata.TelemetryBuilder
	remember   time.Duration // dedupe::window
	summary    *component.ID // of the extension that shows the engines; nil: none

	// sending is held, by a value in it, while outputs are sent to. A channel and not a mutex, so that a
	// shutdown can stop waiting for a consumer that never returns.
	sending chan struct{}
	done    sync.WaitGroup // the loop

	mu      sync.Mutex // guards what follows, and running of the outputs; held for moments only
	outputs []*Output
	cancel  context.CancelFunc // ends the loop; nil before the first start
	hide    func()             // takes the engines off the summary page
	ended   bool               // the last output was shut down
	closed  bool
}

// Output is one consumer of the derived metrics.
type Output struct {
	emitter *Emitter
	next    consumer.Metrics
	host    component.Host

	running, stopped bool // guarded by the emitter's mu

	// What follows belongs to who holds sending.

	// pending is what a failed send left behind, with delta temporality.
	pending *serving.Snapshot
	failing bool // and said so
}

// New makes an Emitter that does nothing yet. kind is processor or connector, id that of the
// component. The error is that of an invalid configuration.
func New(c *serving.Config, set component.TelemetrySettings, build component.BuildInfo, kind string, id component.ID) (*Emitter, error) {
	return newEmitter(c, set, build, kind, id, serving.Clock{})
}

func newEmitter(c *serving.Config, set component.TelemetrySettings, build component.BuildInfo, kind string, id component.ID, clock serving.Clock) (*Emitter, error) {
	e := &Emitter{
		interval: c.Interval,
		timeout:  min(max(c.Interval, minSendTimeout), maxSendTimeout),
		delta:    c.Temporality == serving.Delta,
		version:  build.Version,
		logger:   set.Logger,
		kind:     kind,
		id:       id,
		summary:  c.Summary,
		sending:  make(chan struct{}, 1),
		remember: c.Dedupe.Window,
	}
	var err error
	if e.telemetry, err = metadata.NewTelemetryBuilder(set); err != nil {
		return nil, fmt.Errorf("own telemetry: %w", err)
	}
	e.aggregator, err = serving.New(c, serving.Settings{Clock: clock, Seen: reload.Take(reload.Key{Kind: kind, ID: id}), OnNewEngine: e.logEngine})
	return e, err
}

// Record counts the requests of td and, with annotate, adds their shares to their spans. It never
// waits for metrics to be built or sent.
func (e *Emitter) Record(td ptrace.Traces, annotate bool) { e.aggregator.Record(td, annotate) }

// Stats is the health of the aggregator.
func (e *Emitter) Stats() serving.Stats { return e.aggregator.Stats() }

// Output adds a consumer. It is sent to from its Start to its Shutdown.
func (e *Emitter) Output(next consumer.Metrics) *Output {
	e.mu.Lock()
	defer e.mu.Unlock()
	o := &Output{emitter: e, next: next}
	e.outputs = append(e.outputs, o)
	return o
}

// HasOutputs reports whether anybody gets the metrics.
func (e *Emitter) HasOutputs() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return len(e.outputs) > 0
}

// Close ends the Emitter's telemetry, after the last request and the last output's Shutdown: until then
// it tells what came too late. It may be called twice.
func (e *Emitter) Close() {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return
	}
	e.closed = true
	e.telemetry.Shutdown()
	e.aggregator.Close() // if there was no output
	reload.Leave(reload.Key{Kind: e.kind, ID: e.id}, e.aggregator.Seen(), e.remember)
	if dropped := e.aggregator.Stats().Dropped; dropped > 0 {
		e.logger.Warn("Requests came after the final collect and are in no metric: another receiver, or an asynchronous processor such as batch, "+
			"is in front of this processor in the traces pipeline; the serving_metrics connector has no such order to keep",
			zap.Int64("requests", dropped))
	}
}

var errStopped = errors.New("serving_metrics was shut down and cannot be started again")

// Start begins sending to o. host is told when o.next refuses metrics and when it takes them again.
func (o *Output) Start(host component.Host) error {
	e := o.emitter
	e.mu.Lock()
	defer e.mu.Unlock()
	switch {
	case o.running:
		return nil
	case o.stopped || e.ended:
		return errStopped
	}
	if e.cancel == nil {
		hide, err := e.register(host)
		if err != nil {
			return err
		}
		e.hide = hide
		if err := e.observe(); err != nil {
			hide()
			e.telemetry.Shutdown()
			return fmt.Errorf("own telemetry: %w", err)
		}
		// Not the context of Start, which is over when the Collector has started.
		ctx, cancel := context.WithCancel(context.Background())
		e.cancel = cancel
		e.done.Go(func() { e.loop(ctx) })
	}
	o.host = host
	o.running = true
	return nil
}

// Shutdown sends o what was recorded since the last interval and stops sending to it. The last output
// ends the loop, and requests that come later are counted as dropped. It returns when ctx is over, or
// after the time in which all consumers should have returned, whatever they do.
//
// A final collect that nobody takes is logged and counted, and is no error: the Collector exits on a
// failed shutdown when it only wants to reload its configuration.
func (o *Output) Shutdown(ctx context.Context) {
	e := o.emitter
	if !e.isRunning(o) {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, e.patience())
	defer cancel()
	if !e.acquire(ctx) {
		if stopped, _ := e.stop(o); stopped {
			e.lose(fmt.Errorf("the metrics before are still being taken: %w", ctx.Err()))
		}
		return
	}
	stopped, last := e.stop(o)
	if !stopped {
		<-e.sending
		return
	}

	// A consumer that ignores its context must not keep the Collector from stopping.
	result := make(chan error, 1)
	go func() {
		snapshot := e.aggregator.Take()
		e.keepForOthers(snapshot, o)
		_, err := e.send(ctx, snapshot, o)
		<-e.sending
		result <- err
	}()
	var err error
	select {
	case err = <-result:
	case <-ctx.Done():
		err = ctx.Err()
	}
	if last {
		e.done.Wait()
	}
	if err != nil {
		e.lose(err)
	}
}

// acquire takes sending, unless ctx ends before it is free.
func (e *Emitter) acquire(ctx context.Context) bool {
	select {
	case e.sending <- struct{}{}: // also if ctx is over already
		return true
	default:
	}
	select {
	case e.sending <- struct{}{}:
		return true
	case <-ctx.Done():
		return false
	}
}

// lose tells of a final collect that nobody got.
func (e *Emitter) lose(err error) {
	e.telemetry.ServingMetricsCollectsLost.Add(context.Background(), 1, e.attributes())
	e.logger.Warn("What was recorded since the last interval is lost: the next component of the metrics pipeline did not take the final collect", zap.Error(err))
}

// patience is how long all outputs and then one more may take.
func (e *Emitter) patience() time.Duration {
	e.mu.Lock()
	defer e.mu.Unlock()
	return time.Duration(len(e.outputs)+1) * e.timeout
}

func (e *Emitter) isRunning(o *Output) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return o.running
}

// stop ends the sending to o, if it did not end before, and says whether no output is left.
func (e *Emitter) stop(o *Output) (stopped, last bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if !o.running {
		return false, false
	}
	o.running, o.stopped = false, true
	for _, other := range e.outputs {
		if other.running {
			return true, false
		}
	}
	e.ended = true
	e.aggregator.Close() // nothing that is recorded from here on would be sent
	e.hide()
	e.cancel()
	return true, true
}

// runningOutputs is a copy, which can be walked without the lock.
func (e *Emitter) runningOutputs() []*Output {
	e.mu.Lock()
	defer e.mu.Unlock()
	var running []*Output
	for _, o := range e.outputs {
		if o.running {
			running = append(running, o)
		}
	}
	return running
}

// loop sends to all outputs at every interval.
func (e *Emitter) loop(ctx context.Context) {
	ticker := time.NewTicker(e.interval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		if !e.acquire(ctx) {
			return
		}
		if ctx.Err() == nil {
			e.collect(ctx)
		}
		<-e.sending
	}
}

// collect sends the same points to every output.
func (e *Emitter) collect(ctx context.Context) {
	snapshot := e.aggregator.Take()
	for _, o := range e.runningOutputs() {
		sent, err := e.send(ctx, snapshot, o)
		if ctx.Err() != nil {
			return // a shutdown that would not wait has said so
		}
		o.report(sent, err)
	}
}

// report tells once when o begins to refuse metrics and once when it takes them again.
func (o *Output) report(sent bool, err error) {
	switch {
	case err != nil && !o.failing:
		o.failing = true
		o.emitter.logger.Warn("The next component of the metrics pipeline refuses the derived metrics; unless the error is permanent and temporality is delta, "+
			"what they hold goes out with later ones", zap.Error(err), zap.Bool("permanent", consumererror.IsPermanent(err)))
		componentstatus.ReportStatus(o.host, componentstatus.NewRecoverableErrorEvent(err))
	case sent && o.failing:
		o.failing = false
		o.emitter.logger.Info("The next component of the metrics pipeline takes the derived metrics again")
		componentstatus.ReportStatus(o.host, componentstatus.NewEvent(componentstatus.StatusOK))
	}
}

// send sends o the snapshot and what failed before it. It reports whether there was anything to send that was taken.
func (e *Emitter) send(ctx context.Context, snapshot *serving.Snapshot, o *Output) (sent bool, err error) {
	whole := snapshot
	if o.pending != nil {
		whole = snapshot.Merge(o.pending)
		o.pending = nil
	}
	md := whole.Metrics(e.version)
	if md.DataPointCount() == 0 {
		return false, nil
	}
	ctx, cancel := context.WithTimeout(ctx, e.timeout)
	defer cancel()
	err = o.next.ConsumeMetrics(ctx, md)
	if err == nil {
		snapshot.Succeeded()
		return true, nil
	}

	e.telemetry.ServingMetricsSendFailed.Add(context.Background(), 1, e.attributes())
	switch {
	case !e.delta: // the next collect has the same sums and more
	case consumererror.IsPermanent(err): // it would be refused again, and all that comes later with it
		if e.isRunning(o) { // else its Shutdown counts
			e.telemetry.ServingMetricsCollectsLost.Add(context.Background(), 1, e.attributes())
		}
	case whole == snapshot:
		o.pending = snapshot.Detach()
	default:
		o.pending = whole
	}
	return false, err
}

// keepForOthers keeps for the outputs that are not sent to now what was taken out for one of them.
func (e *Emitter) keepForOthers(snapshot *serving.Snapshot, sent *Output) {
	if !e.delta {
		return
	}
	for _, o := range e.runningOutputs() {
		switch {
		case o == sent:
		case o.pending != nil:
			o.pending = snapshot.Merge(o.pending)
		default:
			o.pending = snapshot.Detach()
		}
	}
}

// logEngine tells, once per engine, what the operator should know of its name.
func (e *Emitter) logEngine(info serving.EngineInfo) {
	switch {
	case info.Overflow:
		e.logger.Warn("There are more engines than limits::engines allows; the metrics of all further ones are added up in one resource with otel.metric.overflow=true")
	case info.Source == "none":
		e.logger.Warn("Nothing names this engine, so the metrics of several may be mixed; " +
			"set OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES=service.instance.id=... for each replica")
	case info.MayMix:
		e.logger.Warn("Nothing but service.name tells this engine from others, so the metrics of several replicas may be mixed; "+
			"set OTEL_RESOURCE_ATTRIBUTES=service.instance.id=... for each replica",
			zap.String("service.name", info.Service))
	default:
		e.logger.Info("New engine", zap.String("service.name", info.Service), zap.String("service.instance.id", info.Name), zap.String("key", info.Source))
	}
}
