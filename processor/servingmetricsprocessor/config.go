// Copyright The otelcol-serving Authors
// SPDX-License-Identifier: Apache-2.0

package servingmetricsprocessor

import (
	"errors"
	"fmt"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/confmap"

	"github.com/otelcol-serving/otelcol-serving/internal/serving"
)

// Config is the configuration of the serving_metrics processor.
type Config struct {
	Metrics MetricsConfig `mapstructure:",squash"`
	// Annotate adds the shares of each request to its span, under the names of the metrics.
	Annotate bool `mapstructure:"annotate"`
	// AnnotateOnly annotates and derives no metrics.
	AnnotateOnly bool `mapstructure:"annotate_only"`
}

// MetricsConfig are the keys that processor and connector share. It has no Validate of its own, since the
// Collector would put the name of this field, which is no key, in front of the message.
type MetricsConfig serving.Config

var (
	_ component.Config  = (*Config)(nil)
	_ confmap.Validator = (*Config)(nil)
)

func createDefaultConfig() component.Config {
	return &Config{Metrics: MetricsConfig(serving.NewDefaultConfig()), Annotate: true}
}

// Validate reports everything that is wrong.
func (c *Config) Validate() error {
	metrics := serving.Config(c.Metrics)
	err := metrics.Validate()
	if c.AnnotateOnly && !c.Annotate {
		err = errors.Join(err, errors.New("annotate_only: true together with annotate: false does nothing; remove one of them"))
	}
	if c.AnnotateOnly && metrics.Summary != nil {
		err = errors.Join(err, fmt.Errorf("summary: %v has nothing to show with annotate_only: true; remove one of them", metrics.Summary))
	}
	return err
}
