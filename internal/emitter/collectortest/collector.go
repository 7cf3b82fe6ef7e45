// Copyright The otelcol-serving Authors
// SPDX-License-Identifier: Apache-2.0

package collectortest

// The Collector itself.

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/component/componentstatus"
	"go.opentelemetry.io/collector/component/componenttest"
	"go.opentelemetry.io/collector/confmap"
	"go.opentelemetry.io/collector/confmap/provider/fileprovider"
	"go.opentelemetry.io/collector/confmap/provider/yamlprovider"
	"go.opentelemetry.io/collector/extension"
	"go.opentelemetry.io/collector/extension/extensioncapabilities"
	"go.opentelemetry.io/collector/otelcol"
	"go.opentelemetry.io/collector/service/telemetry"
	"go.opentelemetry.io/otel/metric"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"github.com/otelcol-serving/otelcol-serving/internal/emitter/internal/reload"
)

// Collector is a Collector under test. Besides the given factories it knows the push receiver, the sink
// exporter, and an extension that watches it.
type Collector struct {
	// Logs are all log records of level info and above.
	Logs *observer.ObservedLogs
	// Telemetry is the Collector's own.
	Telemetry *componenttest.Telemetry

	logCore   zapcore.Core
	collector *otelcol.Collector
	ready     chan struct{} // a value whenever all components run
	result    chan error    // of Run
	onceEnded sync.Once
	ended     error

	mu        sync.Mutex
	receivers map[component.ID]*Receiver
	sinks     map[component.ID]*Sink
	statuses  []Status
	watcher   confmap.WatcherFunc
}

// Status is a status event of a component.
type Status struct {
	Component string // kind and ID
	Status    componentstatus.Status
	Err       error
}

// New makes a Collector of the configuration in the file at path and of further YAML that is merged
// into it. It is shut down with the test.
func New(t testing.TB, factories otelcol.Factories, path string, overrides ...string) *Collector {
	reload.Forget() // no other's reload
	c := &Collector{
		Telemetry: componenttest.NewTelemetry(),
		ready:     make(chan struct{}, 1),
		result:    make(chan error, 1),
		receivers: map[component.ID]*Receiver{},
		sinks:     map[component.ID]*Sink{},
	}
	c.logCore, c.Logs = observer.New(zapcore.InfoLevel)
	uris := []string{"file:" + path, "yaml:extensions::watch:", "yaml:service::extensions: [watch]"}
	for _, o := range overrides {
		uris = append(uris, "yaml:"+o)
	}
	uris = append(uris, "change:")
	var err error
	c.collector, err = otelcol.NewCollector(otelcol.CollectorSettings{
		BuildInfo:               component.NewDefaultBuildInfo(),
		Factories:               func() (otelcol.Factories, error) { return c.factories(factories), nil },
		DisableGracefulShutdown: true,
		SkipSettingGRPCLogger:   true,
		ConfigProviderSettings: otelcol.ConfigProviderSettings{ResolverSettings: confmap.ResolverSettings{
			URIs: uris,
			ProviderFactories: []confmap.ProviderFactory{
				fileprovider.NewFactory(), yamlprovider.NewFactory(),
				confmap.NewProviderFactory(func(confmap.ProviderSettings) confmap.Provider { return changeProvider{c} }),
			},
		}},
		LoggingOptions: []zap.Option{zap.WrapCore(func(zapcore.Core) zapcore.Core { return c.logCore })},
	})
	require.NoError(t, err)
	t.Cleanup(func() {
		c.collector.Shutdown()
		require.NoError(t, c.Telemetry.Shutdown(context.Background()))
	})
	return c
}

// Start runs the Collector and returns when all its components run, or with the error for which they do not.
func (c *Collector) Start() error {
	go func() { c.result <- c.collector.Run(context.Background()) }()
	return c.wait()
}

func (c *Collector) wait() error {
	select {
	case <-c.ready:
		return nil
	case err := <-c.result:
		c.onceEnded.Do(func() { c.ended = err })
		if err == nil {
			err = errors.New("ended at once")
		}
		return err
	}
}

// Shutdown stops the Collector, as SIGTERM does, and returns the error of its run.
func (c *Collector) Shutdown() error {
	c.collector.Shutdown()
	c.onceEnded.Do(func() { c.ended = <-c.result })
	return c.ended
}

// Reload makes the Collector read its configuration again, as if it had changed.
func (c *Collector) Reload() error {
	c.mu.Lock()
	watcher := c.watcher
	c.mu.Unlock()
	watcher(&confmap.ChangeEvent{})
	return c.wait()
}

// DryRun is what the validate command does.
func (c *Collector) DryRun() error { return c.collector.DryRun(context.Background()) }

// Receiver is the push receiver of this ID.
func (c *Collector) Receiver(id string) *Receiver {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.receivers[mustID(id)]
}

// Sink is the sink exporter of this ID. It may be asked for before the Collector starts.
func (c *Collector) Sink(id string) *Sink { return c.sink(mustID(id)) }

func (c *Collector) sink(id component.ID) *Sink {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.sinks[id]
	if s == nil {
		s = &Sink{}
		c.sinks[id] = s
	}
	return s
}

// Statuses are the status events of a component, such as "processor serving_metrics", so far.
func (c *Collector) Statuses(name string) []Status {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(c.statuses), func(s Status) bool { return s.Component != name })
}

func mustID(text string) (id component.ID) {
	if err := id.UnmarshalText([]byte(text)); err != nil {
		panic(err)
	}
	return id
}

func (c *Collector) factories(f otelcol.Factories) otelcol.Factories {
	out := f
	out.Receivers = with(f.Receivers, c.receiverFactory())
	out.Exporters = with(f.Exporters, c.exporterFactory())
	out.Extensions = with(f.Extensions, c.watchFactory())
	out.Telemetry = telemetry.NewFactory(func() component.Config { return &struct{}{} },
		telemetry.WithCreateLogger(func(context.Context, telemetry.LoggerSettings, component.Config) (*zap.Logger, component.ShutdownFunc, error) {
			return zap.New(c.logCore), nil, nil
		}),
		telemetry.WithCreateMeterProvider(func(context.Context, telemetry.MeterSettings, component.Config) (telemetry.MeterProvider, error) {
			return meterProvider{c.Telemetry.NewTelemetrySettings().MeterProvider}, nil
		}))
	return out
}

// with is known and own.
func with[F component.Factory](known map[component.Type]F, own F) map[component.Type]F {
	all := map[component.Type]F{own.Type(): own}
	maps.Copy(all, known)
	return all
}

// meterProvider outlives the Collector, so that its last values can be read.
type meterProvider struct{ metric.MeterProvider }

func (meterProvider) Shutdown(context.Context) error { return nil }

// watchFactory makes the extension that sees all components running, and their status.
func (c *Collector) watchFactory() extension.Factory {
	return extension.NewFactory(component.MustNewType("watch"), func() component.Config { return &struct{}{} },
		func(context.Context, extension.Settings, component.Config) (extension.Extension, error) {
			return &watch{collector: c}, nil
		},
		component.StabilityLevelDevelopment)
}

type watch struct {
	component.StartFunc
	component.ShutdownFunc
	collector *Collector
}

var (
	_ extensioncapabilities.PipelineWatcher        = (*watch)(nil)
	_ extensioncapabilities.ComponentStatusWatcher = (*watch)(nil)
)

// Ready is told when all components run.
func (w *watch) Ready() error {
	w.collector.ready <- struct{}{}
	return nil
}

// NotReady is there for the interface.
func (*watch) NotReady() error { return nil }

// Changed is told of every status event.
func (w *watch) Changed(source *componentstatus.InstanceID, event *componentstatus.Event) {
	c := w.collector
	c.mu.Lock()
	defer c.mu.Unlock()
	name := source.Kind().String() + " " + source.ComponentID().String()
	c.statuses = append(c.statuses, Status{name, event.Status(), event.Err()})
}

// changeProvider adds nothing to the configuration but is told how to say that it changed.
type changeProvider struct{ collector *Collector }

func (p changeProvider) Retrieve(_ context.Context, _ string, watcher confmap.WatcherFunc) (*confmap.Retrieved, error) {
	p.collector.mu.Lock()
	defer p.collector.mu.Unlock()
	p.collector.watcher = watcher
	return confmap.NewRetrieved(map[string]any{})
}

func (changeProvider) Scheme() string { return "change" }

func (changeProvider) Shutdown(context.Context) error { return nil }

// Forget makes what comes no reload of what was: components of the same name count the same spans again.
func Forget() { reload.Forget() }
