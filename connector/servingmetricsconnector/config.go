// Copyright The otelcol-serving Authors
// SPDX-License-Identifier: Apache-2.0

package servingmetricsconnector

import (
	"errors"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/confmap"

	"github.com/otelcol-serving/otelcol-serving/internal/serving"
)

// Config is the configuration of the serving_metrics connector: that of the processor, except that a connector never changes
// the spans it is given.
type Config struct {
	Metrics MetricsConfig `mapstructure:",squash"`
	// Annotate and AnnotateOnly are keys of the processor that only say no here.
	Annotate     bool `mapstructure:"annotate"`
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
	return &Config{Metrics: MetricsConfig(serving.NewDefaultConfig())}
}

// Validate reports everything that is wrong, and refuses what only the processor can do.
func (c *Config) Validate() error {
	metrics := serving.Config(c.Metrics)
	err := metrics.Validate()
	if c.Annotate {
		err = errors.Join(err, errors.New("annotate: a connector never changes the spans it is given; remove it, or use the serving_metrics processor"))
	}
	if c.AnnotateOnly {
		err = errors.Join(err, errors.New("annotate_only: a connector only derives metrics; remove it, or use the serving_metrics processor"))
	}
	return err
}
