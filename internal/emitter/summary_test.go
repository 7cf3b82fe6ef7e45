// Copyright The otelcol-serving Authors
// SPDX-License-Identifier: Apache-2.0

package emitter

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/component/componenttest"
	"go.opentelemetry.io/collector/consumer/consumertest"

	"github.com/otelcol-serving/otelcol-serving/internal/serving"
	"github.com/otelcol-serving/otelcol-serving/internal/summary"
)

var pageID = component.MustNewID("serving_summary")

// page is a registry that remembers.
type page struct {
	component.StartFunc
	component.ShutdownFunc
	reporters map[summary.Reporter]bool
}

func (p *page) Register(r summary.Reporter) func() {
	p.reporters[r] = true
	return func() { delete(p.reporters, r) }
}

type hostWith map[component.ID]component.Component

func (h hostWith) GetExtensions() map[component.ID]component.Component { return h }

func withPage(c *serving.Config) { c.Summary = &pageID }

func TestSummaryIsShownWhileRunning(t *testing.T) {
	f := newFixture(t, withPage)
	p := &page{reporters: map[summary.Reporter]bool{}}
	first, second := f.Output(consumertest.NewNop()), f.Output(consumertest.NewNop())
	require.NoError(t, first.Start(hostWith{pageID: p}))
	require.NoError(t, second.Start(hostWith{pageID: p}))
	require.Len(t, p.reporters, 1, "one, however many outputs there are")

	f.record(0, 3)
	for r := range p.reporters {
		assert.Equal(t, "processor/serving_metrics/x", r.Source().ID)
		assert.EqualValues(t, 3, r.Source().Requests)
		assert.InDelta(t, 15, r.Source().IntervalSeconds, 0)
		engines := r.Engines(time.Now())
		require.Len(t, engines, 1)
		assert.Equal(t, "processor/serving_metrics/x", engines[0].Source)
		report, ok := r.Engine(engines[0].Key, time.Now())
		require.True(t, ok)
		assert.Equal(t, "processor/serving_metrics/x", report.Engine.Source)
	}
	first.Shutdown(context.Background())
	assert.Len(t, p.reporters, 1)
	second.Shutdown(context.Background())
	assert.Empty(t, p.reporters)
}

func TestSummaryThatIsNotThere(t *testing.T) {
	f := newFixture(t, withPage)
	o := f.Output(consumertest.NewNop())
	require.EqualError(t, o.Start(componenttest.NewNopHost()),
		`summary: there is no extension "serving_summary": add it to extensions and to service::extensions, or remove summary`)
	o.Shutdown(context.Background())
}

func TestSummaryOfAnotherType(t *testing.T) {
	f := newFixture(t, withPage)
	o := f.Output(consumertest.NewNop())
	other := struct {
		component.StartFunc
		component.ShutdownFunc
	}{}
	require.EqualError(t, o.Start(hostWith{pageID: other}), `summary: the extension "serving_summary" shows no summary: name one of type serving_summary`)
	o.Shutdown(context.Background())
}
