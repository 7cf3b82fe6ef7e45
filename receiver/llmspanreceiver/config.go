// Copyright The otelcol-serving Authors
// SPDX-License-Identifier: Apache-2.0

package llmspanreceiver

// The configuration: the otlp receiver's own, and what to do with spans that are no requests.

import (
	"errors"
	"fmt"
	"net"
	"strings"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/config/confignet"
	"go.opentelemetry.io/collector/config/configoptional"
	"go.opentelemetry.io/collector/confmap"
	"go.opentelemetry.io/collector/receiver/otlpreceiver"
)

// Config is the configuration of the llm_span receiver.
type Config struct {
	// OTLP is the configuration of the otlp receiver, whose keys are the same here. The one difference:
	// where protocols names none, gRPC and HTTP are both on.
	OTLP otlpreceiver.Config `mapstructure:",squash"`

	// OtherSpans says what to do with spans that are no requests. Default: keep.
	OtherSpans OtherSpans `mapstructure:"other_spans"`

	// prevent unkeyed literal initialization
	_ struct{}
}

// OtherSpans says what to do with spans that are no requests.
type OtherSpans string

const (
	// OtherSpansKeep passes them on as they came.
	OtherSpansKeep OtherSpans = "keep"
	// OtherSpansDrop takes them out.
	OtherSpansDrop OtherSpans = "drop"
)

var (
	_ component.Config    = (*Config)(nil)
	_ confmap.Unmarshaler = (*Config)(nil)
	_ confmap.Validator   = (*Config)(nil)
)

func createDefaultConfig() component.Config {
	cfg := &Config{
		OTLP:       *otlpreceiver.NewFactory().CreateDefaultConfig().(*otlpreceiver.Config),
		OtherSpans: OtherSpansKeep,
	}
	cfg.OTLP.Protocols.GRPC.GetOrInsertDefault()
	cfg.OTLP.Protocols.HTTP.GetOrInsertDefault()
	return cfg
}

// Unmarshal reads conf over the defaults. Both protocols are on by default, and as with the otlp
// receiver naming one of them turns the other off.
func (c *Config) Unmarshal(conf *confmap.Conf) error {
	if named, ok := conf.Get("protocols").(map[string]any); ok && len(named) > 0 {
		offUnlessNamed(&c.OTLP.Protocols.GRPC, named, "grpc")
		offUnlessNamed(&c.OTLP.Protocols.HTTP, named, "http")
	}
	return conf.Unmarshal(c)
}

func offUnlessNamed[T any](protocol *configoptional.Optional[T], named map[string]any, name string) {
	if _, ok := named[name]; !ok && protocol.HasValue() {
		*protocol = configoptional.Default(*protocol.Get())
	}
}

// Validate checks what the otlp receiver's own validation does not.
func (c *Config) Validate() error {
	var errs []error
	if c.OtherSpans != OtherSpansKeep && c.OtherSpans != OtherSpansDrop {
		errs = append(errs, fmt.Errorf(
			"other_spans: %q is not known; write %s to pass on the spans that are no requests, or %s to take them out",
			c.OtherSpans, OtherSpansKeep, OtherSpansDrop))
	}
	var grpc, http confignet.AddrConfig
	if protocol := c.OTLP.Protocols.GRPC.Get(); protocol != nil {
		grpc = protocol.NetAddr
		errs = append(errs, checkEndpoint("protocols::grpc::endpoint", grpc, "localhost:4317"))
	}
	if protocol := c.OTLP.Protocols.HTTP.Get(); protocol != nil {
		http = protocol.ServerConfig.NetAddr
		errs = append(errs, checkEndpoint("protocols::http::endpoint", http, "localhost:4318"))
	}
	if grpc == http && grpc.Endpoint != "" && !strings.HasSuffix(grpc.Endpoint, ":0") {
		errs = append(errs, fmt.Errorf(
			"protocols::grpc::endpoint and protocols::http::endpoint are both %q, which only one server can listen on; give each its own, such as localhost:4317 and localhost:4318",
			grpc.Endpoint))
	}
	return errors.Join(errs...)
}

// checkEndpoint finds at validation what would otherwise fail at start, without the field's name.
func checkEndpoint(field string, addr confignet.AddrConfig, example string) error {
	if !strings.HasPrefix(string(addr.Transport), "tcp") {
		return nil
	}
	if _, _, err := net.SplitHostPort(addr.Endpoint); err != nil {
		return fmt.Errorf("%s: %q is not an address to listen on (%w); write host:port, such as %s", field, addr.Endpoint, err, example)
	}
	return nil
}
