// Copyright The otelcol-serving Authors
// SPDX-License-Identifier: Apache-2.0

package servingmetricsconnector

import (
	"context"

	"go.opentelemetry.io/collector/consumer"
	"go.opentelemetry.io/collector/pdata/pmetric"
)

// blocked is a consumer that looks at no context.
type blocked struct{ release chan struct{} }

func (blocked) Capabilities() consumer.Capabilities { return consumer.Capabilities{} }

func (b blocked) ConsumeMetrics(context.Context, pmetric.Metrics) error {
	<-b.release
	return nil
}
